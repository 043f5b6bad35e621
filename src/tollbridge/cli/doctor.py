"""`tollbridge doctor`: test a server and save its compatibility profile."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from tollbridge.cli.connection import connect
from tollbridge.cli.options import ConnectionOptions, connection_options, json_option, model_option
from tollbridge.cli.output import to_json
from tollbridge.cli.terminal import format_count, one_line, supports_styles, wrap_line
from tollbridge.compat.profiles import profile_file, save_profile
from tollbridge.doctor.examination import STEPS, TYPICAL_REQUESTS, Examination, Step
from tollbridge.doctor.session import Finding, Verdict
from tollbridge.protocols import all_protocols
from tollbridge.storage.store import StoreUnusable
from tollbridge.storage.tracker import BillingAccount

if TYPE_CHECKING:
    from rich.status import Status

_MARKS: dict[Verdict, tuple[str, str]] = {
    "well": ("✓", "green"),
    "amiss": ("✗", "red"),
    "unproven": ("?", "yellow"),
    "unknown": ("–", "dim"),
}


@contextlib.contextmanager
def open_checklist(*, quiet: bool) -> Iterator[Checklist]:
    """Show a checklist: on a terminal with a spinner. With `quiet`, only the spinner is shown."""
    out = sys.stderr if quiet else sys.stdout
    if not supports_styles(out):
        yield Checklist(out, quiet)
        return
    # Imported here: loading it takes longer than most commands run.
    from rich.console import Console

    with Console(file=out, highlight=False).status("") as status:
        yield Checklist(out, quiet, status)


class Checklist:
    """Shows the steps of an examination, one per line. Skipped steps share one line."""

    def __init__(self, out: TextIO, quiet: bool, status: Status | None = None) -> None:
        self._out = out
        self._quiet = quiet
        self._status = status
        self._has_skipped = False

    def show(self, step: Step) -> None:
        if step.skipped:
            if self._has_skipped:
                return
            self._has_skipped = True
            step = msgspec.structs.replace(step, title="All other steps")
        if step.finding is None:
            if self._status is not None:
                self._status.update(f"{step.title}…")
        elif not self._quiet:
            self._print(step.title, step.finding)

    def _print(self, title: str, finding: Finding) -> None:
        mark, colour = _MARKS[finding.verdict]
        sentence, remedy = one_line(finding.sentence), one_line(finding.remedy)
        if self._status is None:
            line = f"{mark} {title}: {sentence} {remedy}".rstrip()
            click.echo(wrap_line(line, self._out), file=self._out)
            return
        from rich.table import Table
        from rich.text import Text

        text = Text(sentence)
        if remedy:
            text.append(f" {remedy}", "dim")
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=1)
        table.add_column(width=max(len(title) for title, _ in STEPS.values()))
        table.add_column(overflow="fold")
        table.add_row(Text(mark, colour), Text(title, "bold"), text)
        self._status.console.print(table)


@click.command()
@connection_options
@model_option(
    "Model to test with. Default: the `model` setting, else the cheapest model with tools.",
    envvar="TOLLBRIDGE_MODEL",
)
@json_option("Output one JSON object instead of a checklist.")
def doctor(where: ConnectionOptions, model: str | None, as_json: bool) -> int:
    """Test a server and save a compatibility profile.

    Exits with 0 if chat works, 1 otherwise.
    """
    return asyncio.run(_doctor(where, model, as_json))


async def _doctor(where: ConnectionOptions, model: str | None, as_json: bool) -> int:
    async with connect(where) as session, session.engine.open_client(session.account) as client:
        if not client.protocol.is_examined:
            titles = ", ".join(protocol.title for protocol in all_protocols() if protocol.is_examined)
            raise click.UsageError(f"doctor supports only {titles} servers. Remove --backend.")
        notice = f"Testing {client.base_url} with about {TYPICAL_REQUESTS} small requests"
        notice += " (may incur a small cost)."
        click.echo(wrap_line(notice, sys.stderr), err=True)
        with open_checklist(quiet=as_json) as checklist:
            examination = Examination(
                client,
                model or session.model or session.settings.model,
                tracker=session.engine.usage,
                account=BillingAccount(session.account.name, client.base_url),
            )
            async for step in examination.run():
                checklist.show(step)
        # A server that stops with this command needs no profile: the next one has another address.
        save = examination.can_chat and session.lasting
        path = _save_profile(examination, client.base_url) if save else None
        if path is not None:
            # What was learned before is not needed any more: the profile is newer and measured.
            models = ("", examination.model)
            with contextlib.suppress(StoreUnusable):
                await session.engine.forget_lessons(
                    lambda lesson: lesson.base_url == client.base_url and lesson.model in models
                )
        if as_json:
            click.echo(to_json(_as_json(examination, client.base_url, path)))
        else:
            click.echo(wrap_line(_conclusion(examination, path), sys.stdout))
    return 0 if examination.can_chat else 1


def _save_profile(examination: Examination, base_url: str) -> Path:
    server = examination.server
    comments = [
        f"Written by `tollbridge doctor` on {datetime.date.today().isoformat()}, with {examination.model}.",
        "You can edit this file; running doctor again overwrites it.",
        *([f"Recognised: {server.name}."] if server else []),
        *(
            f"{step.title}: {one_line(step.finding.sentence)}"
            for step in examination.steps
            if step.finding is not None and step.finding.verdict in ("amiss", "unproven")
        ),
    ]
    model = examination.model or ""
    try:
        return save_profile(base_url, model, examination.quirks, comments)
    except OSError as error:
        where = error.filename or profile_file(base_url)  # a full disk names no file
        raise click.ClickException(
            f"Cannot write the profile: {error.strerror or error} ({where}). "
            "Set TOLLBRIDGE_DATA_DIR to a writable directory."
        ) from error


def _conclusion(examination: Examination, path: Path | None) -> str:
    requests = format_count(examination.requests, "request")
    if not examination.can_chat:
        return f"Chat does not work ({requests}). No profile saved."
    server = f" with {examination.server.name}" if examination.server else ""
    profile = "No profile saved: this temporary server stops when the command exits."
    if path is not None:
        profile = f"Profile saved to {path}"
    return f"Chat works{server} ({requests}). {profile}"


def _as_json(examination: Examination, base_url: str, path: Path | None) -> dict[str, object]:
    server = examination.server
    return {
        "base_url": base_url,
        "model": examination.model,
        "server": server.name if server else None,
        "can_chat": examination.can_chat,
        "requests": examination.requests,
        "steps": [
            {
                "name": step.name,
                "verdict": step.finding.verdict,
                "sentence": step.finding.sentence,
                "remedy": step.finding.remedy or None,
                "seconds": round(step.seconds, 3),
            }
            for step in examination.steps
            if step.finding is not None
        ],
        "quirks": msgspec.to_builtins(msgspec.structs.asdict(examination.quirks), order="deterministic"),
        "path": None if path is None else str(path),
    }
