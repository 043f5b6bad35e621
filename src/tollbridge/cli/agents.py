"""The settings with which agents use `tollbridge serve`: printed, or written to the agent's own file."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

# What agents send as their key if the server needs no token. Most refuse to start without one.
NO_TOKEN = "unused"  # noqa: S105 - not a secret
TOKEN_VARIABLE = "TOLLBRIDGE_SERVE_TOKEN"  # noqa: S105


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs to know about the server: its URL without a path, and the model to use.

    `has_token` is whether it requires the token in `TOKEN_VARIABLE`. The token itself is not written.
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
        from tollbridge.config.toml_text import change_value

        text = change_value(text, table, None)
        for keys, value in settings.items():
            text = change_value(text, keys, json.dumps(value))
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
        "COPILOT_PROVIDER_BASE_URL": shlex.quote(f"{server.url}/v1"),
        "COPILOT_PROVIDER_API_KEY": f'"${TOKEN_VARIABLE}"' if server.has_token else NO_TOKEN,
        "COPILOT_MODEL": shlex.quote(server.model),
    }
    lines = [f"export {name}={value}\n" for name, value in variables.items()]
    return AgentSetup(text="".join(lines), note="Add these lines to the start-up file of your shell.")


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
