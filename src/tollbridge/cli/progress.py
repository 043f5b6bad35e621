"""How far the download of the model is, for the person who waits for it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WORDS = "Fetching a small model"


class FetchBar:
    """A bar on a terminal, one line elsewhere, nothing where nothing is fetched."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._told = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        if not self._told:
            self._told = True
            if sys.stderr.isatty():
                self._show(total)
            else:
                click.echo(f"{_WORDS} ({total / 1e6:.0f} MB, once)…", err=True)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal to others; nothing more will be fetched."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self, total: int) -> None:
        # Not at the top: it takes longer to load than most commands to run, and most fetch nothing.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(_WORDS, total=total)
        self._bar.start()
