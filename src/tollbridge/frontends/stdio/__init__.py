"""The program an editor starts: JSON-RPC on standard input and output. `docs/protocol.md` is its manual."""

from __future__ import annotations

import sys

# msgspec looks for typing_extensions and has no use for it on our Pythons; finding it costs 30 ms of a start.
_found = sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]
import msgspec  # noqa: E402, F401

if _found is None:
    del sys.modules["typing_extensions"]


def main() -> int:
    """Serves one editor until it leaves; the exit code."""
    from tollbridge.frontends.stdio.server import EXIT_LOST, Server, log
    from tollbridge.transport.stdio import claim_stdio

    if sys.stdin is None or sys.stdout is None:  # Python's word for a descriptor that is closed
        log("error", "standard input and output are the way to the editor, and one of them is closed")
        return EXIT_LOST
    if sys.stdin.isatty():
        log("info", "this program speaks JSON-RPC to an editor; docs/protocol.md says how. Ctrl-D ends it.")
    try:
        return Server(claim_stdio()).serve()
    except KeyboardInterrupt:
        return 130
