"""Adapters from response streams to editor parts.

`OpenResponsesStreamAdapter` converts OpenResponses streams, `VSCodeStreamAdapter` converts AI SDK streams.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, get_args

from tollbridge.answer import Answer
from tollbridge.history.answer import AnswerEvents
from tollbridge.protocols.detect import GuardedStreamDecoder, ParsedStreamDecoder
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.types.errors import BridgeError, BrokenCall, most_severe
from tollbridge.types.events import Event, Failed
from tollbridge.types.messages import Part
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:
    from tollbridge.protocols.ai_sdk.detect import AiSdkDecoder


class TypedEvent(Protocol):
    """An event of a typed client such as `openai`."""

    def model_dump(self) -> dict[str, Any]: ...


# A stream of bytes, of text, of parsed or typed chunks, or of our events.
Stream: TypeAlias = (
    AsyncIterable[bytes]
    | AsyncIterable[str]
    | AsyncIterable[Mapping[str, Any]]
    | AsyncIterable[TypedEvent]
    | AsyncIterable[Event]
)


class Progress(Protocol):
    """Receives parts one at a time, like the progress object of an editor."""

    def report(self, part: Part, /) -> None: ...


class StreamAdapter:
    """Base class of the stream adapters. An adapter converts any number of streams, one after the other.

    Args:
        new_decoder: Returns a decoder for one stream.
        reasoning: Whether to report reasoning as thinking parts.
    """

    def __init__(self, new_decoder: Callable[[], ParsedStreamDecoder], *, reasoning: bool) -> None:
        self._create_decoder = new_decoder
        self._reasoning = reasoning
        self._result = Answer(reasoning=reasoning)

    async def process_stream(self, stream: Stream, progress: Progress | Callable[[Part], object]) -> Answer:
        """Report the parts of a stream as they arrive.

        Args:
            stream: Bytes, text, parsed or typed chunks, or events.
            progress: A callable that receives each part, or an object with a `report` method.

        Returns:
            The answer.

        Raises:
            BridgeError: The stream failed. All parts before the failure have been reported.
        """
        report = progress if callable(progress) else progress.report
        async with aclosing(self.adapt_stream(stream)) as parts:
            async for part in parts:
                report(part)
        return self._result

    async def adapt_stream(self, stream: Stream) -> AsyncGenerator[Part]:
        """Yield the parts of a stream.

        Args:
            stream: Bytes, text, parsed or typed chunks, or events.

        Raises:
            BridgeError: The stream failed. All parts before the failure have been yielded.
        """
        answer = self._result = Answer(reasoning=self._reasoning)
        events = AnswerEvents()
        decoder = GuardedStreamDecoder(self._create_decoder())
        failures: list[BridgeError] = []
        is_decoded = False  # whether the stream consists of events

        def take(batch: list[Event]) -> list[Part]:
            failures.extend(event.error for event in batch if isinstance(event, Failed))
            answer.add(events.take(batch))
            return answer.take_parts()

        try:
            async for chunk in stream:
                is_decoded = isinstance(chunk, _EVENTS)
                for part in take(_decode(decoder, chunk)):
                    yield part
                if decoder.is_finished:  # the connection can stay open, but no more events follow
                    break
        except BrokenCall as error:  # raised by the stream of one of our clients
            failures.append(error)
        if not is_decoded:
            for part in take(decoder.close()):
                yield part
        remaining, failure = events.close(most_severe(failures))
        for part in take(remaining):
            yield part
        answer.end("completed" if failure is None else "failed", failure)
        if failure is not None:
            raise failure

    def get_usage(self) -> Answer:
        """Return the answer of the last stream, as far as it was read: its usage, finish reason and text."""
        return self._result


_EVENTS = get_args(Event)


def _decode(
    decoder: ParsedStreamDecoder, chunk: bytes | str | Mapping[str, Any] | TypedEvent | Event
) -> list[Event]:
    if isinstance(chunk, str):
        chunk = replace_surrogates(chunk).encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return decoder.feed(bytes(chunk))
    if isinstance(chunk, _EVENTS):
        return [chunk]
    dump = getattr(chunk, "model_dump", None)  # see TypedEvent
    return decoder.feed_parsed(dump() if callable(dump) else chunk)


class OpenResponsesStreamAdapter(StreamAdapter):
    """Converts an OpenResponses stream to parts: text, thinking, tool calls, data.

    The stream can consist of the bytes of a response body, of events as parsed JSON, or of the events that
    `OpenResponsesClient.stream` yields.

    Args:
        enable_reasoning: Whether to report reasoning as thinking parts.
    """

    def __init__(self, enable_reasoning: bool = True) -> None:
        super().__init__(StreamDecoder, reasoning=enable_reasoning)


Chunk = Mapping[str, Any]


class VSCodeStreamAdapter(StreamAdapter):
    """Converts an AI SDK stream of any version from 4 to 7 to parts.

    The stream can consist of chunks as parsed JSON (`fullStream`, UI message chunks, the chunks of a language
    model), of the bytes of a body in any of the SDK's protocols, or of events. Chunks of an unknown type
    produce no parts.

    Args:
        enable_reasoning: Whether to report reasoning as thinking parts.
        on_unknown_chunk: Called with each chunk of an unknown type.
        logger: Logs the types of unknown chunks at debug level.
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

    def _new_decoder(self) -> AiSdkDecoder:
        # Imported here: programs that use another adapter do not need it.
        from tollbridge.protocols.ai_sdk.detect import AiSdkDecoder

        return AiSdkDecoder(self._report_unknown)

    def _report_unknown(self, chunk: Chunk) -> None:
        # Only the type is logged: the other fields can contain text of the conversation.
        self._logger.debug("ignored a chunk of the unknown type %r", chunk.get("type"))
        if self._on_unknown_chunk is not None:
            self._on_unknown_chunk(chunk)
