"""`tollbridge sidecar`: the program an editor starts, under the name a person would look for."""

from __future__ import annotations

import click


@click.command()
def sidecar() -> int:
    """Serve one editor with JSON-RPC on standard input and output, until it leaves."""
    from tollbridge.frontends.stdio import main

    return main()
