"""Answers as editor parts: adapters of response streams, and the provider facade.

`OpenResponsesStreamAdapter` converts OpenResponses streams, `AiSdkStreamAdapter` (also available under its
first name, `VSCodeStreamAdapter`) converts AI SDK streams. `ChatModelProvider` runs turns.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, get_args

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.history.answer import AnswerEvents
from tollbridge.protocols.detect import GuardedStreamDecoder, ParsedStreamDecoder
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.errors import BridgeError, BrokenCall, most_severe
from tollbridge.types.events import Event, Failed
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.models import Model
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


AiSdkStreamAdapter = VSCodeStreamAdapter


# --- The provider ---


class ChatModelProvider:
    """Models, answers and token counts of one gateway, in the three calls an editor makes.

        async with OpenResponsesClient(base_url, key) as client, ChatModelProvider(client) as provider:
            for model in await provider.provide_models(): ...
            result = await provider.provide_response(model.id, messages, print)

    The client, the estimator and the tracker that are passed in are not closed.

    Args:
        client: Sends all requests.
        estimator: Counts tokens and learns from reported usage; by default one that is kept in memory.
        tracker: Where usage is recorded; by default it is kept in memory.
        lessons: What is known about the server. `CompatMemory(find_quirks)` uses the profile that
            `tollbridge doctor` wrote.
    """

    def __init__(
        self,
        client: OpenResponsesClient,
        estimator: HybridTokenEstimator | None = None,
        tracker: UsageTracker | None = None,
        *,
        lessons: CompatMemory | None = None,
    ) -> None:
        # Imported here: the adapters do not need the engine, and loading it takes time and memory.
        from tollbridge.config.schema import Settings
        from tollbridge.engine import Engine

        self._engine = Engine.open(
            Settings(context_management=False, count_at_gateway=False),
            client=client,
            compat=lessons or CompatMemory(),
            estimator=estimator or HybridTokenEstimator(),
            usage=tracker or UsageTracker(),
            persistent=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait until everything learned is stored."""
        await self._engine.aclose()

    @property
    def usage(self) -> UsageTracker:
        """The usage of every request."""
        return self._engine.usage

    async def provide_models(self) -> list[Model]:
        """Return the chat models of the gateway."""
        return await self._engine.models(refresh=True)

    async def provide_response(
        self,
        model: str,
        messages: Sequence[Message],
        report: Callable[[Part], object],
        tools: Sequence[Tool] = (),
        **options: object,
    ) -> Answer:
        """Report the parts of the answer as they arrive, and return the result.

        Args:
            model: The id of the model.
            messages: The conversation.
            report: Called with each part.
            tools: The tools that the model may call.
            **options: Further fields of `ChatRequest`.

        Raises:
            BridgeError: The turn failed. It is raised after all parts before it were reported.
        """
        fields = {"model": model, "messages": tuple(messages), "tools": tuple(tools), **options}
        request = msgspec.structs.replace(ChatRequest(model=model, messages=()), **fields)

        async with self._engine.turn(request) as turn:
            async for parts in turn.parts():
                for part in parts:
                    report(part)
        return turn.result

    def provide_token_count(self, model: str, text: str | Message) -> int:
        """Return the tokens of a text, or of a message's content."""
        return self._engine.count(model, [text])[0]
