"""Run one turn in the terminal: show its events as they arrive, and keep its answer."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from typing import assert_never
from urllib.parse import urlsplit

from tollbridge.answer import Answer
from tollbridge.cli.connection import Session
from tollbridge.cli.screen import Screen
from tollbridge.clients.observer import Observer
from tollbridge.history.answer import apply_corrections
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    incomplete_reason,
)
from tollbridge.types.messages import ChatRequest

# Shorter waits before a retry, in seconds, are not shown.
LONG_WAIT = 1.0
# Seconds between two drawings of a spinner.
TICK = 0.1
# How many changes are shown after one answer.
MOST_CHANGES = 5


class TurnRunner:
    """Runs one turn. What arrived is available however the turn ended: completed, failed or stopped.

    Args:
        screen: Where the answer is shown; `None` to show nothing.
        stream: Whether the answer is shown as it arrives, or when it is complete.
    """

    def __init__(self, session: Session, screen: Screen | None = None, *, stream: bool = True) -> None:
        self.answer = Answer()
        self._session = session
        self._screen = screen
        self._stream = stream

    async def run(self, request: ChatRequest, *, over_budget: bool = False) -> None:
        """Run the turn to its end. A failure is kept in the answer and not raised."""
        observers = () if self._screen is None else (_Notices(self._screen, request.model),)
        animation = asyncio.create_task(_animate(self._screen)) if self._screen is not None else None
        try:
            async with self._session.engine.turn(
                request, self._session.account, observers=observers, over_budget=over_budget
            ) as turn:
                self.answer = turn.result
                async for event in turn:
                    if self._screen is not None and self._stream:
                        show(event, self._screen)
        except BridgeError as error:
            self.answer.end("failed", error)  # also if it failed before the turn began
        finally:
            if animation is not None:
                animation.cancel()
            if self._screen is not None:
                if not self._stream:
                    for event in apply_corrections(self.answer.events):
                        show(event, self._screen)
                self._screen.end()


async def _animate(screen: Screen) -> None:
    """Redraw what changes on a terminal until the task is cancelled."""
    if not screen.animated:
        return
    if screen.renders_markdown:
        # Loaded while the answer is awaited, because loading takes a tenth of a second.
        await asyncio.to_thread(importlib.import_module, "rich.markdown")
    while True:
        screen.tick()
        await asyncio.sleep(TICK)


class _Notices(Observer):
    """Shows why nothing happens for a while, and ends the line before others write to the terminal."""

    def __init__(self, screen: Screen, model: str) -> None:
        self._screen = screen
        self._model = model

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002
        self._screen.wait_for(f"Waiting for {urlsplit(url).netloc}")

    def response(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self._screen.wait_for(f"Waiting for {self._model}")

    def retry(self, error: BridgeError, seconds: float) -> None:
        self._screen.wait_for("Waiting for the next attempt")
        if seconds < LONG_WAIT:
            return
        problem = f"The gateway returned HTTP {error.status}" if error.status else error.message.rstrip(".")
        self._screen.note(f"[{problem}; retrying in {seconds:.0f} s]")

    async def end(self, answer: Answer) -> None:  # noqa: ARG002
        self._screen.end()


def show_changes(changes: Sequence[str], screen: Screen, where_all: str = "") -> None:
    """Show what was changed in the request: the first changes, one per line, and where to find all."""
    for change in changes[:MOST_CHANGES]:
        screen.note(f"[{change}]")
    if len(changes) > MOST_CHANGES:
        screen.note(f"[… and {len(changes) - MOST_CHANGES} more changes{where_all}]")


def show(event: Event, screen: Screen) -> None:
    """Show one event of an answer."""
    match event:
        case TextDelta():
            if event.replaces:
                screen.note(f"[the last {event.replaces:,} characters were retracted; the model restarted]")
            screen.text(event.text)
        case ReasoningDelta():
            screen.thinking(event.text)
        case ToolCall():
            screen.call(event.name, event.input, event.offered)
        case File():
            size = f"{len(event.data):,} bytes" if event.data is not None else event.url
            screen.note(f"[{event.mime}, {size}]")
        case Source():
            names = (event.title, event.url, event.filename)
            screen.note(f"[source: {', '.join(name for name in names if name) or event.id}]")
        case Finished():
            if (reason := incomplete_reason(event)) is not None:
                screen.note(f"[{reason[0].lower()}{reason[1:].rstrip('.')}]")
        case Corrected() | ReasoningEnded() | Data() | Failed():
            pass
        case _:
            assert_never(event)
