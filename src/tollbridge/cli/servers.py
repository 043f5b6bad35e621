"""`tollbridge local` and `tollbridge gateway`: run a server until Ctrl-C."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

import click

from tollbridge.cli.connection import DownloadProgress
from tollbridge.cli.options import WholeNumber
from tollbridge.local.process import DEFAULT_CONTEXT, LocalModel
from tollbridge.types.errors import RequestError

port_option = click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="N",
    help="Port to listen on. Default: any free port.",
)


@click.command()
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="FILE.gguf",
    help="Serve this GGUF file instead of the small model.",
)
@port_option
@click.option(
    "--context",
    type=WholeNumber(256),
    metavar="N",
    default=DEFAULT_CONTEXT,
    show_default=True,
    help="Context size in tokens.",
)
def local(model: Path | None, port: int, context: int) -> None:
    """Download a small model (SmolLM2, 135 M parameters) and serve it on this computer with llama.cpp.

    The model is downloaded on first use only (93 MB).
    """
    try:
        asyncio.run(_serve_local(model, port, context))
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)


async def _serve_local(model: Path | None, port: int, context: int) -> None:
    with DownloadProgress() as progress:
        server = LocalModel(model, port=port, context=context, progress=progress)
        async with server:
            progress.close()
            click.echo(f"Serving {server.model_id} at {server.url}")
            _print_usage(f"tollbridge chat --base-url {server.url}")
            raise await server.wait()


class _GatewayCommand(click.Command):
    """Lists the scenarios at the end of the help."""

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Imported here and in `gateway`, because `tollbridge local` does not need the embedded gateway.
        from tollbridge.testing.scenarios import describe_scenarios

        with formatter.section("Scenarios"):
            formatter.write_dl(describe_scenarios())


@click.command(cls=_GatewayCommand)
@port_option
@click.option(
    "--scenario", default="demo", show_default=True, metavar="NAME", help="Scenario to run (see below)."
)
@click.option(
    "--api-key",
    envvar="TOLLBRIDGE_GATEWAY_KEY",
    metavar="KEY",
    help="Require this API key. Default: accept any.  [env: TOLLBRIDGE_GATEWAY_KEY]",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Reject requests that violate the specification, reporting the field.",
)
def gateway(port: int, scenario: str, api_key: str | None, strict: bool) -> None:
    """Run the embedded OpenResponses gateway for tests, on this computer only.

    Responses are deterministic. A scenario selects a response or a fault to simulate. Add fault:NAME to a
    prompt to use a scenario for one request.
    """
    from tollbridge.testing.scenarios import SCENARIOS
    from tollbridge.testing.server import run

    if scenario not in SCENARIOS:
        matches = difflib.get_close_matches(scenario, SCENARIOS, 1)
        suggestion = f" Did you mean {matches[0]!r}?" if matches else ""
        raise click.BadParameter(
            f"unknown scenario {scenario!r}.{suggestion} Run `tollbridge gateway --help` to list scenarios.",
            param_hint="'--scenario'",
        )
    try:
        run(port=port, scenario=scenario, api_key=api_key, on_ready=_print_url, strict=strict)
    except RequestError as error:
        raise click.ClickException(f"{error.message} Choose another port, or remove --port.") from error


def _print_url(url: str) -> None:
    click.echo(f"Embedded gateway listening at {url}")
    _print_usage(f"tollbridge chat --base-url {url} --model tollbridge/demo")


def _print_usage(command: str) -> None:
    click.echo(f"Connect with: {command}", err=True)
    click.echo("Press Ctrl-C to stop.", err=True)
