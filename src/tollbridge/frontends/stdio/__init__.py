"""The sidecar: a JSON-RPC server on standard input and output that an editor starts.

`docs/protocol.md` documents the protocol.
"""

from __future__ import annotations

import sys

from tollbridge.transport.loading import import_msgspec

import_msgspec()


def main() -> int:
    """Serve one editor until it disconnects. Returns the exit code."""
    from tollbridge.frontends.stdio.errors import log
    from tollbridge.frontends.stdio.server import EXIT_BROKEN_INPUT, Server
    from tollbridge.transport.stdio import claim_stdio

    if sys.stdin is None or sys.stdout is None:  # None means that the descriptor is closed
        log("error", "Standard input and output must be open: the editor is connected to them.")
        return EXIT_BROKEN_INPUT
    if sys.stdin.isatty():
        log("info", "This program speaks JSON-RPC with an editor (see docs/protocol.md). Ctrl-D ends it.")
    try:
        return Server(claim_stdio()).serve()
    except KeyboardInterrupt:
        return 130
