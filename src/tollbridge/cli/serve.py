"""`tollbridge serve`: a local server for editors and agents."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import click

from tollbridge.cli.agent_setup import AGENTS, ServerAddress, print_setup, write_setup
from tollbridge.cli.connection import Session, connect, pick_model
from tollbridge.cli.options import ConnectionOptions, connection_options, record_options
from tollbridge.config.accounts import Account
from tollbridge.frontends.http.server import ServerOptions, run_server
from tollbridge.types.errors import RequestError

DEFAULT_PORT = 8787


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="N",
    help="Port to listen on; 0 is any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. An address that other computers can reach needs a token.",
)
@click.option(
    "--token",
    envvar="TOLLBRIDGE_SERVE_TOKEN",
    metavar="TOKEN",
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
    if agent is not None:
        _print_config(agent, port, token, model, write, where)
        return 0
    try:
        asyncio.run(_serve(ServerOptions(host=host, port=port, token=token or None), where))
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
    except RequestError as error:
        raise click.ClickException(error.message) from error
    return 0


def _print_config(
    agent: str, port: int, token: str | None, model: str | None, write: bool, where: ConnectionOptions
) -> None:
    name = model or asyncio.run(_find_model(where))
    address = ServerAddress(
        url=f"http://127.0.0.1:{port or DEFAULT_PORT}", model=name, has_token=token is not None
    )
    setup = AGENTS[agent](address)
    print_setup(setup)
    if write:
        write_setup(setup)


async def _find_model(where: ConnectionOptions) -> str:
    async with connect(where) as session:
        return await pick_model(session, None)


async def _serve(options: ServerOptions, where: ConnectionOptions) -> None:
    async with connect(where, short_lived=False) as session:

        async def find_account() -> Account:
            return await session.engine.account() if session.lasting else session.account

        async with run_server(session.engine, options, find_account) as url:
            _print_start(url, session)
            await _wait_for_signal()


def _print_start(url: str, session: Session) -> None:
    click.echo(f"Serving {session.place} at {url}")
    click.echo("Press Ctrl-C to stop.", err=True)


async def _wait_for_signal() -> None:
    """Return at SIGTERM. Ctrl-C cancels the program."""
    stopped = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers in the event loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
