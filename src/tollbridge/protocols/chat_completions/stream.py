"""Decode Chat Completions responses: bytes to events.

`StreamDecoder` parses the bytes of one response, which is an event stream or one JSON body. Consecutive
deltas of one network read become one event.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2s
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

import msgspec

from tollbridge.protocols.chat_completions import wire
from tollbridge.protocols.chat_completions.wire import (
    FINISH_REASONS,
    REASONING_LISTS,
    REASONING_TEXTS,
    Json,
    read_usage,
)
from tollbridge.protocols.errors import error_from
from tollbridge.protocols.openresponses.items import CallEmitter, Item, decode_image
from tollbridge.protocols.openresponses.wire import encode_arguments, is_error, read_call_signatures
from tollbridge.protocols.sse import FRAME_LIMIT, Frame
from tollbridge.protocols.stream import DELTA_ERRORS, BaseDecoder, DecoderState
from tollbridge.types.errors import BridgeError, ServerFailed, StreamError
from tollbridge.types.events import (
    Event,
    Failed,
    File,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    Usage,
)
from tollbridge.types.text import Fields, read_json

_get_content = attrgetter("content")
_get_calls = attrgetter("tool_calls")
_REASONING = tuple((field, attrgetter(field)) for field in ("reasoning_content", "reasoning"))


class StreamDecoder(BaseDecoder["CompletionState"]):
    """Decodes the bytes of one response, an event stream or one JSON body, to events. Never raises."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        super().__init__(CompletionState(), limit)

    def _apply_done(self) -> list[Event]:
        return self._state.end()

    def _decode_run(self, payloads: list[bytes]) -> list[Event] | None:
        """Decode a block of only text, only reasoning or only arguments."""
        if not self._state.has_known_events:
            return None
        try:
            deltas = [chunk.choices[0].delta for chunk in map(wire.read_text_chunk, payloads)]
        except DELTA_ERRORS:
            return None
        text = "".join(filter(None, map(_get_content, deltas)))
        if any(map(_get_calls, deltas)):
            if text or any(delta.reasoning_content or delta.reasoning for delta in deltas):
                return None
            for delta in deltas:
                for call in delta.tool_calls or ():
                    self._state.apply_arguments(call.index, call.function.arguments)
            return []
        for field, get_reasoning in _REASONING:
            if reasoning := "".join(filter(None, map(get_reasoning, deltas))):
                has_others = bool(text) or (field != "reasoning" and any(d.reasoning for d in deltas))
                return None if has_others else self._state.apply_reasoning(reasoning, field)
        return self._state.apply_text(text)

    def _decode_frames(self, frames: list[Frame]) -> list[Event]:
        events: list[Event] = []
        for name, data in frames:
            run = self._decode_run([data])
            events += self._decode_frame(name, data) if run is None else run
            if self._state.is_finished:
                break
        return _join_deltas(events)


def _join_deltas(events: list[Event]) -> list[Event]:
    """Join consecutive deltas of text, and of reasoning."""
    joined: list[Event] = []
    for kind, group in groupby(events, type):
        run: list[Any] = list(group)
        if len(run) > 1 and kind in (TextDelta, ReasoningDelta):
            run = [msgspec.structs.replace(run[0], text="".join(delta.text for delta in run))]
        joined += run
    return joined


class CompletionState(DecoderState):
    """The state of one response.

    Only the end of the stream completes an answer: the usage follows the finish reason in a chunk of its own,
    and the arguments of parallel tool calls can be interleaved. Tool calls are therefore emitted at the end.
    """

    title = "a Chat Completions"

    def __init__(self) -> None:
        super().__init__()
        self._has_content = False
        self._reasoning = ReasoningState()
        self._errors: list[BridgeError] = []  # invalid calls and images, emitted after everything else
        self._calls = CallCollector(self._errors)
        self._media: set[bytes] = set()  # digests of the sources and images that were emitted
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._id: str | None = None
        self._model: str | None = None

    def apply_text(self, text: str) -> list[Event]:
        if not text:
            return []
        self._has_content = True
        return [*self._reasoning.end(), TextDelta(text)]

    def apply_reasoning(self, text: str, field: str) -> list[Event]:
        return self._reasoning.add_text(text, field)

    def apply_arguments(self, index: int, text: str) -> None:
        """Apply a piece of the arguments of the call with this index."""
        self._has_content = True
        self._calls.add_arguments(index, text)

    def _apply(self, value: object, _name: bytes) -> list[Event]:
        chunk = Fields(value)
        if chunk.raw.get("error") or ("choices" not in chunk and is_error(chunk)):
            return self.interrupt(error_from(chunk.raw))
        name = chunk.text("object") or ""
        if "choices" not in chunk and "usage" not in chunk and not name.startswith("chat.completion"):
            self.unknown.record(name or chunk.text("type") or "no choices")
            return []
        self.has_known_events = True
        self._id, self._model = self._id or chunk.text("id"), self._model or chunk.text("model")
        for place in (chunk, chunk.inner("x_groq")):  # Groq also reports it in a field of its own
            self._read_usage(place)
        choices = chunk.list("choices")
        # Vercel AI Gateway reports the bill in the delta or the message.
        places = [chunk, *(choice.inner(name) for choice in choices for name in ("delta", "message"))]
        metadata = next((value for place in places if (value := place.raw.get("provider_metadata"))), None)
        self._read_billing(metadata, chunk.raw.get("usage"), chunk.raw.get("provider"), self._id)
        return [event for choice in choices for event in self._apply_choice(choice)]

    def apply_body(self, body: Fields) -> list[Event]:
        if not body.list("choices") and not body.raw.get("error"):
            other = StreamError("The gateway answered with JSON that is not a chat completion.")
            return self._fail(error_from(body.raw) if is_error(body) else other)
        events = self.apply(body.raw)
        return events if self.is_finished else events + self._finish(self._reason or "stop")

    def end(self) -> list[Event]:
        """Apply `[DONE]`. Usage is as good as a finish reason: servers send it at the end."""
        reported = self._reason is not None or self._usage is not None
        return self._finish(self._reason) if reported else self.close()

    def close(self) -> list[Event]:
        if self._reason is not None and not self.is_finished:  # only `[DONE]` is missing
            return self._finish(self._reason)
        return super().close()

    def interrupt(self, error: BridgeError) -> list[Event]:
        """End the response with an error. Its tool calls are not offered."""
        return [*self._reasoning.end(), *self._calls.finish("failed"), *self._fail(error)]

    def _read_usage(self, place: Fields) -> None:
        if place.raw.get("usage"):  # the counts are cumulative
            self._usage = read_usage(place.inner("usage")) or self._usage

    def _apply_choice(self, choice: Fields) -> list[Event]:
        if self.is_finished:
            return []
        if choice.number("index"):  # never requested
            self.unknown.record("choice")
            return []
        if choice.raw.get("error"):
            return self.interrupt(error_from(choice.raw["error"]))
        self._read_usage(choice)  # Moonshot's place for it
        events: list[Event] = []
        if isinstance(choice.raw.get("delta"), dict):
            events += self._apply_delta(choice.inner("delta"))
        elif not self._has_content:  # some servers repeat the whole message at the end
            events += self._apply_delta(choice.inner("message"), complete=True)
        self._reason = self._reason or choice.text("finish_reason") or None
        return events

    def _apply_delta(self, delta: Fields, *, complete: bool = False) -> list[Event]:
        """Apply a delta, or a whole message."""
        events = self._reasoning.apply(delta, complete=complete)
        content = delta.raw.get("content")
        if isinstance(content, str):
            events += self.apply_text(content)
        else:
            for part in delta.list("content"):
                events += self._apply_part(part)
        events += self.apply_text(delta.text("refusal") or "")  # a refusal is text of the model, too
        for call in delta.list("tool_calls"):
            self._has_content = True
            self._calls.apply(call, call.number("index"))
        if delta.inner("function_call"):  # the only call of servers that do not know `tool_calls`
            self._has_content = True
            self._calls.apply(Fields({"function": delta.raw["function_call"]}), 0)
        for image in delta.list("images"):
            events += self._emit_image(image.inner("image_url").text("url") or "")
        for annotation in delta.list("annotations"):
            events += self._emit_source(annotation.inner("url_citation") or annotation)
        return events

    def _apply_part(self, part: Fields) -> list[Event]:
        """Apply a part of content that is a list, as Mistral sends it."""
        match part.text("type"):
            case "text" | "output_text":
                return self.apply_text(part.text("text") or "")
            case "thinking":
                text = part.text("thinking") or _join_texts(part.list("thinking"), "text")
                return self.apply_reasoning(text, "content")
            case other:
                self.unknown.record(f"content {other}")
                return []

    def _emit_image(self, url: str) -> list[Event]:
        if not self._is_new(url):
            return []
        if not url.startswith("data:"):
            return [File("image/*", url=url)]
        label, _, encoded = url.removeprefix("data:").partition(";base64,")
        return decode_image(encoded, label, self._errors)

    def _emit_source(self, citation: Fields) -> list[Event]:
        url = citation.text("url") or ""
        return [Source("url", url=url, title=citation.text("title"))] if self._is_new(url) else []

    def _is_new(self, url: str) -> bool:
        digest = blake2s(url.encode("utf-8", "surrogatepass")).digest()
        if not url or digest in self._media:
            return False
        self._media.add(digest)
        return True

    def _finish(self, name: str | None) -> list[Event]:
        reason: FinishReason | None = FINISH_REASONS.get(name, "other") if name else None
        if name == "error":
            return self.interrupt(ServerFailed("The gateway reported a failure and gave no reason."))
        is_cut = reason in ("length", "content-filter")
        events = [*self._reasoning.end(), *self._calls.finish("cut" if is_cut else "complete")]
        if reason in ("stop", "tool-calls", None) and self._calls.has_pending_calls:
            reason = "tool-calls"  # some servers report "stop"
        elif reason == "tool-calls":
            reason = "stop"
        self.is_finished = True
        ended: Literal["incomplete", "finish"] = "incomplete" if is_cut else "finish"
        events.append(
            Finished(
                reason,
                ended,
                self._usage,
                response_id=self._id,
                model=self._model,
                billing=self.billing,
            )
        )
        return events + [Failed(error) for error in self._errors]

    def _fail(self, error: BridgeError) -> list[Event]:
        self.is_finished = True
        error.usage = self._usage
        return [Failed(failure) for failure in (*self._errors, error)]


def _join_texts(items: Iterable[Fields], *names: str) -> str:
    return "".join(item.text(name) or "" for item in items for name in names)


class ReasoningState:
    """The reasoning of one response: its text, and the proofs that the server requires back.

    The id of a block is the field that contained its text, so that it can be returned in the same field.
    """

    def __init__(self) -> None:
        self._field: str | None = None
        self._is_open = False
        self._blocks: dict[str, list[_Block]] = {}  # by the field that contained them
        self._opaque: str | None = None

    def add_text(self, text: str, field: str) -> list[Event]:
        if not text:
            return []
        self._is_open = True
        self._field = self._field or field
        return [ReasoningDelta(text, self._field)]

    def apply(self, delta: Fields, *, complete: bool) -> list[Event]:
        for name in REASONING_LISTS:
            for block in delta.list(name):
                blocks, fields = self._blocks.setdefault(name, []), dict(block.raw)
                if blocks and not complete and blocks[-1].accepts(fields):
                    blocks[-1].add(fields)
                else:
                    blocks.append(_Block(fields))
        self._opaque = delta.text("reasoning_opaque") or self._opaque
        for field in REASONING_TEXTS:  # some servers send the same text in two fields
            if text := delta.text(field):
                return self.add_text(text, field)
        if self._field in REASONING_TEXTS:
            return []  # the lists repeat the text
        if details := delta.list("reasoning_details"):
            return self.add_text(_join_texts(details, "text", "summary"), "reasoning_details")
        return self.add_text(_join_texts(delta.list("thinking_blocks"), "thinking"), "thinking_blocks")

    def end(self) -> list[Event]:
        """Return the end of the block, with the proofs that have arrived since the last one."""
        if not (self._is_open or self._blocks or self._opaque):
            return []
        proofs: Json = {name: [block.to_dict() for block in blocks] for name, blocks in self._blocks.items()}
        if self._opaque:
            proofs["reasoning_opaque"] = self._opaque
        self._is_open, self._blocks, self._opaque = False, {}, None
        return [ReasoningEnded(self._field, proofs or None)]


# The texts that are streamed in fragments, by the type of the block. Other blocks are sent as a whole.
_BLOCK_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}


class _Block:
    """A block of reasoning with a proof: the fragments of its text, and its other fields."""

    __slots__ = ("fields", "text_field", "texts")

    def __init__(self, fields: Json) -> None:
        self.text_field = _BLOCK_TEXTS.get(str(fields.get("type")))
        self.texts: list[str] = []
        self.fields = fields
        self.add(fields)

    def accepts(self, fields: Json) -> bool:
        """Return whether a fragment continues this block, rather than beginning the next one."""
        if self.text_field is None or self.fields.get("type") != fields.get("type"):
            return False
        if self.fields.get("index") is not None or fields.get("index") is not None:
            return bool(self.fields.get("index") == fields.get("index"))
        return not self.fields.get("signature")

    def add(self, fields: Json) -> None:
        text = fields.get(self.text_field or "")
        if isinstance(text, str):
            self.texts.append(text)
        self.fields = self.fields | {name: value for name, value in fields.items() if value is not None}

    def to_dict(self) -> Json:
        return {**self.fields, self.text_field: "".join(self.texts)} if self.text_field else self.fields


class CallCollector:
    """Collects the tool calls of one response from their deltas.

    A delta belongs to the call with its index. Servers also omit indexes or ids, repeat both in every delta,
    or send all calls with the index 0: then a new id, or a whole second call, begins another call.
    """

    def __init__(self, errors: list[BridgeError]) -> None:
        self._emitter = CallEmitter(errors)
        self._items: list[Item] = []
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    @property
    def has_pending_calls(self) -> bool:
        return self._emitter.has_pending_calls

    def apply(self, call: Fields, index: int | None) -> None:
        function = call.inner("function") or call.inner("custom") or call
        arguments = encode_arguments(function.raw.get("arguments")) or function.text("input") or ""
        id_, name = call.text("id") or None, function.text("name") or None
        item = self._find(index, id_, name, arguments)
        item.name = item.name or name
        item.custom = item.custom or "custom" in call
        item.signatures = read_call_signatures(call.raw) or item.signatures
        if arguments:
            item.arguments.append(arguments)

    def add_arguments(self, index: int, arguments: str) -> None:
        item = self._by_index.get(index) or self._find(index, None, None, arguments)
        if arguments:
            item.arguments.append(arguments)

    def finish(self, ending: Literal["complete", "cut", "failed"]) -> list[Event]:
        """Emit all calls.

        If the response was cut, only calls with complete arguments are offered; if it failed, none.
        """
        events: list[Event] = []
        for item in self._items:
            is_complete = ending == "cut" and _is_object("".join(item.arguments))
            events += self._emitter.finish_open_call(item, complete=is_complete or ending == "complete")
        self._items = []
        return events

    def _find(self, index: int | None, id_: str | None, name: str | None, arguments: str) -> Item:
        if index is not None:
            item = self._by_index.get(index)
        elif id_ is not None:
            item = self._by_id.get(id_)
        else:
            last = self._items[-1] if self._items else None
            item = last if last is not None and name in (None, last.name) else None
        if item is None or _is_another(item, id_, name, arguments):
            item = Item("call", index, id_)
            item.call_id = self._unused_id(id_)
            self._items.append(item)
        if id_ is not None:
            item.id = item.id or id_
            item.call_id = item.call_id or self._unused_id(id_)
            self._by_id.setdefault(id_, item)
        if index is not None:
            self._by_index[index] = item
        return item

    def _unused_id(self, id_: str | None) -> str | None:
        """Return the id, changed if another call has it: some servers give all calls of an answer one id."""
        return f"{id_}_{len(self._items)}" if id_ in self._by_id else id_


def _is_another(item: Item, id_: str | None, name: str | None, arguments: str) -> bool:
    """Return whether a delta with the index of a call is another call, because the index is wrong."""
    if name is None:
        return False
    if id_ is not None and item.id is not None:
        return id_ != item.id
    has_ended = bool(item.arguments) and item.arguments[-1].rstrip().endswith("}")
    return id_ is None and has_ended and _is_object(arguments)


def _is_object(text: str) -> bool:
    try:
        return isinstance(read_json(text), dict)
    except ValueError:
        return False
