"""`tollbridge config`: every setting in force, and where it came from."""

from __future__ import annotations

import re
import sys
from typing import Any

import click
import msgspec

from tollbridge.cli import tables
from tollbridge.cli.options import ConnectionOptions, connection_options
from tollbridge.cli.summary import to_json
from tollbridge.cli.tables import Column, show_table
from tollbridge.cli.terminal import Paint
from tollbridge.config.accounts import all_accounts
from tollbridge.config.keys import describe_key
from tollbridge.config.loading import LoadedSettings, iter_values, load_settings, quote_name
from tollbridge.config.request_options import CLEAR_THINKING, CLEAR_TOOL_USES
from tollbridge.recorder.redaction import hide_secret_values
from tollbridge.types.errors import RequestError

COLUMNS = (Column("setting", least=18), Column("value", least=24), Column("from", least=32))
_PASSWORD = re.compile(r"(?<=//)[^/@]*@")


class Row(msgspec.Struct, frozen=True):
    setting: str
    value: Any
    origin: str


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a setting, one a line.")
def config(where: ConnectionOptions, as_json: bool) -> None:
    """Show every setting in force, and where it came from. Keys are not shown, only where they are."""
    loaded = load_settings(where.flags())
    rows = settings_rows(loaded) + account_rows(loaded)
    if as_json:
        for row in rows:
            click.echo(to_json(row))
    else:
        _show(rows, loaded)


def settings_rows(loaded: LoadedSettings) -> list[Row]:
    """Every setting in force, those nobody set with their defaults."""
    plain = msgspec.to_builtins(loaded.settings)
    told = {name for name in loaded.origins if name.startswith(("accounts.", "models."))}
    rows = [
        Row(name, _harmless(name, value), loaded.origin(name))
        for name, value in iter_values(plain)
        if not name.startswith(("accounts.", "models.")) or name in told
    ]
    if loaded.settings.context_management:
        edits = [CLEAR_THINKING["type"], CLEAR_TOOL_USES["type"]]
        origin = f"{loaded.origin('context_management')}, for Claude on Vercel's gateway"
        rows.append(Row("context edits", edits, origin))
    return [
        row
        for row in rows
        if row.value not in ({}, None) or row.origin != "default" or "." not in row.setting
    ]


def _harmless(name: str, value: Any) -> Any:
    # A provider's own key may be among the options.
    if name.startswith("models.") and hide_secret_values(value, name) != value:
        return "set, not shown"
    return _PASSWORD.sub("…@", value) if isinstance(value, str) else value


def account_rows(loaded: LoadedSettings) -> list[Row]:
    """Where each account talks to, and where its key is."""
    try:
        accounts = all_accounts(loaded)
    except RequestError as error:
        return [Row("account in use", None, error.message)]
    rows = [Row("account in use", accounts[0].name, f"{accounts[0].base_url}, {accounts[0].backend}")]
    return rows + [Row(f"key of {quote_name(one.name)}", describe_key(one), one.base_url) for one in accounts]


def _show(rows: list[Row], loaded: LoadedSettings) -> None:
    file = f"the file {loaded.path}"
    show_table(
        COLUMNS,
        [
            tables.Row(
                (row.setting, _value(row.value), row.origin.replace(file, "file")),
                style="dim" if row.origin == "default" else "",
            )
            for row in rows
        ],
    )
    state = "" if loaded.path.exists() else " (not there yet)"
    paint = Paint(sys.stdout)
    click.echo(f"\n{paint.dim}Settings file: {loaded.path}{state}{paint.plain}")


def _value(value: Any) -> str:
    match value:
        case None | [] | ():
            return "—"
        case str():
            return value
        case [*words] if all(isinstance(word, str) for word in words):
            return ", ".join(words)
        case _:
            return to_json(value)
