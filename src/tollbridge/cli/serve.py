"""`tollbridge serve`, `local` and `gateway`: run a server for editors and agents, a model, or tests."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import gc
import os
import signal
import sys
from pathlib import Path

import click

from tollbridge.cli.agents import AGENTS, TOKEN_VARIABLE, ServerAddress, print_setup, write_setup
from tollbridge.cli.connection import DownloadProgress, connect, pick_model
from tollbridge.cli.options import (
    ConnectionOptions,
    Decorator,
    WholeNumber,
    connection_options,
    record_options,
)
from tollbridge.cli.terminal import one_line
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.frontends.http.access import ServerOptions, check_token
from tollbridge.frontends.http.server import run_server
from tollbridge.local.process import DEFAULT_CONTEXT, LocalModel
from tollbridge.transport.http import check_url
from tollbridge.types.errors import RequestError
from tollbridge.types.urls import is_loopback

# Seconds after which a thread of the server lets another one run; Python's default is 0.005.
SWITCH_INTERVAL = 0.0001


def _port_option(default: int) -> Decorator:
    return click.option(
        "--port",
        type=WholeNumber(0, 65535),
        default=default,
        show_default=True,
        metavar="N",
        help="Port to listen on; 0 is any free port.",
    )


def _check_token(_context: click.Context, _option: click.Parameter, token: str | None) -> str | None:
    # An empty environment variable is `None` here.
    if token is not None and not token.strip():
        raise click.BadParameter("The token is empty. Pass a token, or remove the option --token.")
    return token


@click.command()
@_port_option(8787)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. An address that other computers can reach needs a token.",
)
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    metavar="TOKEN",
    callback=_check_token,
    help="Token that callers must send as their API key.  [env: TOLLBRIDGE_SERVE_TOKEN]",
)
@click.option(
    "--print-config",
    "agent",
    type=click.Choice(list(AGENTS)),
    help="Print the settings with which an agent uses this server, and exit.",
)
@click.option("--write", is_flag=True, help="With --print-config: also write them to the agent's file.")
@click.option(
    "--model",
    envvar="TOLLBRIDGE_MODEL",
    metavar="NAME",
    help="With --print-config: the model that the agent should use.  [env: TOLLBRIDGE_MODEL]",
)
@connection_options
@record_options
def serve(
    port: int,
    host: str,
    token: str | None,
    agent: str | None,
    write: bool,
    model: str | None,
    where: ConnectionOptions,
) -> int:
    """Run a local server that speaks Responses, Chat Completions and Messages.

    Editors and agents use it as their gateway; it uses the gateway of your account, and records the usage.
    """
    if agent is None and write:
        raise click.UsageError("--write needs --print-config.")
    if token is None and TOKEN_VARIABLE in os.environ:
        click.echo(f"Note: {TOKEN_VARIABLE} is empty, so callers need no token.", err=True)
    options = ServerOptions(host=host, port=port, token=token)
    if agent is not None:
        _print_config(agent, options, model, write, where)
        return 0
    try:
        check_token(options)
    except RequestError as error:
        raise click.BadParameter(one_line(error.message), param_hint="--host") from error
    try:
        asyncio.run(_serve(options, where))
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
    except RequestError as error:
        raise click.ClickException(error.message) from error
    return 0


def _print_config(
    agent: str, options: ServerOptions, model: str | None, write: bool, where: ConnectionOptions
) -> None:
    if options.port == 0:
        raise click.UsageError("--print-config needs the port of the server, not --port 0.")
    # An address such as 0.0.0.0 is not one to connect to.
    host = options.host if is_loopback(options.host) else "127.0.0.1"
    host = f"[{host}]" if ":" in host else host
    name = model or asyncio.run(_find_model(where))
    address = ServerAddress(
        url=f"http://{host}:{options.port}", model=name, has_token=options.token is not None
    )
    setup = AGENTS[agent](address)
    print_setup(setup)
    if write:
        write_setup(setup)


async def _find_model(where: ConnectionOptions) -> str:
    """Return the model to use by default.

    Raises:
        click.UsageError: There is no gateway whose models could be listed, or several models.
    """
    if not where.local:
        async with Engine.open(options=where.flags(), short_lived=True) as engine:
            account = await engine.account()
            if account.by_default and account.api_key is None and engine.settings.model is None:
                raise click.UsageError(
                    "No gateway is configured, so models cannot be listed. Name the model with --model, or a "
                    "gateway with --base-url or --account."
                )
    async with connect(where) as session:
        return await pick_model(session, None)


async def _serve(options: ServerOptions, where: ConnectionOptions) -> None:
    async with connect(where, short_lived=False) as session:
        # Now, and not with the first request: a URL that cannot be used is an error of the command.
        check_url(session.account.base_url, allow_http=session.settings.allow_http)

        async def find_account() -> Account:
            return await session.engine.account() if session.lasting else session.account

        async with run_server(session.engine, options, find_account) as url:
            click.echo(f"Serving {session.place} at {url}")
            click.echo("Press Ctrl-C to stop.", err=True)
            # Threads decode requests for explanations and estimates. While one does, the event loop waits
            # this long for the interpreter, several times per event.
            sys.setswitchinterval(SWITCH_INTERVAL)
            # Everything loaded so far stays: the garbage collector need not look at it again.
            gc.collect()
            gc.freeze()
            await _wait_for_signal()


async def _wait_for_signal() -> None:
    """Return at SIGTERM. Ctrl-C cancels the program."""
    stopped = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers in the event loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


@click.command()
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="FILE.gguf",
    help="Serve this GGUF file instead of the small model.",
)
@_port_option(0)
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
    with contextlib.closing(DownloadProgress()) as progress:
        server = LocalModel(model, port=port, context=context, progress=progress)
        async with server:
            progress.close()
            click.echo(f"Serving {server.model_id} at {server.url}")
            _print_usage(f"--base-url {server.url}")
            raise await server.wait()


class _GatewayCommand(click.Command):
    """Lists the scenarios at the end of the help."""

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Imported here and in `gateway`, because `tollbridge local` does not need the embedded gateway.
        from tollbridge.testing.scenarios import describe_scenarios

        with formatter.section("Scenarios"):
            formatter.write_dl(describe_scenarios())


@click.command(cls=_GatewayCommand)
@_port_option(0)
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
    """Run the embedded gateway for tests, on this computer only.

    It serves OpenResponses, Chat Completions, Messages and the AI SDK gateway protocol. Responses
    are deterministic. A scenario selects a response or a fault to simulate. Add fault:NAME to a prompt to use
    a scenario for one request.
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
    _print_usage(f"--base-url {url} --model tollbridge/demo")


def _print_usage(options: str) -> None:
    click.echo(f"Connect with: tollbridge chat {options}", err=True)
    click.echo(f"          or: tollbridge ask {options} Hello", err=True)
    click.echo("Press Ctrl-C to stop.", err=True)
