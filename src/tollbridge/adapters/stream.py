"""What all stream adapters do: take a stream in whatever form it comes, report parts, keep the result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, get_args

import msgspec

from tollbridge.adapters.answer import AnswerParts
from tollbridge.core.errors import BridgeError, BrokenCall, gravest
from tollbridge.core.events import Event, Failed, Finished, FinishReason
from tollbridge.core.messages import Part
from tollbridge.core.texts import mended
from tollbridge.core.usage import Usage


class Typed(Protocol):
    """An event as typed clients (`openai`) yield it."""

    def model_dump(self) -> dict[str, Any]: ...


# A stream of bytes as they come from a socket or of their text, of parsed chunks, typed or not, or of events
# of ours.
Streamed = (
    AsyncIterable[bytes]
    | AsyncIterable[str]
    | AsyncIterable[Mapping[str, Any]]
    | AsyncIterable[Typed]
    | AsyncIterable[Event]
)


class Progress(Protocol):
    """Takes parts one by one, as an editor's progress object does."""

    def report(self, part: Part, /) -> None: ...


class StreamUsage(msgspec.Struct, frozen=True):
    """What a stream came to. `usage` is what is billed, `context` what now fills the model's window."""

    usage: Usage | None = None
    context: Usage | None = None
    finish_reason: FinishReason | None = None
    response_id: str | None = None
    model: str | None = None

    @property
    def input_tokens(self) -> int | None:
        return self.usage.input_tokens if self.usage else None

    @property
    def output_tokens(self) -> int | None:
        return self.usage.output_tokens if self.usage else None


class TurnDecoder(Protocol):
    """A decoder that also takes chunks somebody else has parsed."""

    @property
    def over(self) -> bool: ...

    def feed(self, chunk: bytes) -> list[Event]: ...

    def take(self, event: object) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class StreamAdapter:
    """One adapter reads one stream after the other; each begins anew."""

    def __init__(self, decoder: Callable[[], TurnDecoder], *, reasoning: bool) -> None:
        self._decoder = decoder
        self._reasoning = reasoning
        self._result = StreamUsage()

    async def process_stream(
        self, stream: Streamed, progress: Progress | Callable[[Part], object]
    ) -> StreamUsage:
        """Report every part as it comes. A failure is raised when all parts before it are reported."""
        report = progress if callable(progress) else progress.report
        async with aclosing(self.adapt_stream(stream)) as parts:
            async for part in parts:
                report(part)
        return self._result

    async def adapt_stream(self, stream: Streamed) -> AsyncGenerator[Part]:
        """The parts of a stream. A failure is raised after the parts that came before it."""
        self._result = StreamUsage()
        decoder = self._decoder()
        answer = AnswerParts(reasoning=self._reasoning)
        failures: list[BridgeError] = []
        ours = False  # whether the stream is of events already
        try:
            async for chunk in stream:
                ours = isinstance(chunk, _EVENTS)
                for part in answer.take(self._seen(_read(decoder, chunk), failures)):
                    yield part
                if decoder.over:  # the gateway may hold the connection; nothing more will come
                    break
        except BrokenCall as error:  # a client's own stream tells it so
            failures.append(error)
        if not ours:
            for part in answer.take(self._seen(decoder.close(), failures)):
                yield part
        parts, failure = answer.close(gravest(failures))
        for part in parts:
            yield part
        if failure is not None:
            raise failure

    def get_usage(self) -> StreamUsage:
        """The result of the last stream, as far as it has come."""
        return self._result

    def _seen(self, events: list[Event], failures: list[BridgeError]) -> list[Event]:
        for event in events:
            if isinstance(event, Failed):
                failures.append(event.error)
            if isinstance(event, Finished):
                self._result = StreamUsage(
                    event.usage,
                    event.context or event.usage,
                    event.reason,
                    event.response_id,
                    event.model,
                )
        return events


_EVENTS = get_args(Event)


def _read(decoder: TurnDecoder, chunk: bytes | str | Mapping[str, Any] | Typed | Event) -> list[Event]:
    if isinstance(chunk, str):
        chunk = mended(chunk).encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return decoder.feed(bytes(chunk))
    if isinstance(chunk, _EVENTS):
        return [chunk]
    dump = getattr(chunk, "model_dump", None)  # an event as a typed client yields it
    return decoder.take(dump() if callable(dump) else chunk)
