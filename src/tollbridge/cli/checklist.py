"""A checklist: on a terminal a spinner on what is under way and a line for what is done, else plain lines."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

import click

from tollbridge.cli.terminal import folded, has_style, one_line
from tollbridge.doctor import STEPS, Step, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_MARKS: dict[Verdict, tuple[str, str]] = {
    "well": ("✓", "green"),
    "amiss": ("✗", "red"),
    "unknown": ("–", "yellow"),
}


class Checklist:
    """Shows steps as they are told. With `quiet` only the spinner is shown, on standard error."""

    def __init__(self, *, quiet: bool = False, out: TextIO | None = None) -> None:
        self._quiet = quiet
        self._out = out or (sys.stderr if quiet else sys.stdout)
        self._console: Console | None = None
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if has_style(self._out):
            # Not at the top: it takes longer to load than most commands to run.
            from rich.console import Console

            self._console = Console(file=self._out, highlight=False)
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, step: Step) -> None:
        if step.finding is None:
            if self._status is not None:
                self._status.update(f"{step.title}…")
        elif self._console is not None and not self._quiet:
            self._styled(step)
        elif not self._quiet:
            click.echo(folded(plain(step), self._out), file=self._out)

    def _styled(self, step: Step) -> None:
        from rich.table import Table
        from rich.text import Text

        if self._console is None or step.finding is None:
            return
        mark, colour = _MARKS[step.finding.verdict]
        told = Text(one_line(step.finding.sentence))
        if step.finding.remedy:
            told.append(f" {one_line(step.finding.remedy)}", "dim")
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_column(width=1)
        line.add_column(width=max(len(title) for title, _ in STEPS.values()))
        line.add_column(overflow="fold")
        line.add_row(Text(mark, colour), Text(step.title, "bold"), told)
        self._console.print(line)


def plain(step: Step) -> str:
    if step.finding is None:
        return f"{step.title}…"
    mark, _ = _MARKS[step.finding.verdict]
    told = f"{mark} {step.title}: {one_line(step.finding.sentence)}"
    return f"{told} {one_line(step.finding.remedy)}".rstrip()
