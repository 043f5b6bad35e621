"""Decode OpenResponses responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. `ResponseState`
converts the parsed wire events to our events. Consecutive deltas of one network read become one event.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, assert_never

from tollbridge.protocols.errors import error_from
from tollbridge.protocols.lenient import read_object
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
        return self._calls.delay_calls(events, last=False) if self._calls.delayed_calls else events

    def _skip(self, event: Fields, error: Exception) -> list[Event]:
        events = super()._skip(event, error)
        if _classify(event.text("type"), event.raw) not in ("ended", "error"):
            return events
        return self.interrupt(StreamError("The end of the gateway's answer could not be decoded."))

    def _apply(self, raw: object, _name: bytes) -> list[Event]:
        event = read_object(raw, wire.StreamEvent)
        kind = _classify(event.type, raw)
        self.has_known_events = self.has_known_events or kind is not None
        events = self._apply_kind(kind, event, raw)
        return self._calls.delay_calls(events, last=self.is_finished) if events else []

    def _apply_kind(self, kind: wire.EventKind | None, event: wire.StreamEvent, raw: object) -> list[Event]:
        index, item_id = event.output_index, event.item_id or event.id
        text_kind: TextEvent = "summary" if "reasoning_summary" in (event.type or "") else "reasoning"
        match kind:
            case "text" | "arguments":
                return self.apply_delta(kind, index, item_id, event.content_index, event.delta or "")
            case "reasoning":
                return self.apply_delta(text_kind, index, item_id, event.summary_index, event.delta or "")
            case "text done":
                item = self._items.resolve("message", index, item_id, ending=True)
                full = event.text or event.refusal or ""
                return self._texts.emit_text_done(item, event.content_index, full)
            case "part done":
                content = event.part or wire.ContentPart()
                return self._finish_part(index, item_id, event.content_index, content)
            case "reasoning done":
                item = self._items.resolve("reasoning", index, item_id, ending=True)
                part = event.summary_index
                if part is None and event.content_index == 0:
                    part = 0  # raw reasoning has one part, whatever the indexes of its deltas
                return self._texts.emit_reasoning_done(text_kind, item, part, event.text or "")
            case "arguments done":
                full = wire.encode_arguments(event.arguments) or event.input or ""
                self._items.resolve("call", index, item_id, ending=True).final_arguments = full
                return []
            case "item added":
                self._open_item(index, event.item or wire.OutputItem())
                return []
            case "item done":
                return self._finish_item(event.item or wire.OutputItem(), index)
            case "annotation":
                return self._media.emit_source(event.annotation or wire.Annotation())
            case "ended":
                return self._finish(event.response or read_object(raw, wire.Response), event.type)
            case "error":
                fields = Fields(raw)
                error = error_from(fields.raw)
                if wire.has_error_message(fields):
                    return self._fail(error)
                self._unexplained_error = error
                return []
            case "ignored":
                if event.response is not None:
                    self._read_bill(event.response)
                return []
            case None:
                self.unknown.record(event.type or "no type")
                return []
            case _:
                assert_never(kind)

    def _read_bill(self, response: wire.Response) -> None:
        self._read_billing(response.provider_metadata, response.usage, response.provider, response.id)

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
        return self._calls.delay_calls(self._finish(read_object(body.raw, wire.Response)), last=True)

    # --- Items ---

    def _open_item(self, index: int | None, announced: wire.OutputItem) -> None:
        kind = KINDS.get(announced.type or "")
        if kind is None:
            return
        item = self._items.open(kind, index, announced.id, announced.call_id if kind == "call" else None)
        if kind == "call":
            self._calls.announce(item, announced)

    def _finish_part(
        self, index: int | None, item_id: str | None, number: int | None, part: wire.ContentPart
    ) -> list[Event]:
        """Apply the end of a part of a message or of reasoning. Servers use different types for reasoning."""
        full = wire.join_texts([part])
        if part.type in REASONING_PARTS or self._items.find_kind(index, item_id) == "reasoning":
            item = self._items.resolve("reasoning", index, item_id, ending=True)
            return self._texts.emit("reasoning", item, None, item.emitted.remainder(full))
        item = self._items.resolve("message", index, item_id, ending=True)
        return self._texts.emit_text_done(item, number, full) + self._media.emit_sources([part])

    def _finish_item(self, copy: wire.OutputItem, index: int | None) -> list[Event]:
        """Apply the `output_item.done` event of an item."""
        kind = KINDS.get(copy.type or "")
        if kind is None:
            return self._apply_other_item(copy)
        item = self._items.resolve_done(kind, index, copy.id, copy.call_id)
        if kind != "message":
            return self._emit_complete(item, copy, None)
        content = copy.content or []
        return self._texts.emit_message(item, wire.join_texts(content)) + self._media.emit_sources(content)

    def _emit_complete(self, item: Item, copy: wire.OutputItem, ending: str | None) -> list[Event]:
        """Emit what a complete copy of reasoning or of a call adds."""
        if item.kind == "reasoning":
            return self._texts.emit_reasoning(item, copy)
        return self._calls.finish(item, copy, ending)

    def _apply_other_item(self, copy: wire.OutputItem) -> list[Event]:
        """Apply an item that is neither a message, reasoning nor a call."""
        if copy.type in CALL_OUTPUTS:
            self._calls.apply_output(copy)
        return self._media.emit_image(copy) if copy.type == "image_generation_call" else []

    # --- The end of the response ---

    def _finish(self, response: wire.Response, event_type: str | None = None) -> list[Event]:
        event_status = (event_type or "response.completed").removeprefix("response.")
        status = response.status
        if event_status == "failed" or status not in STATUSES:
            status = event_status if event_status in STATUSES else "completed"
        usage = wire.read_usage(response.usage, response.tool_usage)
        self._read_bill(response)
        if status == "failed" or (response.error and status != "cancelled"):
            error = (
                (error_from(response.error) if response.error else None)
                or self._unexplained_error
                or ServerFailed("The gateway reported a failure and gave no reason.")
            )
            events = self._apply_output(response, "failed") + self._finish_open_calls()
            return events + self._fail(error, usage)
        events = self._apply_output(response, status)
        events += self._finish_open_calls(complete=status == "completed")
        reason: FinishReason = "tool-calls" if self._calls.has_pending_calls else "stop"
        if status == "incomplete":
            details = response.incomplete_details or wire.IncompleteDetails()
            reason = INCOMPLETE.get(details.reason or "", "other")
        elif status == "cancelled":
            reason = "other"
        self.is_finished = True
        events.append(
            Finished(
                reason,
                ENDINGS[status],
                usage,
                response_id=response.id,
                model=response.model,
                billing=self.billing,
                cache=wire.read_cache_diagnosis(response),
            )
        )
        return events + [Failed(error) for error in self._item_errors]

    def _apply_output(self, response: wire.Response, ending: str) -> list[Event]:
        """Return events for the content of the final response that was not emitted before."""
        output = response.output or []
        kinds = [KINDS.get(copy.type or "") for copy in output]
        keys: dict[int, ItemKey] = {
            position: (kind, copy.id, copy.call_id)
            for position, (kind, copy) in enumerate(zip(kinds, output, strict=True))
            if kind is not None
        }
        items = self._items.match(keys)
        texts = [wire.join_texts(copy.content or ()) for copy in output]
        messages = [position for position, kind in enumerate(kinds) if kind == "message"]
        new_texts = self._texts.find_remainders([texts[position] for position in messages])
        remainders = dict(zip(messages, new_texts, strict=True)) if new_texts is not None else {}
        events: list[Event] = []
        for position, copy in enumerate(output):
            item = items.get(position)
            try:
                if item is None:
                    events += self._apply_other_item(copy)
                elif kinds[position] == "message":
                    remainder = remainders.get(position)
                    if remainder is None:
                        remainder = item.emitted.remainder(texts[position])
                    events += self._texts.emit_remainder(item, remainder)
                    events += self._media.emit_sources(copy.content or [])
                else:
                    events += self._emit_complete(item, copy, ending)
            except Exception as error:  # noqa: BLE001 - see `EventGuard`
                self.guard.skip(copy.type, error)
        return events

    def _finish_open_calls(self, *, complete: bool = False) -> list[Event]:
        calls = [item for item in self._items if item.kind == "call" and not item.closed]
        return [event for call in calls for event in self._calls.finish_open_call(call, complete=complete)]

    def _fail(self, error: BridgeError, usage: Usage | None = None) -> list[Event]:
        """End the response with the errors of its items and this one."""
        self.is_finished = True
        error.usage = usage
        return [Failed(failure) for failure in (*self._item_errors, error)]


def _classify(type_: str | None, raw: object) -> wire.EventKind | None:
    """Return the kind of an event, or `None` if it is unknown. An error event can have no `type`."""
    if type_ is None:
        return "error" if wire.is_error(Fields(raw)) else None
    return wire.EVENTS.get(type_)


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
                events = [Finished("stop", usage=wire.read_usage(body.raw))]
            case _:
                return super()._apply_body(body)
        self._state.is_finished = True
        return events
