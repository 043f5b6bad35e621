"""`tollbridge sidecar`: run the JSON-RPC server that an editor starts."""

from __future__ import annotations

import click


@click.command()
def sidecar() -> int:
    """Run a JSON-RPC server on standard input and output until the client disconnects.

    Editors start it; docs/protocol.md describes the protocol.
    """
    from tollbridge.frontends.stdio import main

    return main()
