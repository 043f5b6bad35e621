"""One answer, listened to from the first byte to the last: shown as it comes, kept, and timed."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from typing import assert_never

from tollbridge.cli.connection import Connection, ModelFacts
from tollbridge.cli.screen import Screen, Timing
from tollbridge.clients.base import Observer
from tollbridge.config.paths import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.recorder.recorder import Recorder
from tollbridge.storage.database import PATIENCE
from tollbridge.storage.tracker import UsageTracker
from tollbridge.turn import Bridge, StreamClient, TokenAccounting, TurnResult
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
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from tollbridge.types.usage import Usage

# SECTION What has been said in a chat, and the next request made of it.


class Conversation:
    """Grows by a question and its answer at a time, so that it is always one a gateway accepts."""

    def __init__(self, model: str, system: str | None = None, effort: str | None = None) -> None:
        self.model = model
        self._effort = effort
        self._preface = () if system is None else (Message(Role.SYSTEM, (TextPart(system),)),)
        self._said: list[Message] = []

    def request(self, question: Message) -> ChatRequest:
        messages = (*self._preface, *self._said, question)
        return ChatRequest(model=self.model, messages=messages, reasoning_effort=self._effort)

    def add(self, question: Message, answer: Iterable[Part]) -> bool:
        """Remember a question and what was said to it, and whether anything was; thoughts alone are not."""
        parts = join_parts(answer)
        answered = any(not isinstance(part, ThinkingPart) for part in parts)
        if answered:
            self._said += [question, Message(Role.ASSISTANT, parts)]
        return answered

    def forget(self) -> None:
        self._said.clear()


def join_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of a streamed answer with its pieces put together. Files a model made are not sent back."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        match part, last:
            case TextPart(text), TextPart(before):
                whole[-1] = TextPart(before + text)
            case ThinkingPart(), ThinkingPart(before, id_, None) if part.id == id_:
                whole[-1] = ThinkingPart(before + part.text, id_, part.metadata)
            case ((TextPart() | ThinkingPart() | ToolCallPart()), _):
                whole.append(part)
            case DataPart(), _:
                pass
    return tuple(whole)


# SECTION One answer, listened to from the first byte to the last: shown as it comes, kept, and timed.

# Seconds from which on a person wonders why nothing happens.
LONG_WAIT = 1.0
# Seconds that learning may wait for another program which writes into the store: a person waits for it.
LEARNING = 1.0
# Changes that are told after one answer.
MOST_CHANGES = 5


@asynccontextmanager
async def open_accounting() -> AsyncIterator[TokenAccounting]:
    """What answers teach is kept: when everything has been shown, the program waits for it."""
    with closing(HybridTokenEstimator(database_file(), patience=LEARNING)) as estimator:
        toll = TokenAccounting(estimator, behind=True)
        try:
            yield toll
        finally:
            await toll.aclose(PATIENCE)


class TurnRunner:
    """Stands between the bridge and the gateway for one answer, and hears every event on its way.

    What was heard is there however the answer ended: finished, failed or stopped by the person.
    """

    def __init__(
        self,
        connection: Connection,
        screen: Screen | None = None,
        toll: TokenAccounting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.events: list[Event] = []
        self.parts: list[Part] = []
        self.error: BridgeError | None = None
        self._connection = connection
        # What stands behind anyone's chat endpoint is nobody's to learn.
        self._toll = None if connection.way == "ui-stream" else toll
        self._client = (
            connection.client if screen is None else connection.client.observed_by(_Patience(screen))
        )
        self._gateway: StreamClient = self._client
        self._screen = screen
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._ended: float | None = None
        self._turn: TurnResult | None = None

    async def listen(self, request: ChatRequest, tracker: UsageTracker | None = None) -> None:
        """Until the answer ends. A failure is kept, and is not raised."""
        request = self._connection.prepared(request)
        recorder = self._connection.recorder
        try:
            known = self._connection.known(request.model)
            if recorder is None:
                self._turn = await self._answer(request, known, self.parts.extend, tracker)
            else:
                await self._recorded(request, known, recorder, tracker)
        except BridgeError as error:
            self.error = error
            self.events.append(Failed(error))
        finally:
            self._ended = self._clock()
            if self._screen is not None:
                self._screen.end()

    async def _answer(
        self,
        request: ChatRequest,
        known: ModelFacts,
        report: Callable[[list[Part]], object],
        tracker: UsageTracker | None,
    ) -> TurnResult:
        connection = self._connection
        bridge = Bridge(self, tracker, self._toll, account=connection.payer, lessons=connection.lessons)
        return await bridge.answer(
            request, report, window=known.window, abilities=known.abilities, learned=known.learned
        )

    async def _recorded(
        self, request: ChatRequest, known: ModelFacts, recorder: Recorder, tracker: UsageTracker | None
    ) -> None:
        async with recorder.tape(request, learned=known.learned, abilities=known.abilities) as tape:
            self._gateway = self._client.observed_by(tape)
            self._turn = turn = await self._answer(request, known, tape.heard(self.parts.extend), tracker)
            tape.finished(turn.finish_reason, turn.usage)
            if self._screen is not None:
                self._screen.end()  # the tape may have something to say

    @property
    def base_url(self) -> str:
        return self._gateway.base_url

    async def batches(
        self, request: ChatRequest, *, api_key: str | None = None
    ) -> AsyncGenerator[list[Event]]:
        async with aclosing(self._gateway.batches(request, api_key=api_key)) as batches:
            async for batch in batches:
                for event in batch:
                    self._hear(event)
                yield batch

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed on the way of an answer that came, in words; `counts` has how often, by kind."""
        return self._turn.changes if self._turn else ()

    @property
    def counts(self) -> Mapping[str, int]:
        return self._turn.counts if self._turn else {}

    @property
    def timing(self) -> Timing:
        end = self._clock() if self._ended is None else self._ended
        first = None if self._first is None else self._first - self._began
        return Timing(first_token=first, total=end - self._began)

    @property
    def usage(self) -> Usage | None:
        return next((event.usage for event in self.events if isinstance(event, Finished)), None)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        if self._first is None and isinstance(event, (TextDelta, ReasoningDelta, ToolCall, File)):
            self._first = self._clock()
        if self._screen is not None:
            show(event, self._screen)


class _Patience(Observer):
    """Tells the person why nothing happens for a while."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def retry(self, error: BridgeError, seconds: float) -> None:
        if seconds < LONG_WAIT:
            return
        said = f"The gateway answered {error.status}" if error.status else error.message.rstrip(".")
        self._screen.note(f"[{said}; trying again in {seconds:.0f} s]")


def show_changes(changes: Iterable[str], screen: Screen, where_all: str = "") -> None:
    """What was sent otherwise than it was written: the first of it, one a line, and where all of it is."""
    told = list(changes)
    for change in told[:MOST_CHANGES]:
        screen.note(f"[{change}]")
    if len(told) > MOST_CHANGES:
        screen.note(f"[and {len(told) - MOST_CHANGES} changes more{where_all}]")


def show(event: Event, screen: Screen) -> None:
    match event:
        case TextDelta():
            if event.replaces:
                screen.note(f"[the last {event.replaces:,} characters are void: the backend began again]")
            screen.text(event.text)
        case ReasoningDelta():
            screen.thinking(event.text)
        case ToolCall():
            screen.call(event.name, event.input, event.offered)
        case File():
            size = f"{len(event.data):,} bytes" if event.data is not None else event.url
            screen.note(f"[{event.mime}, {size}]")
        case Source():
            named = (event.title, event.url, event.filename)
            screen.note(f"[source: {', '.join(name for name in named if name) or event.id}]")
        case Finished():
            if (why := incomplete_reason(event)) is not None:
                screen.note(f"[{why[0].lower()}{why[1:].rstrip('.')}]")
        case Corrected() | ReasoningEnded() | Data() | Failed():
            pass
        case _:
            assert_never(event)
