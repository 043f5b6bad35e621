"""Choose the decoder for a response: by protocol name, by the headers, or by the first bytes.

The first bytes distinguish the AI SDK protocols by their framing (`code:JSON` lines, `data:` lines or JSON
lines) and then by the type of the first known chunk, and Chat Completions by the `choices` of the first
chunk; a Messages stream starts with `message_start`. Everything else is decoded as OpenResponses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from tollbridge.protocols.errors import ErrorResponseDecoder, error_from
from tollbridge.protocols.sse import Frame, SseDecoder
from tollbridge.protocols.stream import UNDECODABLE, log_defect
from tollbridge.types.errors import BridgeError, RequestError, StreamError
from tollbridge.types.events import Billing, Event, Failed
from tollbridge.types.text import read_json

# A stream whose protocol is still unknown after this many bytes is decoded as OpenResponses.
START_LIMIT = 64 * 1024
# A shorter start is examined after every read.
_SHORT_START = 2 * 1024

# Response headers that name one of the AI SDK protocols.
HEADERS: dict[str, str] = {
    "x-vercel-ai-data-stream": "ai-sdk-data",
    "x-vercel-ai-ui-message-stream": "ai-sdk-ui",
}

# Only a language model sends these chunks; the SDK does not forward them.
_MODEL_CHUNKS = frozenset({"response-metadata", "stream-start"})

_OPENRESPONSES_PREFIX = "response."
# The first event of every stream of the Messages API.
_MESSAGES_START = "message_start"
# Chunk types that more than one protocol uses.
_SHARED_CHUNKS = frozenset({"ping"})

_CODE_LINE = re.compile(rb'[0-9a-z]:[\["{\dtfn-]')
# A byte order mark, white space, comments, and all server-sent event lines except `data`.
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]+|:[^\r\n]*[\r\n]|(?:event|id|retry):[^\r\n]*[\r\n])*")
_LINE = re.compile(rb"([^\r\n]*)([\r\n]?)")


def detect_by_headers(headers: Mapping[str, str]) -> str | None:
    """Return the protocol that the response headers name, or `None`."""
    names = {name.lower() for name in headers}
    return next((protocol for name, protocol in HEADERS.items() if name in names), None)


def detect_by_framing(start: bytes, *, complete: bool) -> str | None:
    """Return the AI SDK protocol that matches the first line of a stream.

    `ai-sdk-ui` also stands for `ai-sdk-model`: both have the same framing.

    Args:
        start: The first bytes of the stream.
        complete: Whether `start` is the whole stream.

    Returns:
        The protocol, `""` if no AI SDK protocol matches, or `None` if more bytes are needed.
    """
    line, end = _first_line(start)
    if not end and not complete:
        return None
    if _CODE_LINE.match(line):
        return "ai-sdk-data"
    if line.startswith(b"data:"):
        return "ai-sdk-ui"
    return "ai-sdk-full" if line.startswith((b"{", b"[{")) else ""


def detect_by_start(start: bytes, *, complete: bool) -> str | None:
    """Return the protocol of a stream, detected by its framing and by the first chunk of a known type.

    Chunks of unknown types are skipped, because a new version can start a stream with a new type.

    Args:
        start: The first bytes of the stream.
        complete: Whether to decide now, even if more bytes could follow.

    Returns:
        The protocol, `""` if only OpenResponses can match, or `None` if more bytes are needed.
    """
    framing = detect_by_framing(start, complete=complete)
    if framing not in ("ai-sdk-full", "ai-sdk-ui"):
        return framing
    frames = _frames(start, complete) if framing == "ai-sdk-ui" else _lines(start, complete)
    for name, text in frames:
        if not text.strip():
            continue
        try:
            value = read_json(text)
        except ValueError:
            return ""
        for chunk in value if isinstance(value, list) else [value]:
            protocol = _detect_by_chunk(chunk, framing, name)
            if protocol is not None:
                return protocol
    return "" if complete else None


def _first_line(start: bytes) -> tuple[bytes, bytes]:
    line = _LINE.match(_skip_blank(start))
    return (line[1], line[2]) if line else (b"", b"")  # the pattern always matches


def _skip_blank(start: bytes) -> bytes:
    """Return the bytes from the first line with content."""
    blank = _BLANK.match(start)
    return start[blank.end() if blank else 0 :]


def _frames(start: bytes, complete: bool) -> list[Frame]:
    sse = SseDecoder()
    return sse.feed(start) + (sse.close() if complete else [])


def _lines(start: bytes, complete: bool) -> list[Frame]:
    *lines, last = _skip_blank(start).split(b"\n")
    return [(b"", line) for line in ([*lines, last] if complete else lines)]


def _detect_by_chunk(chunk: object, protocol: str, name: bytes) -> str | None:
    """Return the protocol that a chunk belongs to, or `None` if its type does not decide.

    Args:
        chunk: The parsed chunk.
        protocol: The protocol detected by the framing.
        name: The event name of the frame.
    """
    from tollbridge.protocols.ai_sdk.chunks import is_known

    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if isinstance(chunk, dict) and isinstance(chunk.get("choices"), list):
        return "chat-completions"
    if not isinstance(chunk, dict) or not isinstance(kind, str) or kind.startswith(_OPENRESPONSES_PREFIX):
        return ""
    if kind == _MESSAGES_START:
        return "anthropic-messages"
    if kind in _SHARED_CHUNKS or not is_known(kind):
        return None
    if protocol == "ai-sdk-full":
        return protocol
    if kind == "error" and "errorText" not in chunk and (name or "sequence_number" in chunk):
        return ""  # other protocols have an event of the same name
    return "ai-sdk-model" if kind in _MODEL_CHUNKS else protocol


class Decoder(Protocol):
    """Decodes the body of one response to events.

    The events do not depend on where the bytes are split. No method raises: a failure is the last event.
    """

    @property
    def is_finished(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""

    @property
    def unknown(self) -> Mapping[str, int]:
        """The number of events or chunks of unknown types, by type."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes complete."""

    def close(self) -> list[Event]:
        """Return the last events. Call it once, after the last byte."""


class ParsedStreamDecoder(Decoder, Protocol):
    """A decoder that also accepts events or chunks that are already parsed."""

    def feed_parsed(self, event: object) -> list[Event]:
        """Return the events for one parsed JSON value."""


class GuardedDecoder:
    """A decoder whose methods do not raise, whatever the decoder in it does.

    An exception ends the response: the events that the decoder still has are returned, then a `Failed`. The
    decoders of this package also skip single events that they cannot decode, so that this is the last resort.

    Args:
        decoder: The decoder, which is also an attribute.
        error: Returns the error of a response that could not be decoded.
    """

    def __init__(self, decoder: Decoder, error: Callable[[], BridgeError] | None = None) -> None:
        self.decoder = decoder
        self._error = error or partial(StreamError, UNDECODABLE)
        self._failed = False

    @property
    def is_finished(self) -> bool:
        return self._failed or self.decoder.is_finished

    @property
    def unknown(self) -> Mapping[str, int]:
        return self.decoder.unknown

    @property
    def billing(self) -> Billing | None:
        """What the gateway has said about the bill so far. Decoders of errors do not know."""
        return getattr(self.decoder, "billing", None)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._failed:
            return []
        try:
            return self.decoder.feed(chunk)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            return self._fail(error)

    def close(self) -> list[Event]:
        if self._failed:
            return []
        try:
            return self.decoder.close()
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            return self._fail(error, closed=True)

    def _fail(self, error: Exception, *, closed: bool = False) -> list[Event]:
        self._failed = True
        log_defect("A response of the gateway", error)
        events: list[Event] = []
        if not closed:
            with suppress(Exception):  # the first exception was logged
                events = self.decoder.close()
        return [*(event for event in events if not isinstance(event, Failed)), Failed(self._error())]


class GuardedStreamDecoder(GuardedDecoder):
    """A guarded decoder that also accepts events or chunks that are already parsed."""

    def __init__(self, decoder: ParsedStreamDecoder) -> None:
        super().__init__(decoder)
        self._parsed_decoder = decoder

    def feed_parsed(self, event: object) -> list[Event]:
        if self._failed:
            return []
        try:
            return self._parsed_decoder.feed_parsed(event)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            return self._fail(error)


def _import_decoder(module: str, name: str = "StreamDecoder") -> Callable[..., Decoder]:
    """Return a function that creates a decoder. Its module is imported then: most programs need only one."""

    def create(**options: Any) -> Decoder:
        decoder: Decoder = getattr(import_module(f"tollbridge.protocols.{module}.stream"), name)(**options)
        return decoder

    return create


DECODERS: dict[str, Callable[..., Decoder]] = {
    "openresponses": _import_decoder("openresponses"),
    "chat-completions": _import_decoder("chat_completions"),
    "ai-sdk-full": _import_decoder("ai_sdk", "FullDecoder"),
    "ai-sdk-ui": _import_decoder("ai_sdk", "UiDecoder"),
    "ai-sdk-data": _import_decoder("ai_sdk", "DataDecoder"),
    "ai-sdk-model": _import_decoder("ai_sdk", "ModelDecoder"),
    "anthropic-messages": _import_decoder("anthropic_messages"),
}

# With the protocol "auto" the body can be a recording of a request other than a chat.
_AUTO_DECODERS: dict[str, Callable[..., Decoder]] = {
    **DECODERS,
    "openresponses": partial(DECODERS["openresponses"], other_endpoints=True),
}


def decoder_for(
    protocol: str = "auto", status: int | None = None, headers: Mapping[str, str] | None = None
) -> GuardedDecoder:
    """Return a decoder for one response, with a guard.

    Args:
        protocol: A key of `DECODERS`, or `auto` to detect the protocol from the headers and the first bytes.
        status: The HTTP status, if known. From 400 on, the body is decoded as an error.
        headers: The response headers, if known.

    Raises:
        RequestError: The protocol is unknown.
    """
    if protocol != "auto" and protocol not in DECODERS:
        raise RequestError(f'Unknown protocol "{protocol}". Supported: auto, {", ".join(DECODERS)}.')
    if status is not None and status >= 400:
        decoder = ErrorResponseDecoder(status, headers or {})
        return GuardedDecoder(decoder, partial(error_from, {}, status=status))
    if protocol == "auto":
        detected = detect_by_headers(headers or {})
        return GuardedDecoder(_AUTO_DECODERS[detected]() if detected else DetectingDecoder())
    return GuardedDecoder(DECODERS[protocol]())


class DetectingDecoder:
    """Buffers the first bytes until the protocol is detected, then passes all bytes to its decoder."""

    def __init__(self) -> None:
        self._start = bytearray()
        self._next_size = 0  # of the start, when it is examined again
        self._decoder: Decoder | None = None

    @property
    def is_finished(self) -> bool:
        return self._decoder is not None and self._decoder.is_finished

    @property
    def billing(self) -> Billing | None:
        return getattr(self._decoder, "billing", None)

    @property
    def unknown(self) -> Mapping[str, int]:
        return {} if self._decoder is None else self._decoder.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._decoder is not None:
            return self._decoder.feed(chunk)
        self._start += chunk
        size = len(self._start)
        if size < self._next_size and size <= START_LIMIT:
            return []
        # Every read of a normal start is examined; a long one only when it has grown by a quarter, because
        # all of it is examined each time.
        self._next_size = 0 if size < _SHORT_START else size + size // 4
        return self._detect(complete=size > START_LIMIT)

    def close(self) -> list[Event]:
        events = self._detect(complete=True) if self._decoder is None else []
        return events + self._decoder.close() if self._decoder is not None else events

    def _detect(self, *, complete: bool) -> list[Event]:
        protocol = detect_by_start(bytes(self._start), complete=complete)
        if protocol is None:
            return []
        self._decoder = _AUTO_DECODERS[protocol or "openresponses"]()
        start = bytes(self._start)
        self._start.clear()
        return self._decoder.feed(start)
