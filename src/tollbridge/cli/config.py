"""`tollbridge config`, `login` and `logout`: the settings and their sources, and keys in the keyring."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
import tomllib
from typing import Any

import click
import msgspec

from tollbridge.cli.errors import print_error
from tollbridge.cli.options import ConnectionOptions, connection_options, json_option
from tollbridge.cli.output import Column, print_json_lines, show_table, to_json
from tollbridge.cli.terminal import dim, one_line
from tollbridge.config.accounts import all_accounts, named_account, resolve_account
from tollbridge.config.errors import SettingsError, SettingsUnusable
from tollbridge.config.file import SettingsFile, read_file
from tollbridge.config.keyring import delete_key, get_key, set_key
from tollbridge.config.keys import clean_key, describe_key
from tollbridge.config.loading import LoadedSettings, load_settings
from tollbridge.config.names import iter_values, quote_name, split_name
from tollbridge.config.schema import Account
from tollbridge.config.validation import validate_settings
from tollbridge.policy.clearing import CLEAR_TOOL_USES, CLEAR_TRIGGER
from tollbridge.recorder.redaction import hide_secret_values
from tollbridge.transport.files import config_file
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.text import replace_surrogates

COLUMNS = (Column("setting", min_width=18), Column("value", min_width=24), Column("source", min_width=32))
# Parts of the names of settings whose values can be or contain a key, perhaps by mistake.
_MAY_CONTAIN_KEYS = frozenset({"base_url", "headers", "key", "models", "proxy"})
# The settings whose value 0 means that there is no limit.
_UNLIMITED_IF_ZERO = frozenset({"timeouts.connect", "timeouts.idle", "timeouts.total"})
_USERINFO = re.compile(r"(?<=//)[^/@]*@")


class SettingRow(msgspec.Struct, frozen=True):
    """A setting, its value and its source. The fields are those of `config --json`."""

    setting: str
    value: Any
    origin: str


@click.group(invoke_without_command=True)
@connection_options
@json_option("Output JSON Lines, one object per setting.")
@click.pass_context
def config(ctx: click.Context, where: ConnectionOptions, as_json: bool) -> int:
    """Show and change the settings.

    Without a subcommand, shows the effective settings and their sources, and where each API key comes from;
    never the key.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    loaded, file_error = _load(where)
    rows = settings_rows(loaded) + account_rows(loaded)
    if as_json:
        print_json_lines(rows)
    else:
        _show(rows, loaded)
    if file_error is not None:
        print_error(file_error)
        click.echo("The settings above are those without the file.", err=True)
    return int(file_error is not None)


def _load(where: ConnectionOptions) -> tuple[LoadedSettings, BridgeError | None]:
    """Load the settings; without the settings file, and with its error, if the file is not valid."""
    try:
        return load_settings(where.flags()), None
    except (SettingsError, SettingsUnusable) as error:
        environment = {**os.environ, "TOLLBRIDGE_CONFIG": os.devnull}
        loaded = load_settings(where.flags(), environ=environment)  # raises if the file is not the cause
        return msgspec.structs.replace(loaded, path=config_file()), error


def settings_rows(loaded: LoadedSettings) -> list[SettingRow]:
    """Return every setting; those that are not set have their default."""
    values = msgspec.to_builtins(loaded.settings)
    rows = [
        SettingRow(name, _redact(name, value), loaded.origin(name))
        for name, value in iter_values(values)
        if not name.startswith(("accounts.", "models.")) or name in loaded.origins
    ]
    if loaded.settings.context_management:
        edits = [CLEAR_TOOL_USES["type"]]
        place = f"for Claude on Vercel's gateway, from {CLEAR_TRIGGER:,} tokens"
        origin = f"{loaded.origin('context_management')}, {place}"
        rows.append(SettingRow("context edits", edits, origin))
    return [
        row
        for row in rows
        if row.value not in ({}, None) or row.origin != "default" or "." not in row.setting
    ]


def _redact(name: str, value: Any) -> Any:
    """Hide passwords in URLs, and provider options that contain a key."""
    if name.startswith("models.") and hide_secret_values(value, name) != value:
        return "set (hidden)"
    return _USERINFO.sub("…@", value) if isinstance(value, str) else value


def account_rows(loaded: LoadedSettings) -> list[SettingRow]:
    """Return the URL and the source of the key of each account."""
    try:
        current = resolve_account(loaded)
    except RequestError as error:
        return [SettingRow("current account", None, error.message)]
    return [
        SettingRow("current account", current.name, f"{current.base_url}, {current.backend}"),
        *(
            SettingRow(f"key ({quote_name(account.name)})", describe_key(account), account.base_url)
            for account in all_accounts(loaded)
        ),
    ]


def _show(rows: list[SettingRow], loaded: LoadedSettings) -> None:
    file = f"the file {loaded.path}"
    cells = [(row.setting, _describe(row), row.origin.replace(file, "file")) for row in rows]
    show_table(COLUMNS, cells, ["dim" if row.origin == "default" else "" for row in rows])
    state = "" if loaded.path.exists() else " (does not exist)"
    click.echo("\n" + dim(f"Settings file: {loaded.path}{state}", sys.stdout))


def _describe(row: SettingRow) -> str:
    """Return the value of a setting as text."""
    if row.setting in _UNLIMITED_IF_ZERO and row.value == 0:
        return "0 (no limit)"
    match row.value:
        case None | [] | ():
            return "—"
        case str(value):
            return value
        case [*items] if all(isinstance(item, str) for item in items):
            return ", ".join(items)
        case _:
            return to_json(row.value)


_NEW_FILE = "# Settings of Tollbridge. `tollbridge config` shows all settings and their values.\n"


# A negative number is not an option: the validation reports it.
@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value")
def set_setting(name: str, value: str) -> None:
    """Set NAME to VALUE in the settings file.

    VALUE is TOML (true, 30, ["a", "b"]), or else a text; the items of a list can be separated by commas.
    Example: tollbridge config set timeouts.idle 60
    """
    keys = split_name(name)
    if not all(keys):
        raise click.UsageError(f"Invalid setting name {name!r}. Expected something like timeouts.idle.")
    file = read_file(config_file())
    first_error: SettingsError | None = None
    for literal in _literals(value):
        changed = file.with_value(name, literal)
        try:
            validate_settings(changed.table, file.locate)
        except SettingsError as error:
            first_error = first_error or error
            continue
        changed.write()
        click.echo(
            f"Set {one_line(name)} = {_USERINFO.sub('…@', one_line(literal))} in {file.path}", err=True
        )
        return
    assert first_error is not None  # noqa: S101 - a value can always be written as a text
    if split_name(first_error.setting)[: len(keys)] != keys:
        raise first_error  # about another setting: the file was invalid before
    refusal = one_line(_describe_refusal(first_error, name, value))
    stop = "" if refusal.endswith((".", "?")) else "."
    raise click.UsageError(f"{refusal}{stop} Nothing was saved.")


def _describe_refusal(error: SettingsError, name: str, value: str) -> str:
    """Return why a value is not valid for a setting. A value that may be a key is not repeated."""
    hidden = _MAY_CONTAIN_KEYS.intersection(split_name(name))
    if hidden or "unknown setting" in error.problem or f'"{value}"' in error.problem:
        return f"{error.setting}: {error.problem}"
    return f"{error.setting} cannot be {to_json(one_line(value))}: {error.problem}"


def _literals(value: str) -> list[str]:
    """Return the ways to read a value, as TOML: as it is, as a text, as a list of texts."""
    literals = [_quote(value), f"[{', '.join(_quote(item.strip()) for item in value.split(','))}]"]
    with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError):
        if "\n" not in value and list(tomllib.loads(f"x = {value}")) == ["x"]:
            literals.insert(0, value.strip())
    return literals


def _quote(text: str) -> str:
    return to_json(replace_surrogates(text))  # JSON's strings are TOML's too


@config.command()
@click.argument("name")
def unset(name: str) -> None:
    """Remove NAME from the settings file, so that its default is used."""
    file = read_file(config_file())
    if name not in file:
        raise click.ClickException(f"{one_line(name)} is not in the settings file.")
    file.with_value(name, None).write()
    click.echo(f"Removed {one_line(name)} from {file.path}", err=True)


@config.command()
def edit() -> int:
    """Open the settings file in $VISUAL or $EDITOR, and check it afterwards."""
    path = config_file()
    if not path.exists() or not path.stat().st_size:
        SettingsFile(path, _NEW_FILE).write()
    while True:
        try:
            click.edit(filename=str(path))
        except click.ClickException as error:
            raise click.ClickException(
                f"The editor failed ({error.message}). Set VISUAL or EDITOR to another editor, or edit "
                f"{path} directly."
            ) from error
        try:
            file = read_file(path)
            validate_settings(file.table, file.locate)
            return 0
        except (SettingsError, SettingsUnusable) as error:
            print_error(error)
            if not sys.stdin.isatty() or not click.confirm("Edit it again?", default=True, err=True):
                return 1


# Keys are shorter; longer input is not a key.
MAX_KEY_LENGTH = 16 * 1024


@click.command()
@click.argument("account", required=False)
def login(account: str | None) -> None:
    """Store an account's API key in the system keyring.

    ACCOUNT is an account from the settings file; default: the current account. The key is read from a
    hidden prompt, or from standard input if it is piped.
    """
    chosen = _find_account(account)
    get_key(chosen)  # fails if there is no keyring, before the key is typed
    # The key is never an argument: the list of processes shows arguments to other users.
    if sys.stdin.isatty():
        text = getpass.getpass(f"API key for {chosen.name} (input hidden): ", sys.stderr)
    else:
        text = sys.stdin.read(MAX_KEY_LENGTH)
    key = clean_key(text, "The key")
    if not key:
        raise click.UsageError("No key provided. Type it or pipe it in: tollbridge login < key.txt")
    set_key(chosen, key)
    click.echo(f"Saved the key for {chosen.name} ({chosen.base_url}) in the system keyring.", err=True)


@click.command()
@click.argument("account", required=False)
def logout(account: str | None) -> int:
    """Remove an account's API key from the system keyring.

    ACCOUNT is an account from the settings file; default: the current account. Exits with 1 if the keyring
    has no key for it.
    """
    chosen = _find_account(account)
    name = f"{chosen.name} ({chosen.base_url})"
    if not delete_key(chosen):
        click.echo(f"No key for {name} in the system keyring.", err=True)
        return 1
    click.echo(f"Removed the key for {name} from the system keyring.", err=True)
    return 0


def _find_account(name: str | None) -> Account:
    settings = load_settings()
    return resolve_account(settings) if name is None else named_account(settings, name)
