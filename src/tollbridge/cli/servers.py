"""`tollbridge local` and `tollbridge gateway`: servers, until Ctrl-C."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

import click

from tollbridge.cli.connection import FetchBar
from tollbridge.local.process import DEFAULT_CONTEXT, LocalModel
from tollbridge.types.errors import RequestError

PORT = click.IntRange(0, 65535)


@click.command()
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="FILE.gguf", help="Serve this model instead."
)
@click.option(
    "--port", type=PORT, default=0, metavar="N", help="Where to listen; a free port where none is given."
)
@click.option(
    "--context",
    type=click.IntRange(min=256),
    metavar="N",
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


class _WithScenarios(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Here and below, not at the top: `tollbridge local` needs no gateway of ours.
        from tollbridge.testing.scenarios import describe_scenarios

        with formatter.section("Scenarios"):
            formatter.write_dl(describe_scenarios())


@click.command(cls=_WithScenarios)
@click.option(
    "--port", type=PORT, default=0, metavar="N", help="Where to listen; a free port where none is given."
)
@click.option(
    "--scenario", default="demo", show_default=True, metavar="NAME", help="What it does; see below."
)
@click.option(
    "--api-key",
    envvar="TOLLBRIDGE_GATEWAY_KEY",
    metavar="KEY",
    help="The only key it accepts; any where none is given.  [env: TOLLBRIDGE_GATEWAY_KEY]",
)
@click.option(
    "--strict", is_flag=True, help="Refuse what the specification does not allow, naming the exact place."
)
def gateway(port: int, scenario: str, api_key: str | None, strict: bool) -> None:
    """Serve the embedded OpenResponses gateway on this machine, for your tests and ours.

    It answers from a script, the same every time, and knows the faults that a client should survive.
    A request may choose its own scenario: put fault:NAME into the question.
    """
    from tollbridge.testing.scenarios import SCENARIOS
    from tollbridge.testing.server import run

    if scenario not in SCENARIOS:
        close = difflib.get_close_matches(scenario, SCENARIOS, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise click.BadParameter(
            f"there is no scenario {scenario!r}.{meant} `tollbridge gateway --help` lists them.",
            param_hint="--scenario",
        )
    try:
        run(port=port, scenario=scenario, api_key=api_key, on_ready=_ready, strict=strict)
    except RequestError as error:
        raise click.ClickException(f"{error.message} Choose another port, or leave it out.") from error


def _ready(url: str) -> None:
    click.echo(f"The embedded gateway listens at {url}")
    click.echo(f"Talk to it: tollbridge chat --base-url {url} --model tollbridge/demo", err=True)
    click.echo("Ctrl-C stops it.", err=True)
