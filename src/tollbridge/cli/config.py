"""`tollbridge config`: show the effective settings and their sources."""

from __future__ import annotations

import re
import sys
from typing import Any

import click
import msgspec

from tollbridge.cli.options import ConnectionOptions, connection_options
from tollbridge.cli.summary import to_json
from tollbridge.cli.tables import Column, Row, show_table
from tollbridge.cli.terminal import Styles
from tollbridge.config.accounts import all_accounts
from tollbridge.config.keys import describe_key
from tollbridge.config.loading import LoadedSettings, iter_values, load_settings, quote_name
from tollbridge.config.schema import CLEAR_TOOL_USES, CLEAR_TRIGGER
from tollbridge.recorder.redaction import hide_secret_values
from tollbridge.types.errors import RequestError

COLUMNS = (Column("setting", min_width=18), Column("value", min_width=24), Column("source", min_width=32))
_USERINFO = re.compile(r"(?<=//)[^/@]*@")


class SettingRow(msgspec.Struct, frozen=True):
    """A setting, its value and its source. The fields are those of `config --json`."""

    setting: str
    value: Any
    origin: str


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per setting.")
def config(where: ConnectionOptions, as_json: bool) -> None:
    """Show effective settings and their sources. Shows where each API key comes from, never the key."""
    loaded = load_settings(where.flags())
    rows = settings_rows(loaded) + account_rows(loaded)
    if as_json:
        for row in rows:
            click.echo(to_json(row))
    else:
        _show(rows, loaded)


def settings_rows(loaded: LoadedSettings) -> list[SettingRow]:
    """Return every setting; those that are not set have their default."""
    values = msgspec.to_builtins(loaded.settings)
    shown_tables = {name for name in loaded.origins if name.startswith(("accounts.", "models."))}
    rows = [
        SettingRow(name, _redact(name, value), loaded.origin(name))
        for name, value in iter_values(values)
        if not name.startswith(("accounts.", "models.")) or name in shown_tables
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
        accounts = all_accounts(loaded)
    except RequestError as error:
        return [SettingRow("current account", None, error.message)]
    current = accounts[0]
    return [
        SettingRow("current account", current.name, f"{current.base_url}, {current.backend}"),
        *(
            SettingRow(f"key ({quote_name(account.name)})", describe_key(account), account.base_url)
            for account in accounts
        ),
    ]


def _show(rows: list[SettingRow], loaded: LoadedSettings) -> None:
    file = f"the file {loaded.path}"
    show_table(
        COLUMNS,
        [
            Row(
                (row.setting, _value(row.value), row.origin.replace(file, "file")),
                style="dim" if row.origin == "default" else "",
            )
            for row in rows
        ],
    )
    state = "" if loaded.path.exists() else " (does not exist)"
    paint = Styles(sys.stdout)
    click.echo(f"\n{paint.dim}Settings file: {loaded.path}{state}{paint.plain}")


def _value(value: Any) -> str:
    match value:
        case None | [] | ():
            return "—"
        case str():
            return value
        case [*items] if all(isinstance(item, str) for item in items):
            return ", ".join(items)
        case _:
            return to_json(value)
