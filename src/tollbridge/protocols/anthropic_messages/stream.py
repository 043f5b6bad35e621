"""Decode Messages responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. `MessageState`
converts the parsed wire events to our events. Consecutive deltas of one network read become one event.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal, assert_never

import msgspec

from tollbridge.protocols.anthropic_messages import wire
from tollbridge.protocols.anthropic_messages.wire import BLOCKS, DELTAS, EVENTS, STOP_REASONS, BlockKind
from tollbridge.protocols.errors import error_from
from tollbridge.protocols.openresponses.items import broken_call
from tollbridge.protocols.openresponses.wire import is_error
from tollbridge.protocols.sse import FRAME_LIMIT
from tollbridge.protocols.stream import DecoderState, DeltaDecoder, DeltaReader
from tollbridge.types.errors import BridgeError, BrokenCall, StreamError
from tollbridge.types.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.types.text import Fields, read_json

_UNKNOWN_END: tuple[FinishReason | None, Literal["finish", "incomplete"]] = None, "finish"


class Block:
    """A content block that is not complete yet."""

    __slots__ = ("has_text", "input", "kind", "pieces", "proof", "start")

    def __init__(self, kind: BlockKind, start: Fields) -> None:
        self.kind = kind
        self.start = start
        self.pieces: list[str] = []  # of the JSON text of a call's arguments
        self.input: Any = start.raw.get("input")  # complete arguments, of servers that send no deltas
        self.proof = start.text("signature" if kind == "thinking" else "data") or ""
        self.has_text = False


class MessageState(DecoderState):
    """The state of one message."""

    title = "a Messages"

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, Block] = {}  # the open blocks
        self._usage = wire.UsageCounts()
        self._message = Fields(None)
        self._stop_reason: str | None = None
        # The last call, held back until it is known whether the answer was truncated in it.
        self._held_call: ToolCall | None = None
        self._call_count = 0
        self._has_calls = False  # whether a call was returned that the caller must run
        self._broken_calls: dict[str, BrokenCall] = {}
        self._sources: set[tuple[str | None, ...]] = set()

    def apply_delta(self, kind: BlockKind, index: int, text: str) -> list[Event]:
        """Apply a piece of text, of thinking or of the arguments of a call."""
        self.has_known_events = True
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = Block(kind, Fields(None))  # the server did not announce it
        if kind == "call":
            block.pieces.append(text)
            return []
        if not text or block.kind == "ignored":
            return []
        block.has_text = True
        event = TextDelta(text) if kind == "text" else ReasoningDelta(text)
        return [event] if self._held_call is None else [*self._release(), event]

    def _apply(self, value: object, name: bytes) -> list[Event]:
        event = Fields(value)
        type_ = event.text("type") or name.decode("utf-8", "replace")
        kind = EVENTS.get(type_)
        self.has_known_events = self.has_known_events or kind is not None
        match kind:
            case "start":
                self._message = event.inner("message")
                self._usage.add(self._message.inner("usage"))
                self._read_bill(self._message)
                return []
            case "block start":
                return self._open_block(event.number("index") or 0, event.inner("content_block"))
            case "delta":
                return self._apply_other_delta(event.number("index") or 0, event.inner("delta"))
            case "block stop":
                return self._close_block(event.number("index") or 0)
            case "message delta":
                self._usage.add(event.inner("usage"))
                self._read_bill(event)
                self._stop_reason = event.inner("delta").text("stop_reason") or self._stop_reason
                return []
            case "stop":
                return self._finish()
            case "error":
                return self.interrupt(error_from(event.raw))
            case "ignored":
                return []
            case None:
                if not type_ and is_error(event):
                    return self.interrupt(error_from(event.raw))
                self.unknown.record(type_ or "no type")
                return []
            case _:
                assert_never(kind)

    def apply_body(self, body: Fields) -> list[Event]:
        if body.text("type") == "error" or ("content" not in body and is_error(body)):
            return self.interrupt(error_from(body.raw))
        if not isinstance(body.raw.get("content"), list):
            return self.interrupt(StreamError("The gateway answered with JSON that is not a message."))
        self._message = body
        self._usage.add(body.inner("usage"))
        self._read_bill(body)
        self._stop_reason = body.text("stop_reason")
        events: list[Event] = []
        for index, block in enumerate(body.list("content")):
            events += self._open_block(index, block) + self._close_block(index)
        return events + self._finish()

    def close(self) -> list[Event]:
        if self._stop_reason is not None and not self.is_finished:
            return self._finish()  # only `message_stop` is missing, which has no content
        return super().close()

    def interrupt(self, error: BridgeError) -> list[Event]:
        """End the message with an error. Calls that are not complete must not be run."""
        self.is_finished = True
        events = self._release()
        for block in self._blocks.values():
            if block.kind == "call":
                events.append(msgspec.structs.replace(self._make_call(block), offered=False))
        error.usage = self._usage.total()
        return [*events, Failed(error)]

    def _read_bill(self, place: Fields) -> None:
        """Read what the start or the end of a message says about the bill."""
        metadata = place.raw.get("provider_metadata") or place.inner("delta").raw.get("provider_metadata")
        usage, provider = place.raw.get("usage"), place.raw.get("provider")
        self._read_billing(metadata, usage, provider, self._message.text("id"))

    def _open_block(self, index: int, start: Fields) -> list[Event]:
        type_ = start.text("type") or "no type"
        kind = BLOCKS.get(type_)
        if kind is None:
            self.unknown.record(type_)
            kind = "ignored"
        events = (self._close_block(index) if index in self._blocks else []) + self._release()
        block = self._blocks[index] = Block(kind, start)
        text = start.text("text" if kind == "text" else "thinking")
        if text and kind in ("text", "thinking"):
            block.has_text = True
            events.append(TextDelta(text) if kind == "text" else ReasoningDelta(text))
        for citation in start.list("citations"):
            events += self._emit_source(citation)
        return events

    def _apply_other_delta(self, index: int, delta: Fields) -> list[Event]:
        """Apply a delta that is not one of the typed ones, or not well-formed."""
        type_ = delta.text("type") or "no type"
        block = self._blocks.get(index)
        if type_ in DELTAS:
            kind, field = DELTAS[type_]
            return self.apply_delta(kind, index, delta.text(field) or "")
        if type_ == "signature_delta":
            if block is not None and block.kind == "thinking":
                block.proof = delta.text("signature") or block.proof
        elif type_ == "citations_delta":
            return self._emit_source(delta.inner("citation"))
        elif block is None or block.kind != "ignored":
            self.unknown.record(type_)
        return []

    def _close_block(self, index: int) -> list[Event]:
        block = self._blocks.pop(index, None)
        if block is None or block.kind in ("text", "ignored"):
            return []
        events = self._release()
        match block.kind:
            case "thinking":
                if block.has_text or block.proof:
                    metadata = {wire.SIGNATURE: block.proof} if block.proof else None
                    events.append(ReasoningEnded(None, metadata))
            case "redacted":
                if block.proof:
                    events.append(ReasoningEnded(None, {wire.REDACTED: block.proof}))
            case "call":
                self._held_call = self._make_call(block)
            case "server call":
                events.append(msgspec.structs.replace(self._make_call(block), offered=False))
        return events

    def _make_call(self, block: Block) -> ToolCall:
        """Return a call. Calls without a name or with invalid arguments are not offered."""
        self._call_count += 1
        text = "".join(block.pieces)
        name = block.start.text("name") or ""
        call_id = block.start.text("id") or f"call_{self._call_count}"
        if not text.strip():
            value: Any = block.input or {}
        else:
            try:
                value = read_json(text)
            except ValueError:
                value = text
        if isinstance(value, dict) and name:
            return ToolCall(call_id, name, value)
        if block.kind == "call":
            self._broken_calls[call_id] = broken_call(call_id, name)
        return ToolCall(call_id, name, value, offered=False)

    def _release(self, *, truncated: bool = False) -> list[Event]:
        """Return the call that was held back. If the answer was truncated in it, it must not be run."""
        call, self._held_call = self._held_call, None
        if call is None:
            return []
        if truncated and (not call.input or not call.offered):
            self._broken_calls.pop(call.call_id, None)
            call = msgspec.structs.replace(call, offered=False)
        self._has_calls = self._has_calls or call.offered
        return [call]

    def _emit_source(self, citation: Fields) -> list[Event]:
        url, title = citation.text("url"), citation.text("title") or citation.text("document_title")
        place, file_id = citation.text("source"), citation.text("file_id")
        if url is None and place is not None and place.startswith(("http://", "https://")):
            url = place
        key = (url, title, place, file_id)
        if key in self._sources or not any(key):
            return []
        self._sources.add(key)
        if url:
            return [Source("url", url=url, title=title)]
        return [Source("document", id=file_id or place, title=title)]

    def _finish(self) -> list[Event]:
        events: list[Event] = []
        for index in list(self._blocks):
            events += self._close_block(index)
        reason, ended = STOP_REASONS.get(self._stop_reason or "", _UNKNOWN_END)
        events += self._release(truncated=reason == "length")
        if reason in (None, "stop") and self._has_calls:
            reason = "tool-calls"
        elif reason is None and self._stop_reason is not None:
            reason = "other"
        self.is_finished = True
        events.append(
            Finished(
                reason,
                ended,
                self._usage.total(),
                response_id=self._message.text("id"),
                model=self._message.text("model"),
                billing=self.billing,
                cache=wire.read_cache_diagnosis(self._message),
            )
        )
        return events + [Failed(error) for error in self._broken_calls.values()]


class StreamDecoder(DeltaDecoder[MessageState]):
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises."""

    deltas = DeltaReader(
        wire.read_delta, attrgetter("delta.text"), (attrgetter("index"), attrgetter("delta.__class__"))
    )

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        super().__init__(MessageState(), limit)

    def _apply_delta(self, delta: wire.ContentDelta, text: str) -> list[Event]:
        return self._state.apply_delta(delta.delta.kind, delta.index, text)
