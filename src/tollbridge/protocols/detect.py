"""Choose the decoder for a response: by the name of its form, by the headers, or by the first bytes.

The first bytes decide by their framing (`data:` lines, JSON lines, or lines that one protocol alone has), and
then by the first chunk that a protocol recognizes. Everything else is decoded as the default protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol as TypingProtocol

from tollbridge.protocols import DEFAULT_BACKEND, all_protocols, find_by_stream, find_protocol
from tollbridge.protocols.errors import ErrorResponseDecoder, error_from
from tollbridge.protocols.protocol import Protocol
from tollbridge.protocols.sse import Frame, SseDecoder
from tollbridge.protocols.stream import UNDECODABLE, log_defect
from tollbridge.types.errors import BridgeError, RequestError, StreamError
from tollbridge.types.events import Billing, Event, Failed
from tollbridge.types.text import read_json

# A stream whose form is still unknown after this many bytes is decoded as the default protocol.
START_LIMIT = 64 * 1024
# A shorter start is examined after every read.
_SHORT_START = 2 * 1024

# A byte order mark, white space, comments, and all server-sent event lines except `data`.
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]+|:[^\r\n]*[\r\n]|(?:event|id|retry):[^\r\n]*[\r\n])*")
_LINE = re.compile(rb"([^\r\n]*)([\r\n]?)")


def detect_by_headers(headers: Mapping[str, str]) -> str | None:
    """Return the form of a response that its headers name, or `None`."""
    names = {name.lower() for name in headers}
    forms = (item for protocol in all_protocols() for item in protocol.response_headers.items())
    return next((stream for name, stream in forms if name in names), None)


def detect_by_start(start: bytes, *, complete: bool) -> str | None:
    """Return the form of a stream, detected by its framing and by the first chunk of a known type.

    Chunks of unknown types are skipped, because a new version can start a stream with a new type.

    Args:
        start: The first bytes of the stream.
        complete: Whether to decide now, even if more bytes could follow.

    Returns:
        The name of the form, `""` if only the default protocol can match, or `None` if more bytes are needed.
    """
    line, end = first_line(start)
    if not end and not complete:
        return None
    for protocol in all_protocols():
        for pattern, stream in protocol.first_lines.items():
            if pattern.match(line):
                return stream
    is_event = line.startswith(b"data:")
    if not is_event and not line.startswith((b"{", b"[{")):
        return ""
    for name, text in _split(start, is_event, complete):
        if not text.strip():
            continue
        try:
            value = read_json(text)
        except ValueError:
            return ""
        for chunk in value if isinstance(value, list) else [value]:
            detected = _detect_by_chunk(chunk, is_event, name)
            if detected is not None:
                return detected
    return "" if complete else None


def first_line(start: bytes) -> tuple[bytes, bytes]:
    """Return the first line with content, and its end, which is empty if more bytes can belong to it."""
    line = _LINE.match(_skip_blank(start))
    return (line[1], line[2]) if line else (b"", b"")  # the pattern always matches


def _skip_blank(start: bytes) -> bytes:
    """Return the bytes from the first line with content."""
    blank = _BLANK.match(start)
    return start[blank.end() if blank else 0 :]


def _split(start: bytes, is_event: bool, complete: bool) -> list[Frame]:
    """Return the events of a stream, or its lines. The last one counts only if the start is complete."""
    if is_event:
        sse = SseDecoder()
        return sse.feed(start) + (sse.close() if complete else [])
    lines = _skip_blank(start).split(b"\n")
    return [(b"", line) for line in (lines if complete else lines[:-1])]


def _detect_by_chunk(chunk: object, is_event: bool, name: bytes) -> str | None:
    """Return the form of the stream that a chunk belongs to, or `None` if its type does not decide."""
    if not isinstance(chunk, dict):
        return ""
    protocols = all_protocols()
    for protocol in protocols:
        if protocol.chunk_field is not None and isinstance(chunk.get(protocol.chunk_field), list):
            return protocol.response_form
    if not isinstance(chunk.get("type"), str):
        return ""
    recognized = (protocol.recognize(chunk, is_event, name) for protocol in protocols)
    stream = next((stream for stream in recognized if stream is not None), None)
    return "" if stream == find_protocol(DEFAULT_BACKEND).response_form else stream


class Decoder(TypingProtocol):
    """Decodes the body of one response to events.

    The events do not depend on where the bytes are split. No method raises: a failure is the last event.
    """

    @property
    def is_finished(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""

    @property
    def unknown(self) -> Mapping[str, int]:
        """The number of events or chunks of unknown types, by type."""

    @property
    def billing(self) -> Billing | None:
        """What the gateway has said about the bill so far."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes complete."""

    def close(self) -> list[Event]:
        """Return the last events. Call it once, after the last byte."""


class ParsedStreamDecoder(Decoder, TypingProtocol):
    """A decoder that also accepts events or chunks that are already parsed."""

    def feed_parsed(self, event: object) -> list[Event]:
        """Return the events for one parsed JSON value."""


class GuardedDecoder:
    """A decoder whose methods do not raise, whatever the decoder in it does.

    An exception ends the response: the events that the decoder still has are returned, then a `Failed`. The
    decoders of this package also skip single events that they cannot decode, so that this is the last resort.
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
        return self.decoder.billing

    def feed(self, chunk: bytes) -> list[Event]:
        return self._run(self.decoder.feed, chunk)

    def close(self) -> list[Event]:
        return self._run(self.decoder.close)

    def _run(self, step: Callable[..., list[Event]], *args: object) -> list[Event]:
        if self._failed:
            return []
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            self._failed = True
            log_defect("A response of the gateway", error)
        events: list[Event] = []
        if step != self.decoder.close:
            with suppress(Exception):  # the first exception was logged
                events = self.decoder.close()
        return [*(event for event in events if not isinstance(event, Failed)), Failed(self._error())]


class GuardedStreamDecoder(GuardedDecoder):
    """A guarded decoder that also accepts events or chunks that are already parsed."""

    decoder: ParsedStreamDecoder

    def feed_parsed(self, event: object) -> list[Event]:
        return self._run(self.decoder.feed_parsed, event)


def stream_names() -> list[str]:
    """Return the names of all forms of responses that can be decoded."""
    return [name for protocol in all_protocols() for name in protocol.decoders]


def decoder_for(
    protocol: Protocol | str = "auto", status: int | None = None, headers: Mapping[str, str] | None = None
) -> GuardedDecoder:
    """Return a decoder for one response, with a guard.

    Args:
        protocol: The protocol of the gateway, or the name of the response's form (`stream_names`). `auto`
            detects it from the headers and the first bytes.
        status: The HTTP status, if known. From 400 on, the body is decoded as an error.
        headers: The response headers, if known.

    Raises:
        RequestError: The form is unknown.
    """
    stream = protocol.response_form if isinstance(protocol, Protocol) else protocol
    source = protocol if isinstance(protocol, Protocol) else find_by_stream(stream)
    if stream != "auto" and (source is None or stream not in source.decoders):
        raise RequestError(f'Unknown protocol "{stream}". Supported: auto, {", ".join(stream_names())}.')
    if status is not None and status >= 400:
        decoder = ErrorResponseDecoder(status, headers or {})
        return GuardedDecoder(decoder, partial(error_from, {}, status=status))
    if stream == "auto":
        detected = detect_by_headers(headers or {})
        return GuardedDecoder(_new_detected(detected) if detected else DetectingDecoder())
    assert source is not None  # noqa: S101 - checked above
    return GuardedDecoder(source.decoders[stream]())


def _new_detected(stream: str) -> Decoder:
    """Return a decoder for a detected form. The body can be a recording of a request other than a chat."""
    protocol = find_by_stream(stream) if stream else find_protocol(DEFAULT_BACKEND)
    assert protocol is not None  # noqa: S101 - only protocols of the table are detected
    return (protocol.any_endpoint or protocol.decoders[stream])()


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
        return None if self._decoder is None else self._decoder.billing

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
        start = bytes(self._start)
        protocol = detect_by_start(start, complete=complete)
        if protocol is None:
            return []
        self._decoder = _new_detected(protocol)
        self._start.clear()
        return self._decoder.feed(start)
