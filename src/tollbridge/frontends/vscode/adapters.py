"""AI SDK streams to editor parts."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, get_args

import msgspec

from tollbridge.history.answer import AnswerParts
from tollbridge.protocols.ai_sdk.state import StreamState
from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, UiDecoder
from tollbridge.protocols.detect import detect_by_framing
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.types.errors import BridgeError, BrokenCall, most_severe
from tollbridge.types.events import Event, Failed, Finished, FinishReason
from tollbridge.types.messages import Part
from tollbridge.types.text import replace_surrogates
from tollbridge.types.usage import Usage

# SECTION What all stream adapters do: take a stream in whatever form it comes, report parts, keep the result.


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
        parts, failure = answer.close(most_severe(failures))
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
        chunk = replace_surrogates(chunk).encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return decoder.feed(bytes(chunk))
    if isinstance(chunk, _EVENTS):
        return [chunk]
    dump = getattr(chunk, "model_dump", None)  # an event as a typed client yields it
    return decoder.take(dump() if callable(dump) else chunk)


# SECTION OpenResponses streams to editor parts.


class OpenResponsesStreamAdapter(StreamAdapter):
    """Turns the events of an OpenResponses stream into parts: text, thinking, tool calls, data.

    The stream may be the bytes of the body as any HTTP library gives them, the events as parsed JSON, or what
    `OpenResponsesClient.stream` yields.
    """

    def __init__(self, enable_reasoning: bool = True) -> None:
        super().__init__(StreamDecoder, reasoning=enable_reasoning)


# SECTION AI SDK streams to editor parts.

Chunk = Mapping[str, Any]

# A model's own parts need no line here: a turn sees by itself that a model speaks.
_DECODERS: dict[str, type[DataDecoder | FullDecoder | UiDecoder]] = {
    "ai-sdk-data": DataDecoder,
    "ai-sdk-full": FullDecoder,
}


class VSCodeStreamAdapter(StreamAdapter):
    """Turns the chunks of an AI SDK stream, of any version from 4 to 7, into parts.

    The stream may be the chunks as parsed JSON (`fullStream`, UI message chunks, a model's own parts), the
    bytes of a body in any of the SDK's protocols, or events. Chunks of an unknown type emit nothing:
    `on_unknown_chunk` gets them, and `logger` a line at debug level.
    """

    def __init__(
        self,
        enable_reasoning: bool = True,
        on_unknown_chunk: Callable[[Chunk], object] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(self._new_decoder, reasoning=enable_reasoning)
        self._on_unknown_chunk = on_unknown_chunk
        self._logger = logger or logging.getLogger(__name__)

    def _new_decoder(self) -> _AnyDecoder:
        return _AnyDecoder(StreamState(on_unknown=self._unknown))

    def _unknown(self, chunk: Chunk) -> None:
        # Its type alone: the rest of it may be anybody's words.
        self._logger.debug("ignored a chunk of the unknown type %r", chunk.get("type"))
        if self._on_unknown_chunk is not None:
            self._on_unknown_chunk(chunk)


class _AnyDecoder:
    """Chunks are taken as they are; bytes show by their first line which protocol they are in."""

    def __init__(self, turn: StreamState) -> None:
        self._turn = turn
        self._start = b""
        self._decoder: DataDecoder | FullDecoder | UiDecoder | None = None

    @property
    def over(self) -> bool:
        return self._decoder is not None and self._decoder.over

    def take(self, chunk: object) -> list[Event]:
        start, self._start = self._start, b""  # nothing that made sense, or it would be chosen by now
        decoder = self._chosen("ai-sdk-full")
        return (decoder.feed(start + b"\n") if start else []) + decoder.take(chunk)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        protocol = detect_by_framing(self._start, complete=False)
        return [] if protocol is None else self._chosen(protocol).feed(self._start)

    def close(self) -> list[Event]:
        if self._decoder is None:
            protocol = detect_by_framing(self._start, complete=True) or "ai-sdk-full"
            return self._chosen(protocol).feed(self._start) + self._chosen(protocol).close()
        return self._decoder.close()

    def _chosen(self, protocol: str) -> DataDecoder | FullDecoder | UiDecoder:
        if self._decoder is None:
            self._decoder = _DECODERS.get(protocol, UiDecoder)(self._turn)
        return self._decoder
