"""Decode OpenResponses responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. `ResponseState`
converts the parsed wire events to our events. Consecutive deltas of one network read become one event.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Literal, assert_never

from tollbridge.protocols.billing import read_billing
from tollbridge.protocols.errors import error_from
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
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, UnknownNames
from tollbridge.protocols.stream import DELTA_ERRORS, BaseDecoder, EventGuard
from tollbridge.types.errors import BridgeError, Disconnected, ServerFailed, StreamError
from tollbridge.types.events import Billing, Data, Event, Failed, Finished, FinishReason, Usage
from tollbridge.types.text import Fields

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
        is_finished: Whether the response has ended. After that, no more events are returned.
        unknown: The number of wire events of unknown types, by type.
        guard: Skips events and items that cannot be decoded.
        billing: What the gateway has said about the bill so far.
    """

    def __init__(self) -> None:
        self.is_finished = False
        self.unknown = UnknownNames()
        self.guard = EventGuard(self.unknown)
        self.billing: Billing | None = None
        self._has_known_events = False  # whether an event of a known type was received
        self._items = Items()
        self._texts = TextEmitter()
        self._item_errors: list[BridgeError] = []  # invalid calls and images, emitted after everything else
        self._calls = CallEmitter(self._item_errors)
        self._media = MediaEmitter(self._item_errors)
        # An error event without a message. It is emitted at the end, unless `response.failed` explains it.
        self._unexplained_error: BridgeError | None = None

    def apply_delta(
        self,
        kind: TextEvent | Literal["arguments"],
        index: int | None,
        item_id: str | None,
        part: int | None,
        text: str,
    ) -> list[Event]:
        """Apply a piece of text, reasoning or arguments."""
        self._has_known_events = True
        if kind == "arguments":
            self._items.resolve("call", index, item_id).arguments.append(text)
            return []
        if not text:
            return []
        item = self._items.resolve("message" if kind == "text" else "reasoning", index, item_id)
        events = self._texts.emit(kind, item, part, text)
        return self._calls.delay_calls(events, last=False) if self._calls.has_delayed_calls else events

    def apply(self, event: Fields) -> list[Event]:
        """Apply a wire event of any type. An event that cannot be decoded is skipped."""
        if self.is_finished:
            return []
        try:
            return self._calls.delay_calls(self._apply(event), last=self.is_finished)
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            self.guard.skip(event.text("type"), error)
            if wire.classify_event(event) not in ("ended", "error"):
                return []
        return self.interrupt(StreamError("The end of the gateway's answer could not be decoded."))

    def _apply(self, event: Fields) -> list[Event]:
        kind = wire.classify_event(event)
        self._has_known_events = self._has_known_events or kind is not None
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
                error = error_from(event.raw)
                if wire.has_error_message(event):
                    return self._fail(error)
                self._unexplained_error = error
                return []
            case "ignored":
                if "response" in event:
                    self._read_billing(event.inner("response"))
                return []
            case None:
                self.unknown.record(event.text("type") or "no type")
                return []
            case _:
                assert_never(kind)

    def close(self) -> list[Event]:
        """Return the last events. A response without a terminal event is an error."""
        if self.is_finished:
            return []
        if self.unknown and not self._has_known_events:
            return self.interrupt(StreamError("The gateway's answer is not an OpenResponses stream."))
        return self.interrupt(Disconnected("The gateway closed the stream before the answer was complete."))

    def interrupt(self, error: BridgeError) -> list[Event]:
        """End the response with an error, because the stream ended or is invalid."""
        events = self._finish_open_calls() + self._fail(self._unexplained_error or error)
        return self._calls.delay_calls(events, last=True)

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
            message = "The gateway deferred the response, which is not supported. Send no `background`."
            return self._fail(StreamError(message))
        return self._calls.delay_calls(self._finish(body), last=True)

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
        usage = wire.read_usage(response.inner("usage"), response.inner("tool_usage"))
        self._read_billing(response)
        if status == "failed" or (response.raw.get("error") and status != "cancelled"):
            payload = response.raw.get("error")
            error = error_from(payload) if payload else None
            error = (
                error
                or self._unexplained_error
                or ServerFailed("The gateway reported a failure and gave no reason.")
            )
            events = self._apply_output(response, "failed") + self._finish_open_calls()
            return events + self._fail(error, usage)
        events = self._apply_output(response, status)
        events += self._finish_open_calls(complete=status == "completed")
        reason: FinishReason = "tool-calls" if self._calls.has_pending_calls else "stop"
        if status == "incomplete":
            reason = INCOMPLETE.get(response.inner("incomplete_details").text("reason") or "", "other")
        elif status == "cancelled":
            reason = "other"
        self.is_finished = True
        events.append(
            Finished(
                reason,
                ENDINGS[status],
                usage,
                response_id=response.text("id"),
                model=response.text("model"),
                billing=self.billing,
                cache=wire.read_cache_diagnosis(response),
            )
        )
        return events + [Failed(error) for error in self._item_errors]

    def _read_billing(self, response: Fields) -> None:
        fields = response.raw
        metadata, usage = fields.get("provider_metadata"), fields.get("usage")
        provider, response_id = fields.get("provider"), fields.get("id")
        billing = read_billing(metadata, usage, provider=provider, response_id=response_id)
        if billing is not None:
            self.billing = billing if self.billing is None else self.billing | billing

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
        new_texts = self._texts.find_remainders([texts[position] for position in messages])
        remainders = dict(zip(messages, new_texts, strict=True)) if new_texts is not None else {}
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
            except Exception as error:  # noqa: BLE001 - see `EventGuard`
                self.guard.skip(fields.text("type"), error)
        return events

    def _finish_open_calls(self, *, complete: bool = False) -> list[Event]:
        calls = [item for item in self._items if item.kind == "call" and not item.closed]
        return [event for call in calls for event in self._calls.finish_open_call(call, complete=complete)]

    def _fail(self, error: BridgeError, usage: Usage | None = None) -> list[Event]:
        """End the response with the errors of its items and this one."""
        self.is_finished = True
        error.usage = usage
        return [Failed(failure) for failure in (*self._item_errors, error)]


# A run: consecutive deltas of one part, which have these attributes in common. Comparing one at a time is
# faster than comparing tuples.
_RUN_ATTRIBUTES = (type, attrgetter("output_index"), attrgetter("item_id"), attrgetter("part"))
_get_text = attrgetter("delta")
_KINDS: dict[type[wire.Delta], TextEvent | Literal["arguments"]] = {
    wire.TextDelta: "text",
    wire.ReasoningDelta: "reasoning",
    wire.ReasoningTextDelta: "reasoning",
    wire.SummaryDelta: "summary",
    wire.ArgumentsDelta: "arguments",
}


class StreamDecoder(BaseDecoder[ResponseState]):
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises.

    Args:
        limit: The maximum size of a frame or of a JSON body, in bytes.
        other_endpoints: Whether to accept the JSON body of a model list or of a token count, too.
    """

    def __init__(self, limit: int = FRAME_LIMIT, *, other_endpoints: bool = False) -> None:
        super().__init__(ResponseState(), limit)
        self._other_endpoints = other_endpoints

    def _apply_body(self, body: Fields) -> list[Event]:
        events = _decode_other_endpoint(body) if self._other_endpoints else []
        self._state.is_finished = bool(events)
        return events or super()._apply_body(body)

    def _decode_run(self, payloads: list[bytes]) -> list[Event] | None:
        """Decode a block that contains only deltas of one item."""
        try:
            deltas = list(map(wire.read_delta, payloads))
        except DELTA_ERRORS:
            return None
        if any(len(set(map(get, deltas))) != 1 for get in _RUN_ATTRIBUTES):
            return None
        return self._emit_run(deltas)

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        """Decode any frames. Consecutive deltas of one part become one event."""
        events: list[Event] = []
        run: list[wire.Delta] = []
        for name, data in frames:
            try:
                delta = wire.read_delta(data)
            except DELTA_ERRORS:
                events += self._emit_run(run)
                events += self._decode_frame(name, data)
                if self._state.is_finished:
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
        self._has_frames = True
        first, text = run[0], "".join(map(_get_text, run))
        run.clear()
        try:
            return self._state.apply_delta(
                _KINDS[type(first)], first.output_index, first.item_id, first.part, text
            )
        except Exception as error:  # noqa: BLE001 - see `EventGuard`
            self._state.guard.skip("delta", error)
            return []


def _decode_other_endpoint(body: Fields) -> list[Event]:
    """Decode the response of the model list or of the token count; return no events for other bodies."""
    match body.text("object"):
        case "list":
            return [Data("models", [model.text("id") for model in body.list("data")]), Finished("stop")]
        case "response.input_tokens":
            return [Finished("stop", usage=wire.read_usage(body))]
        case _:
            return []


decode_any_endpoint = partial(StreamDecoder, other_endpoints=True)
