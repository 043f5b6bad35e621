"""`tollbridge quirks`: show what is known about servers, and forget what was learned."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
import msgspec

from tollbridge.catalog.models import Catalog
from tollbridge.cli.engine import use_engine
from tollbridge.cli.options import Command, WholeNumber, json_option
from tollbridge.cli.output import Column, format_cell, print_json_lines, show_table
from tollbridge.cli.terminal import bold, dim, format_count, one_line, wrap_line
from tollbridge.compat.known_servers import recognize_server
from tollbridge.compat.lessons import describe_lesson, describe_quirks
from tollbridge.compat.profiles import list_profiles
from tollbridge.config.accounts import all_accounts
from tollbridge.config.loading import load_settings
from tollbridge.transport.files import catalog_folder
from tollbridge.types.quirks import Evidence, Lesson

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
COLUMNS = (
    Column("no.", right=True),
    Column("quirk", min_width=20),
    Column("source"),
    Column("holds for", min_width=16),
    Column("evidence", min_width=24, drop_order=1),
    Column("age", right=True, drop_order=2),
    Column("expires", drop_order=3),
)


class QuirkRow(msgspec.Struct, frozen=True, kw_only=True):
    """One quirk of a server. The fields are those of `quirks --json`.

    `number`, `evidence` and the times (seconds since the epoch) are those of learned quirks. `model` is null
    if the quirk holds for all models. `conversation` is a digest, and null if it holds for all conversations.
    """

    gateway: str
    source: str
    quirk: str
    model: str | None = None
    conversation: str | None = None
    number: int | None = None
    evidence: Evidence | None = None
    confirmations: int | None = None
    learned_at: float | None = None
    expires_at: float | None = None


def _list_options(command: Command) -> Command:
    """Add the options of the list, which `quirks` and `quirks list` share."""
    for option in (
        json_option("Output JSON Lines, one object per quirk."),
        click.option("--model", metavar="NAME", help="Show only quirks that hold for this model."),
        click.option("--gateway", metavar="URL", help="Show only the quirks of this base URL."),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_list_options
@click.pass_context
def quirks(ctx: click.Context, gateway: str | None, model: str | None, as_json: bool) -> None:
    """Show what gateways and models do not accept.

    Quirks come from profiles that are included ("shipped"), from `tollbridge doctor`, and from rejected
    requests ("learned"). Learned quirks expire: then the request is tried unchanged again.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_quirks, gateway=gateway, model=model, as_json=as_json)


@quirks.command("list")
@_list_options
def list_quirks(gateway: str | None, model: str | None, as_json: bool) -> None:
    """Show what gateways and models do not accept, as `tollbridge quirks` does."""
    lessons = use_engine(lambda engine: engine.lessons())
    rows = [
        row
        for row in [*_profile_rows(), *map(_lesson_row, lessons)]
        if gateway in (None, row.gateway, f"{row.gateway}/") and (model is None or row.model in (None, model))
    ]
    if as_json:
        print_json_lines(rows)
    elif rows:
        _show(rows)
    else:
        place = f" of {one_line(gateway)}" if gateway else ""
        place += f" for the model {one_line(model)}" if model else ""
        click.echo(f"No quirks{place} are known.", err=True)


@quirks.command()
@click.argument("numbers", metavar="[NUMBER]...", type=WholeNumber(1), nargs=-1)
@click.option("--gateway", metavar="URL", help="Forget what was learned about this base URL.")
@click.option("--model", metavar="NAME", help="Forget what was learned about this model.")
@click.option("--all", "everything", is_flag=True, help="Forget everything that was learned.")
def forget(numbers: tuple[int, ...], gateway: str | None, model: str | None, everything: bool) -> int:
    """Forget quirks that were learned from rejected requests.

    NUMBER is from the list of `tollbridge quirks`. Requests are sent unchanged again, also by editors that
    are running.
    """
    if not (numbers or gateway or model or everything):
        raise click.UsageError("Nothing to forget. Pass a NUMBER, --gateway, --model or --all.")
    if everything and (numbers or gateway or model):
        raise click.UsageError("--all forgets everything. Remove it, or the NUMBER, --gateway and --model.")

    def selects(lesson: Lesson) -> bool:
        return (
            (not numbers or lesson.number in numbers)
            and (gateway is None or lesson.base_url == gateway.rstrip("/"))
            and (model is None or lesson.model == model)
        )

    forgotten = use_engine(lambda engine: engine.forget_lessons(selects))
    for lesson in forgotten:
        click.echo(f"Forgotten: {one_line(describe_lesson(lesson))} ({one_line(lesson.base_url)})")
    if not forgotten:
        click.echo("No learned quirk matches. Run `tollbridge quirks` to list them.", err=True)
    return 0 if forgotten else 1


def _profile_rows() -> Iterator[QuirkRow]:
    """Yield the quirks of the profiles: of the configured gateways, and of those that doctor has tested."""
    catalog = Catalog(catalog_folder())
    profiles = list_profiles()
    accounts = {account.base_url: account.name for account in all_accounts(load_settings())}
    names = {**dict.fromkeys(profiles, ""), **accounts}
    for url, name in names.items():
        server = recognize_server(url, owners=catalog.owners(url, name))
        if server:
            for quirk in describe_quirks(server.quirks):
                yield QuirkRow(gateway=url, source=f"shipped ({server.name})", quirk=quirk)
        if (profile := profiles.get(url)) is None:
            continue
        for quirk in describe_quirks(profile.quirks):
            yield QuirkRow(gateway=url, source="doctor", quirk=quirk)
        for model in profile.models:
            for quirk in describe_quirks(profile.quirks_for(model), base=profile.quirks):
                yield QuirkRow(gateway=url, source="doctor", quirk=quirk, model=model)


def _lesson_row(lesson: Lesson) -> QuirkRow:
    return QuirkRow(
        gateway=lesson.base_url,
        source="learned",
        quirk=describe_lesson(lesson),
        model=lesson.model or None,
        conversation=lesson.conversation or None,
        number=lesson.number,
        evidence=lesson.evidence,
        confirmations=lesson.confirmations,
        learned_at=lesson.learned_at,
        expires_at=lesson.expires_at,
    )


def _show(rows: list[QuirkRow]) -> None:
    now = time.time()
    for gateway in dict.fromkeys(row.gateway for row in rows):
        click.echo(bold(one_line(gateway), sys.stdout))
        show_table(COLUMNS, [_cells(row, now) for row in rows if row.gateway == gateway])
    if any(row.number is not None for row in rows):
        hint = "`tollbridge quirks forget NUMBER` removes a learned quirk."
        click.echo(dim(wrap_line(hint, sys.stdout), sys.stdout))


def _cells(row: QuirkRow, now: float) -> tuple[str, ...]:
    scope = row.model or "all models"
    age = expiry = ""
    if row.learned_at is not None and row.expires_at is not None:
        age = _duration(now - row.learned_at)
        expiry = f"in {_duration(row.expires_at - now)}" if row.expires_at > now else "next request"
    return (
        format_cell(row.number, ""),
        row.quirk,
        row.source,
        f"{scope}, one conversation" if row.conversation else scope,
        "" if row.evidence is None else _describe_evidence(row.evidence),
        age,
        expiry,
    )


def _describe_evidence(evidence: Evidence) -> str:
    details = " ".join(str(value) for value in (evidence.status, evidence.code, evidence.param) if value)
    return f"{details}: {evidence.message}" if details else evidence.message


def _duration(seconds: float) -> str:
    """Return a duration in its largest unit: `3 days`, `2 hours`, `1 minute`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return format_count(round(seconds / size), unit)
    return "seconds"
