"""Answers as editor parts: adapters of response streams, and the provider facade.

`OpenResponsesStreamAdapter` converts OpenResponses streams, `AiSdkStreamAdapter` (also available under its
first name, `VSCodeStreamAdapter`) converts AI SDK streams. `ChatModelProvider` runs turns; `Bridge` is its
predecessor of the first release.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, get_args

import msgspec

from tollbridge.clients.base import Observer
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.history.answer import AnswerParts
from tollbridge.protocols.detect import GuardedStreamDecoder, ParsedStreamDecoder, detect_by_framing
from tollbridge.protocols.openresponses.stream import StreamDecoder
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.token_accounting import TokenAccounting
from tollbridge.turn import StreamClient, Turn, TurnResult
from tollbridge.types.errors import BridgeError, BrokenCall, most_severe
from tollbridge.types.events import Event, Failed, Finished, FinishReason, Usage
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.models import Capabilities, Model
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:  # at run time `_AiSdkDecoder` imports them
    from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, UiDecoder


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


class StreamUsage(msgspec.Struct, frozen=True):
    """The result of a stream.

    Attributes:
        usage: The tokens that are billed.
        context: The tokens that fill the context window of the model now.
        finish_reason: Why the model stopped.
        response_id: The id of the response.
        model: The model that answered.
    """

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


class StreamAdapter:
    """Base class of the stream adapters. An adapter converts any number of streams, one after the other.

    Args:
        new_decoder: Returns a decoder for one stream.
        reasoning: Whether to report reasoning as thinking parts.
    """

    def __init__(self, new_decoder: Callable[[], ParsedStreamDecoder], *, reasoning: bool) -> None:
        self._create_decoder = new_decoder
        self._reasoning = reasoning
        self._result = StreamUsage()

    async def process_stream(
        self, stream: Stream, progress: Progress | Callable[[Part], object]
    ) -> StreamUsage:
        """Report the parts of a stream as they arrive.

        Args:
            stream: Bytes, text, parsed or typed chunks, or events.
            progress: A callable that receives each part, or an object with a `report` method.

        Returns:
            The result of the stream.

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
        self._result = StreamUsage()
        decoder = GuardedStreamDecoder(self._create_decoder())
        answer = AnswerParts(reasoning=self._reasoning)
        failures: list[BridgeError] = []
        is_decoded = False  # whether the stream consists of events
        try:
            async for chunk in stream:
                is_decoded = isinstance(chunk, _EVENTS)
                for part in answer.take(self._collect(_decode(decoder, chunk), failures)):
                    yield part
                if decoder.is_finished:  # the connection can stay open, but no more events follow
                    break
        except BrokenCall as error:  # raised by the stream of one of our clients
            failures.append(error)
        if not is_decoded:
            for part in answer.take(self._collect(decoder.close(), failures)):
                yield part
        parts, failure = answer.close(most_severe(failures))
        for part in parts:
            yield part
        if failure is not None:
            raise failure

    def get_usage(self) -> StreamUsage:
        """Return the result of the last stream, as far as it was read."""
        return self._result

    def _collect(self, events: list[Event], failures: list[BridgeError]) -> list[Event]:
        """Store the result and the failures among the events, and return the events."""
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

    def _new_decoder(self) -> _AiSdkDecoder:
        return _AiSdkDecoder(self._report_unknown)

    def _report_unknown(self, chunk: Chunk) -> None:
        # Only the type is logged: the other fields can contain text of the conversation.
        self._logger.debug("ignored a chunk of the unknown type %r", chunk.get("type"))
        if self._on_unknown_chunk is not None:
            self._on_unknown_chunk(chunk)


AiSdkStreamAdapter = VSCodeStreamAdapter


class _AiSdkDecoder:
    """Decodes parsed chunks, or bytes, whose protocol is detected by their first line."""

    def __init__(self, on_unknown: Callable[[Chunk], None]) -> None:
        from tollbridge.protocols.ai_sdk.state import StreamState

        self._state = StreamState(on_unknown=on_unknown)
        self._start = b""
        self._decoder: DataDecoder | FullDecoder | UiDecoder | None = None

    @property
    def is_finished(self) -> bool:
        return self._decoder is not None and self._decoder.is_finished

    @property
    def unknown(self) -> Mapping[str, int]:
        return self._state.unknown

    def feed_parsed(self, event: object) -> list[Event]:
        start, self._start = self._start, b""  # bytes whose protocol was not detected
        decoder = self._choose("ai-sdk-full")
        return (decoder.feed(start + b"\n") if start else []) + decoder.feed_parsed(event)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        protocol = detect_by_framing(self._start, complete=False)
        return [] if protocol is None else self._choose(protocol).feed(self._start)

    def close(self) -> list[Event]:
        if self._decoder is None:
            protocol = detect_by_framing(self._start, complete=True) or "ai-sdk-full"
            return self._choose(protocol).feed(self._start) + self._choose(protocol).close()
        return self._decoder.close()

    def _choose(self, protocol: str) -> DataDecoder | FullDecoder | UiDecoder:
        if self._decoder is None:
            from tollbridge.protocols.ai_sdk.stream import DataDecoder, FullDecoder, UiDecoder

            # All other protocols use UiDecoder, which also detects the chunks of a language model.
            decoders: dict[str, type[DataDecoder | FullDecoder | UiDecoder]] = {
                "ai-sdk-data": DataDecoder,
                "ai-sdk-full": FullDecoder,
            }
            self._decoder = decoders.get(protocol, UiDecoder)(self._state)
        return self._decoder


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
        # Imported here: `Bridge` does not need the engine, and loading it takes time and memory.
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
    ) -> TurnResult:
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
        assert turn.result is not None  # noqa: S101 - a turn without a result has raised
        return turn.result

    def provide_token_count(self, model: str, text: str | Message) -> int:
        """Return the tokens of a text, or of a message's content."""
        return self._engine.count(model, [text])[0]


class Bridge:
    """Run turns with one client and report their answers as parts. `Engine` is the successor of this class.

    Args:
        gateway: Sends the requests.
        tracker: Where usage is recorded; by default it is kept in memory.
        toll: Estimates prompts and learns from usage; by default neither is done.
        account: The account that usage is recorded for.
        lessons: What is known about servers; by default nothing is.
        observers: Called with everything that happens in a turn.
    """

    def __init__(
        self,
        gateway: StreamClient,
        tracker: UsageTracker | None = None,
        toll: TokenAccounting | None = None,
        *,
        account: BillingAccount | None = None,
        lessons: CompatMemory | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._client = gateway
        self._account = account
        self._tokens = toll
        self._compat = lessons or CompatMemory()
        self._observers = observers
        self.tracker = tracker or UsageTracker()

    async def answer(
        self,
        request: ChatRequest,
        report: Callable[[list[Part]], object],
        *,
        api_key: str | None = None,
        window: int | None = None,
        abilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
    ) -> TurnResult:
        """Report the parts of the answer, one list per network read, and return the result.

        Args:
            request: What to send.
            report: Called with the parts of each network read.
            api_key: The key for this request; by default the client's own.
            window: The most input tokens the model accepts, if known.
            abilities: What the model can do, if known.
            learned: What is known about the model at this server, if it was looked up already.

        Raises:
            BridgeError: The turn failed. It is raised after all parts before it were reported.
        """
        async with Turn(
            request,
            self._client,
            compat=self._compat,
            usage=self.tracker,
            tokens=self._tokens,
            account=self._account,
            api_key=api_key,
            window=window,
            capabilities=abilities,
            learned=learned,
            observers=self._observers,
        ) as turn:
            async for parts in turn.parts():
                report(parts)
        assert turn.result is not None  # noqa: S101 - a turn without a result has raised
        return turn.result
