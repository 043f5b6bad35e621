"""Decode OpenResponses responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. `ResponseState`
converts the parsed wire events to our events. Consecutive deltas of one network read become one event.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, assert_never

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
from tollbridge.protocols.sse import FRAME_LIMIT
from tollbridge.protocols.stream import DecoderState, DeltaDecoder, DeltaReader
from tollbridge.types.errors import BridgeError, ServerFailed, StreamError
from tollbridge.types.events import Data, Event, Failed, Finished, FinishReason, Usage
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


class ResponseState(DecoderState):
    """The state of one response."""

    title = "an OpenResponses"

    def __init__(self) -> None:
        super().__init__()
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
        self.has_known_events = True
        if kind == "arguments":
            self._items.resolve("call", index, item_id).arguments.append(text)
            return []
        if not text:
            return []
        item = self._items.resolve("message" if kind == "text" else "reasoning", index, item_id)
        events = self._texts.emit(kind, item, part, text)
        return self._calls.delay_calls(events, last=False) if self._calls.has_delayed_calls else events

    def _skip(self, event: Fields, error: Exception) -> list[Event]:
        events = super()._skip(event, error)
        if wire.classify_event(event) not in ("ended", "error"):
            return events
        return self.interrupt(StreamError("The end of the gateway's answer could not be decoded."))

    def _apply(self, event: Fields, _name: bytes) -> list[Event]:
        return self._calls.delay_calls(self._apply_kind(event), last=self.is_finished)

    def _apply_kind(self, event: Fields) -> list[Event]:
        kind = wire.classify_event(event)
        self.has_known_events = self.has_known_events or kind is not None
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
                    response = event.inner("response")
                    self._read_billing(response, response.raw.get("provider_metadata"), response.text("id"))
                return []
            case None:
                self.unknown.record(event.text("type") or "no type")
                return []
            case _:
                assert_never(kind)

    def interrupt(self, error: BridgeError) -> list[Event]:
        events = self._finish_open_calls() + self._fail(self._unexplained_error or error)
        return self._calls.delay_calls(events, last=True)

    def apply_body(self, body: Fields) -> list[Event]:
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
        self._read_billing(response, response.raw.get("provider_metadata"), response.text("id"))
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


_KINDS: dict[type[wire.Delta], TextEvent | Literal["arguments"]] = {
    wire.TextDelta: "text",
    wire.ReasoningDelta: "reasoning",
    wire.ReasoningTextDelta: "reasoning",
    wire.SummaryDelta: "summary",
    wire.ArgumentsDelta: "arguments",
}


class StreamDecoder(DeltaDecoder[ResponseState]):
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises."""

    deltas = DeltaReader(
        wire.read_delta,
        attrgetter("delta"),
        (type, attrgetter("output_index"), attrgetter("item_id"), attrgetter("part")),
    )

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        super().__init__(ResponseState(), limit)

    def _apply_delta(self, delta: wire.Delta, text: str) -> list[Event]:
        kind = _KINDS[type(delta)]
        return self._state.apply_delta(kind, delta.output_index, delta.item_id, delta.part, text)


class AnyEndpointDecoder(StreamDecoder):
    """A decoder that also accepts the JSON body of a model list or of a token count."""

    def _apply_body(self, body: Fields) -> list[Event]:
        match body.text("object"):
            case "list":
                models = [model.text("id") for model in body.list("data")]
                events: list[Event] = [Data("models", models), Finished("stop")]
            case "response.input_tokens":
                events = [Finished("stop", usage=wire.read_usage(body))]
            case _:
                return super()._apply_body(body)
        self._state.is_finished = True
        return events
