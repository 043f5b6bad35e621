"""Run one turn in the terminal: show its events as they arrive, and keep them and their timing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import assert_never

from tollbridge.cli.connection import Session
from tollbridge.cli.screen import Screen, Timing
from tollbridge.clients.base import Observer
from tollbridge.history.answer import PartsBuilder, apply_corrections, join_parts
from tollbridge.turn import TurnResult
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
from tollbridge.types.messages import ChatRequest, Message, Origin, Part, Role, TextPart, ThinkingPart
from tollbridge.types.usage import Usage

# Shorter waits before a retry, in seconds, are not shown.
LONG_WAIT = 1.0
# How many changes are shown after one answer.
MOST_CHANGES = 5


class Conversation:
    """The messages of a chat. A question and its answer are added together, so the history stays valid."""

    def __init__(self, model: str, system: str | None = None, effort: str | None = None) -> None:
        self.model = model
        self._id = uuid.uuid4().hex
        self._effort = effort
        self._system = () if system is None else (Message(Role.SYSTEM, (TextPart(system),)),)
        self._messages: list[Message] = []

    def request(self, question: Message) -> ChatRequest:
        """Return the request for the next question."""
        messages = (*self._system, *self._messages, question)
        return ChatRequest(
            model=self.model, messages=messages, reasoning_effort=self._effort, conversation=self._id
        )

    def add(self, question: Message, answer: Iterable[Part]) -> bool:
        """Add a question and its answer, unless the answer has nothing but reasoning.

        Returns:
            Whether they were added.
        """
        parts = join_parts(answer)
        answered = any(not isinstance(part, ThinkingPart) for part in parts)
        if answered:
            self._messages += [question, Message(Role.ASSISTANT, parts)]
        return answered

    def clear(self) -> None:
        """Start a new conversation."""
        self._id = uuid.uuid4().hex
        self._messages.clear()


class TurnRunner:
    """Runs one turn. What arrived is available however the turn ended: completed, failed or stopped."""

    def __init__(
        self, session: Session, screen: Screen | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.events: list[Event] = []
        self.error: BridgeError | None = None
        self._session = session
        self._screen = screen
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._end: float | None = None
        self._result: TurnResult | None = None
        self._origin: Origin | None = None

    async def run(self, request: ChatRequest, *, over_budget: bool = False) -> None:
        """Run the turn to its end. A failure is kept in `error` and not raised."""
        observers = () if self._screen is None else (_Notices(self._screen),)
        try:
            async with self._session.engine.turn(
                request, self._session.account, observers=observers, over_budget=over_budget
            ) as turn:
                self._origin = turn.origin
                async for batch in turn.batches():
                    for event in batch:
                        self._add(event)
                self._result = turn.result
        except BridgeError as error:
            self.error = error
            self.events.append(Failed(error))
        finally:
            self._end = self._clock()
            if self._screen is not None:
                self._screen.end()

    @property
    def parts(self) -> list[Part]:
        """The answer as parts of a message, with its corrections applied."""
        return PartsBuilder(self._origin).take(apply_corrections(self.events))

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed in the request of a completed turn, as sentences."""
        return self._result.changes if self._result else ()

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of thing was changed."""
        return self._result.counts if self._result else {}

    @property
    def timing(self) -> Timing:
        end = self._clock() if self._end is None else self._end
        first = None if self._first is None else self._first - self._start
        return Timing(first_token=first, total=end - self._start)

    @property
    def usage(self) -> Usage | None:
        return next((event.usage for event in self.events if isinstance(event, Finished)), None)

    @property
    def cost(self) -> Decimal | None:
        """What the turn cost with all its attempts, in US dollars; `None` if that is not known."""
        records = self._session.engine.usage.records
        if self._result is None or not records:
            return None
        charges = [row.charge for row in records if row.turn == records[-1].turn]
        known = [charge for charge in charges if charge is not None]
        return sum(known, Decimal()) if known else None

    def _add(self, event: Event) -> None:
        self.events.append(event)
        if self._first is None and isinstance(event, (TextDelta, ReasoningDelta, ToolCall, File)):
            self._first = self._clock()
        if self._screen is not None:
            show(event, self._screen)


class _Notices(Observer):
    """Shows why nothing happens for a while, and ends the line before others write to the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def retry(self, error: BridgeError, seconds: float) -> None:
        if seconds < LONG_WAIT:
            return
        problem = f"The gateway returned HTTP {error.status}" if error.status else error.message.rstrip(".")
        self._screen.note(f"[{problem}; retrying in {seconds:.0f} s]")

    async def end(self, result: object | None, error: BaseException | None) -> None:  # noqa: ARG002
        self._screen.end()


def show_changes(changes: Iterable[str], screen: Screen, where_all: str = "") -> None:
    """Show what was changed in the request: the first changes, one per line, and where to find all."""
    changes = list(changes)
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
