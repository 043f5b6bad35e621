"""`tollbridge local` and `tollbridge gateway`: servers for as long as you like."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tollbridge.cli.progress import FetchBar
from tollbridge.local import LocalModel
from tollbridge.local.process import DEFAULT_CONTEXT

PORT = click.IntRange(0, 65535)


@click.command()
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="FILE.gguf", help="Serve this model instead."
)
@click.option("--port", type=PORT, default=0, help="Where to listen; a free port where none is given.")
@click.option(
    "--context",
    type=click.IntRange(min=256),
    default=DEFAULT_CONTEXT,
    show_default=True,
    help="How many tokens a conversation may have.",
)
def local(model: Path | None, port: int, context: int) -> None:
    """Fetch a small model (SmolLM2, 135 M parameters) and serve it on this machine with llama.cpp."""
    try:
        asyncio.run(_serve_local(model, port, context))
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)


async def _serve_local(model: Path | None, port: int, context: int) -> None:
    with FetchBar() as progress:
        server = LocalModel(model, port=port, context=context, progress=progress)
        async with server:
            progress.close()
            click.echo(f"{server.model_id} is served at {server.url}")
            click.echo(f"Talk to it: tollbridge chat --base-url {server.url}", err=True)
            click.echo("Ctrl-C stops it.", err=True)
            raise await server.wait()
