"""`tollbridge budget`: show what is spent of the budgets, and set or remove them in the settings file."""

from __future__ import annotations

import sys
from decimal import Decimal, InvalidOperation

import click
import msgspec

from tollbridge.cli.engine import use_engine
from tollbridge.cli.options import json_option
from tollbridge.cli.output import Column, decimal_fields, show_table, to_json
from tollbridge.cli.terminal import wrap_line
from tollbridge.config.accounts import all_accounts
from tollbridge.config.file import SettingsFile, read_file
from tollbridge.config.loading import LoadedSettings, load_settings
from tollbridge.config.names import quote_name
from tollbridge.config.schema import DEFAULT_REQUESTS_PER_MINUTE
from tollbridge.config.validation import validate_settings
from tollbridge.observers.budget import WARNING_SHARE
from tollbridge.storage.budgets import format_dollars
from tollbridge.transport.files import config_file

_BAR_WIDTH = 20
# US dollars, or requests per minute. A higher amount is a mistake.
_HIGHEST_AMOUNT = 1_000_000_000
COLUMNS = (
    Column("budget", min_width=12),
    Column("limit", right=True),
    Column("spent", right=True),
    Column("reserved", right=True, drop_order=2),
    Column("left", right=True, drop_order=1),
    Column("used", drop_order=4),
    Column("source", min_width=16, drop_order=3),
)
NAMES = ("day", "month", "conversation", "cost_per_hour", "requests_per_minute")
ACCOUNT_NAMES = ("day", "month")


def _read_name(text: str) -> str:
    """Return the name of a budget as in the settings file. Hyphens are accepted too."""
    name = text.replace("-", "_")
    if name not in NAMES:
        raise click.BadParameter(f"{text!r} is not a budget. The budgets are {', '.join(NAMES)}.")
    return name


def _complete_name(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in NAMES if name.startswith(incomplete)]


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and what is used of it. The fields are those of `budget --json`.

    `limit` is US dollars, or a number of requests for `requests_per_minute`. What is spent of a conversation
    and of the requests per minute is not shown.
    """

    budget: str
    limit: Decimal
    spent: Decimal | None = None
    reserved: Decimal | None = None
    left: Decimal | None = None
    share: float | None = None
    source: str


def _check_account_name(_context: click.Context, _option: click.Parameter, account: str | None) -> str | None:
    if account == "":
        raise click.BadParameter("The name is empty. Pass the name of an account or its base URL.")
    return account


_json_option = json_option("Output JSON Lines, one object per budget.")
_account_option = click.option(
    "--account",
    metavar="NAME",
    callback=_check_account_name,
    help="The budget of one account: its name or base URL.",
)
_name_argument = click.argument("name", type=_read_name, shell_complete=_complete_name, metavar="NAME")


@click.group(invoke_without_command=True)
@_json_option
@click.pass_context
def budget(ctx: click.Context, as_json: bool) -> None:
    """Show what is spent of each budget, in US dollars.

    A request that could exceed a budget is not sent. Days and months begin at local midnight.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, as_json=as_json)


@budget.command()
@_json_option
def show(as_json: bool) -> None:
    """Show what is spent of each budget, as `tollbridge budget` does."""
    rows = budget_rows(load_settings())
    if as_json:
        for row in rows:
            amounts = decimal_fields(row, "limit", "spent", "reserved", "left")
            click.echo(to_json({**msgspec.to_builtins(row), **amounts}))
    elif rows:
        show_table(COLUMNS, [_cells(row) for row in rows], [_style(row) for row in rows])
    else:
        hint = "No budget is set. Set one with `tollbridge budget set day 5`, for 5 US dollars a day."
        click.echo(wrap_line(hint, sys.stderr), err=True)


# A negative amount is not an option: _read_amount reports it.
@budget.command("set", context_settings={"ignore_unknown_options": True})
@_name_argument
@click.argument("amount")
@_account_option
def set_budget(name: str, amount: str, account: str | None) -> None:
    """Set the budget NAME in US dollars (requests_per_minute: a number of requests).

    NAME is day, month, conversation, cost_per_hour or requests_per_minute. The budget is written to the
    settings file. Running editors and servers use it with their next request.
    """
    full_name = _find_setting(name, account)
    _edit(read_file(config_file()), full_name, _read_amount(name, amount))
    click.echo(f"Set {full_name} to {amount} in {config_file()}.")
    _report_override(full_name, load_settings())
    if account is not None and not _is_known_account(account):
        click.echo(
            f"Note: No account has the name or base URL {account!r}, so this budget limits nothing yet. "
            "Run `tollbridge config` to see the accounts.",
            err=True,
        )


@budget.command()
@_name_argument
@_account_option
def remove(name: str, account: str | None) -> int:
    """Remove the budget NAME from the settings file."""
    full_name = _find_setting(name, account)
    file = read_file(config_file())
    if full_name not in file:
        click.echo(f"{config_file()} has no {full_name}.", err=True)
        loaded = load_settings()
        if full_name in loaded.origins:
            click.echo(f"It is set by {loaded.origin(full_name)}. Remove it there.", err=True)
        return 1
    _edit(file, full_name, None)
    click.echo(f"Removed {full_name} from {config_file()}.")
    loaded = load_settings()
    if not _report_override(full_name, loaded) and loaded.settings.budgets.is_set:
        click.echo("Other budgets are still set; `tollbridge budget` shows them.", err=True)
    return 0


def _find_setting(name: str, account: str | None) -> str:
    """Return the name of the setting of a budget, of one account if it is given."""
    if account is not None and name not in ACCOUNT_NAMES:
        raise click.UsageError(f"An account can have the budgets {' and '.join(ACCOUNT_NAMES)}, not {name}.")
    return f"budgets.{name}" if account is None else f"budgets.accounts.{quote_name(account)}.{name}"


def _read_amount(name: str, text: str) -> str:
    """Return an amount as it is written in TOML."""
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    is_count = name == "requests_per_minute"
    if amount.is_finite() and amount > _HIGHEST_AMOUNT:
        raise click.UsageError(f"The amount {text!r} is too high. Expected at most {_HIGHEST_AMOUNT:,}.")
    if not amount.is_finite() or amount < 0 or (is_count and amount % 1):
        expected = "a whole number" if is_count else "an amount in US dollars, for example 2.50"
        raise click.UsageError(f"Invalid amount {text!r}. Expected {expected}.")
    return str(int(amount)) if is_count else f"{amount:f}"


def _is_known_account(account: str) -> bool:
    """Return whether requests can have this account: it is in the settings, or there is usage of it."""
    is_listed = any(account in (each.name, each.base_url) for each in all_accounts(load_settings()))
    return is_listed or use_engine(lambda engine: engine.has_usage(account))


def budget_rows(loaded: LoadedSettings) -> list[BudgetRow]:
    """Return a row for each budget of the settings."""
    settings = loaded.settings.budgets
    rows = [
        BudgetRow(
            budget=status.budget.name,
            limit=status.budget.limit,
            spent=status.spent,
            reserved=status.reserved,
            left=status.left,
            share=status.share,
            # The name of an account's budget begins with the account.
            source=loaded.origin(_find_setting(status.budget.name.rpartition(".")[2], status.budget.account)),
        )
        for status in use_engine(lambda engine: engine.budgets(), loaded.settings)
    ]
    if settings.conversation is not None:
        source = loaded.origin("budgets.conversation")
        rows.append(BudgetRow(budget="conversation", limit=settings.conversation, source=source))
    if settings.is_set:
        limit = settings.requests_per_minute
        limit = DEFAULT_REQUESTS_PER_MINUTE if limit is None else limit
        source = loaded.origin("budgets.requests_per_minute")
        rows.append(BudgetRow(budget="requests_per_minute", limit=Decimal(limit), source=source))
    return rows


def _cells(row: BudgetRow) -> tuple[str, ...]:
    if row.budget == "requests_per_minute":
        return (row.budget, f"{row.limit:,}" if row.limit else "none", "", "", "", "", row.source)
    amounts = (row.spent, row.reserved, row.left)
    return (
        "each conversation" if row.budget == "conversation" else row.budget,
        format_dollars(row.limit),
        *("" if amount is None else format_dollars(amount) for amount in amounts),
        "" if row.share is None else _bar(row.share),
        row.source,
    )


def _style(row: BudgetRow) -> str:
    if row.share is None or row.share < WARNING_SHARE:
        return ""
    return "red" if row.share >= 1 else "yellow"


def _bar(share: float) -> str:
    # A bar is empty only if its percentage is 0.
    cells = min(_BAR_WIDTH, round(share * _BAR_WIDTH) or int(round(100 * share) > 0))
    return f"{'█' * cells}{'░' * (_BAR_WIDTH - cells)} {100 * share:.0f} %"


def _edit(file: SettingsFile, name: str, value: str | None) -> None:
    """Set or remove a budget in the settings file. Nothing is written if a setting of the file is invalid."""
    changed = file.with_value(name, value)
    validate_settings(changed.table, file.locate)
    changed.write()


def _report_override(name: str, loaded: LoadedSettings) -> bool:
    """Say so if another source takes precedence over the settings file, and return whether one does."""
    overridden = name in loaded.origins and loaded.rank(name) != "file"
    if overridden:
        click.echo(f"Note: {loaded.origin(name)} takes precedence over the settings file.", err=True)
    return overridden
