"""Decode OpenResponses responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. `ResponseState`
converts the parsed wire events to our events. Consecutive deltas of one network read become one event.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, assert_never

import msgspec

from tollbridge.protocols.errors import describe_body, error_from
from tollbridge.protocols.guard import EventGuard
from tollbridge.protocols.openresponses import wire
from tollbridge.protocols.openresponses.items import (
    CALL_OUTPUTS,
    KINDS,
    CallEmitter,
    Item,
    ItemKey,
    Items,
    MediaEmitter,
    TextEmitter,
    TextEvent,
)
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, SseDecoder, UnknownNames, frame_too_large
from tollbridge.types.errors import BridgeError, Disconnected, ServerFailed, StreamError
from tollbridge.types.events import Data, Event, Failed, Finished, FinishReason
from tollbridge.types.text import read_json_to_depth
from tollbridge.types.usage import Usage

# Finish reasons of an incomplete response.
INCOMPLETE: dict[str, FinishReason] = {
    "content_filter": "content-filter",
    "length": "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
}

# How a response ended, by its status. The event name replaces a status that is missing or unknown.
ENDINGS: dict[str, Literal["finish", "incomplete", "abort"]] = {
    "completed": "finish",
    "incomplete": "incomplete",
    "cancelled": "abort",
}
STATUSES = {*ENDINGS, "failed"}

# Types of content parts that are reasoning, even in an item of another type.
REASONING_PARTS = frozenset({"reasoning", "reasoning_text", "summary_text"})


class ResponseState:
    """The state of one response: applies wire events and returns events.

    Attributes:
        over: Whether the response has ended. After that, no more events are returned.
        unknown: The number of wire events of unknown types, by type.
        guard: Skips events and items that cannot be decoded.
    """

    def __init__(self) -> None:
        self.over = False
        self.unknown = UnknownNames()
        self.guard = EventGuard(self.unknown)
        self._known = False  # whether an event of a known type was received
        self._items = Items()
        self._texts = TextEmitter()
        self._item_errors: list[BridgeError] = []  # invalid calls and images, emitted after everything else
        self._calls = CallEmitter(self._item_errors)
        self._media = MediaEmitter(self._item_errors)
        # An error event without a message: `response.failed` can follow and explain it.
        self._error: BridgeError | None = None

    def apply_delta(
        self,
        kind: TextEvent | Literal["arguments"],
        index: int | None,
        item_id: str | None,
        part: int | None,
        text: str,
    ) -> list[Event]:
        """Apply a piece of text, reasoning or arguments."""
        self._known = True
        if kind == "arguments":
            self._items.resolve("call", index, item_id).arguments.append(text)
            return []
        if not text:
            return []
        item = self._items.resolve("message" if kind == "text" else "reasoning", index, item_id)
        events = self._texts.emit(kind, item, part, text)
        return self._calls.hold_calls(events, last=False) if self._calls.has_held_calls else events

    def apply(self, event: Fields) -> list[Event]:
        """Apply a wire event of any type. An event that cannot be decoded is skipped."""
        if self.over:
            return []
        try:
            return self._calls.hold_calls(self._apply(event), last=self.over)
        except Exception as error:  # noqa: BLE001 - see guard.py
            self.guard.skip(event.text("type"), error)
            if wire.classify_event(event) not in ("ended", "error"):
                return []
        return self.interrupt(StreamError("The end of the gateway's answer could not be decoded."))

    def _apply(self, event: Fields) -> list[Event]:
        kind = wire.classify_event(event)
        self._known = self._known or kind is not None
        index, item_id = event.number("output_index"), event.text("item_id") or event.text("id")
        match kind:
            case "text" | "arguments":
                part = event.number("content_index")
                return self.apply_delta(kind, index, item_id, part, event.text("delta") or "")
            case "reasoning":
                part = event.number("summary_index")
                text = event.text("delta") or ""
                return self.apply_delta(wire.classify_reasoning(event), index, item_id, part, text)
            case "text done":
                item = self._items.resolve("message", index, item_id, ending=True)
                full = event.text("text") or event.text("refusal") or ""
                return self._texts.emit_text_done(item, event.number("content_index"), full)
            case "part done":
                return self._finish_part(index, item_id, event.number("content_index"), event.inner("part"))
            case "reasoning done":
                item = self._items.resolve("reasoning", index, item_id, ending=True)
                part = event.number("summary_index")
                if part is None and event.number("content_index") == 0:
                    part = 0  # raw reasoning has one part, whatever the indexes of its deltas
                text = event.text("text") or ""
                return self._texts.emit_reasoning_done(wire.classify_reasoning(event), item, part, text)
            case "arguments done":
                full = wire.encode_arguments(event.raw.get("arguments")) or event.text("input") or ""
                self._items.resolve("call", index, item_id, ending=True).final_arguments = full
                return []
            case "item added":
                self._open_item(index, event.inner("item"))
                return []
            case "item done":
                return self._finish_item(event.inner("item"), index)
            case "annotation":
                return self._media.emit_source(event.inner("annotation"))
            case "ended":
                return self._finish(event)
            case "error":
                return self._fail(error_from(event.raw), wait=not wire.has_error_message(event))
            case "ignored":
                return []
            case None:
                self.unknown.record(event.text("type") or "no type")
                return []
            case _:
                assert_never(kind)

    def close(self) -> list[Event]:
        """Return the last events. A response without a terminal event is an error."""
        if self.over:
            return []
        if self.unknown and not self._known:
            return self.interrupt(StreamError("The gateway's answer is not an OpenResponses stream."))
        return self.interrupt(Disconnected("The gateway closed the stream before the answer was complete."))

    def interrupt(self, error: BridgeError) -> list[Event]:
        """End the response with an error, because the stream ended or is invalid."""
        events = self._finish_open_calls() + self._fail(self._error or error)
        return self._calls.hold_calls(events, last=True)

    def apply_body(self, body: Fields) -> list[Event]:
        """Apply a complete response that was received as one JSON body."""
        if "output" not in body and "status" not in body:
            error = (
                error_from(body.raw)
                if wire.is_error(body)
                else StreamError("The gateway answered with JSON that is not a response.")
            )
            return self._fail(error)
        if body.text("status") in ("queued", "in_progress"):
            message = "The gateway deferred the response (background mode), which is not supported."
            return self._fail(StreamError(message))
        return self._calls.hold_calls(self._finish(body), last=True)

    # --- Items ---

    def _open_item(self, index: int | None, fields: Fields) -> None:
        kind = KINDS.get(fields.text("type") or "")
        if kind is None:
            return
        call_id = fields.text("call_id") if kind == "call" else None
        item = self._items.open(kind, index, fields.text("id"), call_id)
        if kind == "call":
            self._calls.announce(item, fields)

    def _finish_part(
        self, index: int | None, item_id: str | None, number: int | None, part: Fields
    ) -> list[Event]:
        """Apply the end of a part of a message or of reasoning. Servers use different types for reasoning."""
        full = wire.join_texts([part])
        if part.text("type") in REASONING_PARTS or self._items.find_kind(index, item_id) == "reasoning":
            item = self._items.resolve("reasoning", index, item_id, ending=True)
            return self._texts.emit("reasoning", item, None, item.emitted.remainder(full))
        item = self._items.resolve("message", index, item_id, ending=True)
        return self._texts.emit_text_done(item, number, full) + self._media.emit_sources([part])

    def _finish_item(self, fields: Fields, index: int | None) -> list[Event]:
        """Apply the `output_item.done` event of an item."""
        kind = KINDS.get(fields.text("type") or "")
        if kind is None:
            return self._apply_other_item(fields)
        item = self._items.resolve_done(kind, index, fields.text("id"), fields.text("call_id"))
        if kind != "message":
            return self._emit_complete(item, fields, None)
        content = fields.list("content")
        return self._texts.emit_message(item, wire.join_texts(content)) + self._media.emit_sources(content)

    def _emit_complete(self, item: Item, fields: Fields, ending: str | None) -> list[Event]:
        """Emit what a complete copy of reasoning or of a call adds."""
        if item.kind == "reasoning":
            return self._texts.emit_reasoning(item, fields)
        return self._calls.finish(item, fields, ending)

    def _apply_other_item(self, fields: Fields) -> list[Event]:
        """Apply an item that is neither a message, reasoning nor a call."""
        type_ = fields.text("type")
        if type_ in CALL_OUTPUTS:
            self._calls.apply_output(fields)
        return self._media.emit_image(fields) if type_ == "image_generation_call" else []

    # --- The end of the response ---

    def _finish(self, event: Fields) -> list[Event]:
        response = event.inner("response") or event
        event_status = (event.text("type") or "response.completed").removeprefix("response.")
        status = response.text("status")
        if event_status == "failed" or status not in STATUSES:
            status = event_status if event_status in STATUSES else "completed"
        usage = wire.read_usage(response.inner("usage"))
        if status == "failed" or (response.raw.get("error") and status != "cancelled"):
            payload = response.raw.get("error")
            error = error_from(payload) if payload else None
            error = error or self._error or ServerFailed("The gateway reported a failure and gave no reason.")
            events = self._apply_output(response, "failed") + self._finish_open_calls()
            return events + self._fail(error, usage)
        events = self._apply_output(response, status)
        events += self._finish_open_calls(complete=status == "completed")
        reason: FinishReason = "tool-calls" if self._calls.has_pending_calls else "stop"
        if status == "incomplete":
            reason = INCOMPLETE.get(response.inner("incomplete_details").text("reason") or "", "other")
        elif status == "cancelled":
            reason = "other"
        self.over = True
        events.append(
            Finished(
                reason,
                ENDINGS[status],
                usage,
                response_id=response.text("id"),
                model=response.text("model"),
                cache=wire.read_cache_diagnosis(response),
            )
        )
        return events + [Failed(error) for error in self._item_errors]

    def _apply_output(self, response: Fields, ending: str) -> list[Event]:
        """Return events for the content of the final response that was not emitted before."""
        output = response.list("output")
        kinds = [KINDS.get(fields.text("type") or "") for fields in output]
        keys: dict[int, ItemKey] = {
            position: (kind, fields.text("id"), fields.text("call_id"))
            for position, (kind, fields) in enumerate(zip(kinds, output, strict=True))
            if kind is not None
        }
        items = self._items.match(keys)
        texts = [wire.join_texts(fields.list("content")) for fields in output]
        messages = [position for position, kind in enumerate(kinds) if kind == "message"]
        added = self._texts.find_remainders([texts[position] for position in messages])
        remainders = dict(zip(messages, added, strict=True)) if added is not None else {}
        events: list[Event] = []
        for position, fields in enumerate(output):
            item = items.get(position)
            try:
                if item is None:
                    events += self._apply_other_item(fields)
                elif kinds[position] == "message":
                    remainder = remainders.get(position, item.emitted.remainder(texts[position]))
                    events += self._texts.emit_remainder(item, remainder)
                    events += self._media.emit_sources(fields.list("content"))
                else:
                    events += self._emit_complete(item, fields, ending)
            except Exception as error:  # noqa: BLE001 - see guard.py
                self.guard.skip(fields.text("type"), error)
        return events

    def _finish_open_calls(self, *, complete: bool = False) -> list[Event]:
        calls = [item for item in self._items if item.kind == "call" and not item.closed]
        return [event for call in calls for event in self._calls.finish_open_call(call, complete=complete)]

    def _fail(self, error: BridgeError, usage: Usage | None = None, *, wait: bool = False) -> list[Event]:
        if wait:
            self._error = error
            return []
        self.over = True
        error.usage = usage
        return [Failed(failure) for failure in (*self._item_errors, error)]


# The attributes that all deltas of a run have in common. Comparing one at a time is faster than tuples.
_RUN_ATTRIBUTES = (type, attrgetter("output_index"), attrgetter("item_id"), attrgetter("part"))
_get_text = attrgetter("delta")
_KINDS: dict[type[wire.Delta], TextEvent | Literal["arguments"]] = {
    wire.TextDelta: "text",
    wire.ReasoningDelta: "reasoning",
    wire.ReasoningTextDelta: "reasoning",
    wire.SummaryDelta: "summary",
    wire.ArgumentsDelta: "arguments",
}
_BOM = b"\xef\xbb\xbf"
# Raised for JSON that is not a typed delta; RecursionError for a delta with a deeply nested unknown field.
_NOT_DELTA = (msgspec.MsgspecError, ValueError, RecursionError)
_HEAD_LIMIT = 4096


class StreamDecoder:
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises.

    Args:
        limit: The maximum size of a frame or of a JSON body, in bytes.
        other_endpoints: Whether to accept the JSON body of a model list or of a token count, too.
    """

    def __init__(self, limit: int = FRAME_LIMIT, *, other_endpoints: bool = False) -> None:
        self._limit = limit
        self._other_endpoints = other_endpoints
        self._state = ResponseState()
        self._sse = SseDecoder(limit)
        self._start: bytes | None = b""  # the first bytes, until it is clear whether this is a stream
        self._body: list[bytes] = []  # of a response that is not a stream
        self._streamed = True
        self._size = 0
        self._valid_frames = 0
        self._invalid_frames = 0  # frames that are not JSON
        self._head = b""  # the first bytes, for the error if this is neither a stream nor JSON

    @property
    def over(self) -> bool:
        """Whether the response has ended. The connection can stay open, but no more events follow."""
        return self._state.over

    @property
    def unknown(self) -> UnknownNames:
        """The number of wire events of unknown types, by type."""
        return self._state.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._state.over:
            return []
        if not self._valid_frames and len(self._head) < _HEAD_LIMIT:
            self._head += chunk[: _HEAD_LIMIT - len(self._head)]
        if self._start is not None:
            chunk = self._detect_json(chunk)
        if not self._streamed:
            return self._collect(chunk)
        block = self._sse.buffer(chunk)
        events = self._decode_run(block)
        if events is None:
            events = self._decode_frames(self._sse.split(block))
        return self._add_framing_error(events)

    def feed_parsed(self, event: object) -> list[Event]:
        """Return the events for a wire event that is already parsed."""
        return self._state.apply(Fields(event))

    def close(self) -> list[Event]:
        """Return the last events. Call it once, after the last byte."""
        if self._state.over:
            return []
        if not self._streamed:
            return self._decode_body(b"".join(self._body))
        invalid_frames = self._invalid_frames
        events = self._add_framing_error(self._decode_frames(self._sse.close()))
        if self._state.over:
            return events
        self._invalid_frames = (
            invalid_frames  # an incomplete last frame was truncated; it is not invalid data
        )
        if not self._valid_frames and (self._sse.has_unknown_fields or self._invalid_frames):
            return [*events, *self._fail(describe_body(self._head))]
        if self._invalid_frames:
            return [*events, *self._state.interrupt(StreamError("The stream contained invalid data."))]
        return events + self._state.close()

    def _detect_json(self, chunk: bytes) -> bytes:
        """Detect whether this is an event stream or one JSON body, and return the bytes to decode.

        The first character decides, because content types are not reliable.
        """
        start = (self._start or b"") + chunk
        content = start.lstrip(b" \t\r\n")
        if _BOM.startswith(content):
            # White space has no meaning in either format and can be unlimited, so only its last byte is kept.
            self._start = content or start[-1:]
            return b""
        self._start = None
        self._streamed = not content.removeprefix(_BOM).startswith((b"{", b"["))
        return start

    def _collect(self, chunk: bytes) -> list[Event]:
        self._body.append(chunk)
        self._size += len(chunk)
        if self._size <= self._limit:
            return []
        self._state.over = True
        return [Failed(frame_too_large(self._limit))]

    def _decode_body(self, body: bytes) -> list[Event]:
        try:
            value = read_json_to_depth(body.strip().removeprefix(_BOM))
        except ValueError:
            return self._fail("The gateway returned invalid or truncated JSON.")
        events = _decode_other_endpoint(Fields(value)) if self._other_endpoints else []
        self._state.over = bool(events)
        return events or self._state.apply_body(Fields(value))

    def _decode_run(self, block: bytes) -> list[Event] | None:
        """Decode a block that contains only deltas of one item, as nearly all blocks of a long response do.

        Returns:
            The events, or `None` if the block contains something else.
        """
        payloads = self._sse.extract_payloads(block) if block else None
        if not payloads:
            return None
        try:
            deltas = list(map(wire.read_delta, payloads))
        except _NOT_DELTA:
            return None
        if any(len(set(map(get, deltas))) != 1 for get in _RUN_ATTRIBUTES):
            return None
        return self._emit_run(deltas)

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        """Decode any frames. Consecutive deltas of one part become one event."""
        events: list[Event] = []
        run: list[wire.Delta] = []
        for _, data in frames:
            try:
                delta = wire.read_delta(data)
            except _NOT_DELTA:
                events += self._emit_run(run)
                events += self._decode_frame(data)
                if self._state.over:
                    break
                continue
            if run and any(get(delta) != get(run[0]) for get in _RUN_ATTRIBUTES):
                events += self._emit_run(run)
            run.append(delta)
        return events + self._emit_run(run)

    def _emit_run(self, run: list[wire.Delta]) -> list[Event]:
        """Join the deltas of a run, and clear the list."""
        if not run:
            return []
        self._valid_frames += len(run)
        first, text = run[0], "".join(map(_get_text, run))
        run.clear()
        try:
            return self._state.apply_delta(
                _KINDS[type(first)], first.output_index, first.item_id, first.part, text
            )
        except Exception as error:  # noqa: BLE001 - see guard.py
            self._state.guard.skip("delta", error)
            return []

    def _decode_frame(self, data: bytes) -> list[Event]:
        """Decode a frame that is not one of the typed deltas."""
        text = data.strip()
        if not text:
            return []
        if text == b"[DONE]":
            self._valid_frames += 1
            return self._state.close()
        try:
            value = read_json_to_depth(text)
        except ValueError:
            self._invalid_frames += 1
            return []
        self._valid_frames += 1
        return self._state.apply(Fields(value))

    def _add_framing_error(self, events: list[Event]) -> list[Event]:
        if self._sse.error is not None and not self._state.over:
            events += self._state.interrupt(self._sse.error)
        return events

    def _fail(self, message: str) -> list[Event]:
        self._state.over = True
        return [Failed(StreamError(message))]


def _decode_other_endpoint(body: Fields) -> list[Event]:
    """Decode the response of the model list or of the token count; return no events for other bodies."""
    match body.text("object"):
        case "list":
            return [Data("models", [model.text("id") for model in body.list("data")]), Finished("stop")]
        case "response.input_tokens":
            return [Finished("stop", usage=wire.read_usage(body))]
        case _:
            return []
