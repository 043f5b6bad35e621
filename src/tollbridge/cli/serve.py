"""`tollbridge serve`, `local` and `gateway`: run a server for editors and agents, a model, or tests."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import gc
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from tollbridge.cli.connection import DownloadProgress, Session, connect, pick_model
from tollbridge.cli.options import ConnectionOptions, WholeNumber, connection_options, record_options
from tollbridge.cli.terminal import one_line
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.frontends.http.server import ServerOptions, check_token, run_server
from tollbridge.local.process import DEFAULT_CONTEXT, LocalModel
from tollbridge.transport.http import check_url
from tollbridge.types.errors import RequestError
from tollbridge.types.urls import is_loopback

DEFAULT_PORT = 8787
# Seconds after which a thread of the server lets another one run; Python's default is 0.005.
SWITCH_INTERVAL = 0.0001


# --- The settings of agents ---

# What agents send as their key if the server needs no token. Most refuse to start without one.
NO_TOKEN = "unused"  # noqa: S105 - not a secret
TOKEN_VARIABLE = "TOLLBRIDGE_SERVE_TOKEN"  # noqa: S105


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs to know about the server.

    Attributes:
        url: The URL without a path.
        model: The model to use.
        has_token: Whether the server requires the token in `TOKEN_VARIABLE`. The token itself is not written.
    """

    url: str
    model: str
    has_token: bool = False


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one agent.

    Attributes:
        text: The settings, as they stand in the file or as commands.
        file: The file they belong to; `None` for commands.
        merge: Adds the settings to the text of an existing file; raises `ValueError` if it cannot.
        note: What else to do.
    """

    text: str
    file: Path | None = None
    merge: Callable[[str], str] | None = None
    note: str = ""


def set_up_codex(server: ServerAddress) -> AgentSetup:
    table = ("model_providers", "tollbridge")
    provider = {"name": "Tollbridge", "base_url": f"{server.url}/v1", "wire_api": "responses"}
    if server.has_token:
        provider["env_key"] = TOKEN_VARIABLE
    settings: dict[tuple[str, ...], str] = {
        ("model",): server.model,
        ("model_provider",): "tollbridge",
        **{(*table, name): value for name, value in provider.items()},
    }

    def merge(text: str) -> str:
        # Imported here, because only this edits a TOML file.
        from tollbridge.config.toml_text import remove_value, set_value

        text = remove_value(text, table)
        for keys, value in settings.items():
            text = set_value(text, keys, json.dumps(value))
        return text

    folder = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    return AgentSetup(text=merge(""), file=folder / "config.toml", merge=merge)


def set_up_claude_code(server: ServerAddress) -> AgentSetup:
    # The program reads the token from the environment; it is not written to the file.
    token = f"printenv {TOKEN_VARIABLE}" if server.has_token else f"echo {NO_TOKEN}"
    environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_MODEL": server.model}
    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    return _json_setup({"apiKeyHelper": token, "env": environment}, folder / "settings.json")


def set_up_copilot(server: ServerAddress) -> AgentSetup:
    variables = {
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_BASE_URL": f"{server.url}/v1",
        "COPILOT_PROVIDER_API_KEY": f"${TOKEN_VARIABLE}" if server.has_token else NO_TOKEN,
        "COPILOT_MODEL": server.model,
    }
    lines = [f"export {name}={_quote(value)}\n" for name, value in variables.items()]
    return AgentSetup(text="".join(lines), note="Add these lines to the start-up file of your shell.")


def _quote(value: str) -> str:
    return f'"{value}"' if value.startswith("$") else shlex.quote(value)


def set_up_opencode(server: ServerAddress) -> AgentSetup:
    options = {"baseURL": f"{server.url}/v1"}
    options["apiKey"] = f"{{env:{TOKEN_VARIABLE}}}" if server.has_token else NO_TOKEN
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Tollbridge",
        "options": options,
        "models": {server.model: {"name": server.model}},
    }
    settings = {"provider": {"tollbridge": provider}, "model": f"tollbridge/{server.model}"}
    return _json_setup(settings, _config_folder() / "opencode" / "opencode.json")


def set_up_zed(server: ServerAddress) -> AgentSetup:
    provider = {
        "api_url": f"{server.url}/v1",
        "available_models": [{"name": server.model, "max_tokens": 200_000}],
    }
    settings = {"language_models": {"openai_compatible": {"Tollbridge": provider}}}
    key = f"the value of {TOKEN_VARIABLE}" if server.has_token else f"“{NO_TOKEN}”"
    note = f"Zed then asks for the API key of Tollbridge: enter {key}."
    return _json_setup(settings, _config_folder() / "zed" / "settings.json", note)


def set_up_continue(server: ServerAddress) -> AgentSetup:
    key = f"${{{{ secrets.{TOKEN_VARIABLE} }}}}" if server.has_token else NO_TOKEN
    lines = [
        "name: Tollbridge",
        "version: 1.0.0",
        "schema: v1",
        "models:",
        f"  - name: {json.dumps(server.model)}",
        "    provider: openai",
        f"    model: {json.dumps(server.model)}",
        f"    apiBase: {server.url}/v1",
        f"    apiKey: {key}",
        "    roles: [chat, edit, apply]",
    ]
    file = Path.home() / ".continue" / "config.yaml"
    return AgentSetup(text="\n".join(lines) + "\n", file=file)


AGENTS: dict[str, Callable[[ServerAddress], AgentSetup]] = {
    "codex": set_up_codex,
    "claude-code": set_up_claude_code,
    "copilot": set_up_copilot,
    "opencode": set_up_opencode,
    "zed": set_up_zed,
    "continue": set_up_continue,
}


def _config_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _json_setup(settings: Mapping[str, Any], file: Path, note: str = "") -> AgentSetup:
    def merge(text: str) -> str:
        try:
            present = json.loads(text or "{}")
        except ValueError:
            raise ValueError("it is not plain JSON (it may have comments)") from None
        if not isinstance(present, dict):
            raise ValueError("it is not a JSON object")
        return json.dumps(_merge(present, settings), indent=2, ensure_ascii=False) + "\n"

    return AgentSetup(text=json.dumps(settings, indent=2) + "\n", file=file, merge=merge, note=note)


def _merge(present: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(present)
    for name, value in added.items():
        before = merged.get(name, {})
        if not isinstance(value, Mapping):
            merged[name] = value
        elif isinstance(before, Mapping):
            merged[name] = _merge(before, value)
        else:
            raise ValueError(f"{name!r} in it is not an object")
    return merged


def print_setup(setup: AgentSetup) -> None:
    """Print the settings, and where they belong."""
    if setup.file is not None:
        click.echo(f"# {setup.file}", err=True)
    click.echo(setup.text, nl=False)
    if setup.note:
        click.echo(setup.note, err=True)


def write_setup(setup: AgentSetup) -> None:
    """Add the settings to the agent's file. The file before the first change is kept as `.bak`.

    Raises:
        click.UsageError: The agent has no settings file.
        click.ClickException: The file cannot be read, merged or written.
    """
    if setup.file is None:
        raise click.UsageError(
            "This agent is configured by environment variables; there is no file. Remove --write."
        )
    file = setup.file
    try:
        text = setup.text
        if file.exists():
            before = file.read_text(encoding="utf-8")
            if setup.merge is None:
                raise ValueError("it exists, and merging this format is not supported")
            text = setup.merge(before)
            backup = file.with_name(file.name + ".bak")
            if not backup.exists():  # the file as it was before the first change
                shutil.copy2(file, backup)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"Cannot write {file}: {error.strerror}.") from error
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise click.ClickException(f"{file} was not changed: {reason}. Add the settings by hand.") from error
    click.echo(f"Wrote {file}.", err=True)


# --- The command ---


def _check_token(_context: click.Context, _option: click.Parameter, token: str | None) -> str | None:
    # An empty environment variable is `None` here.
    if token is not None and not token.strip():
        raise click.BadParameter("The token is empty. Pass a token, or remove the option --token.")
    return token


@click.command()
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
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
            _print_start(url, session)
            _prefer_latency()
            await _wait_for_signal()


def _prefer_latency() -> None:
    """Keep background work from delaying streams."""
    # Threads decode requests for explanations and estimates. While one does, the event loop waits this long
    # for the interpreter, several times per event.
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Everything loaded so far stays: the garbage collector need not look at it again.
    gc.collect()
    gc.freeze()


def _print_start(url: str, session: Session) -> None:
    click.echo(f"Serving {session.place} at {url}")
    click.echo("Press Ctrl-C to stop.", err=True)


async def _wait_for_signal() -> None:
    """Return at SIGTERM. Ctrl-C cancels the program."""
    stopped = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers in the event loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


# --- The local model and the embedded gateway ---

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
