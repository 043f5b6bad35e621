"""OpenResponses bytes to events: one decoder a turn, one list of events a network read."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, assert_never

import msgspec

from tollbridge.protocols.errors import error_from
from tollbridge.protocols.openresponses import wire
from tollbridge.protocols.openresponses.items import (
    ANSWERS,
    KINDS,
    CallEmitter,
    Item,
    ItemKind,
    Items,
    MediaEmitter,
    TextEmitter,
    TextEvent,
)
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.protocols.sse import FRAME_LIMIT, Frame, SseDecoder, UnknownNames, too_large
from tollbridge.types.errors import BridgeError, Disconnected, ServerFailed, StreamError
from tollbridge.types.events import Data, Event, Failed, Finished, FinishReason
from tollbridge.types.text import read_json
from tollbridge.types.usage import Usage

# SECTION One answer as it is told: wire events in, events of ours out, each thing said once.
#
# Servers say things twice (delta, `.done`, item, final response) or only once in any of these places. What was
# told is never told again, and what a fuller copy adds is told when it comes.

INCOMPLETE: dict[str, FinishReason] = {
    "content_filter": "content-filter",
    "length": "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
}

# How a response can end: by its status, else by the name of the event that carries it.
ENDINGS: dict[str, Literal["finish", "incomplete", "abort"]] = {
    "completed": "finish",
    "incomplete": "incomplete",
    "cancelled": "abort",
}
STATUSES = {*ENDINGS, "failed"}


# The parts of a content that are reasoning, whatever item they are said to be of.
THOUGHTS = frozenset({"reasoning", "reasoning_text", "summary_text"})


class ResponseState:
    """Belongs to one answer. Once `over`, nothing more is said."""

    def __init__(self) -> None:
        self.over = False
        self.unknown = UnknownNames()
        self._known = False  # whether anything was understood
        self._items = Items()
        self._telling = TextEmitter()
        self._broken: list[BridgeError] = []  # calls that make no sense, told after everything else
        self._calls = CallEmitter(self._broken)
        self._extras = MediaEmitter(self._broken)
        # An error without a word, while `response.failed` may explain it.
        self._error: BridgeError | None = None

    def say(
        self,
        kind: TextEvent | Literal["arguments"],
        index: int | None,
        item_id: str | None,
        part: int | None,
        text: str,
    ) -> list[Event]:
        """A piece of text, reasoning or arguments."""
        self._known = True
        if kind == "arguments":
            self._items.at("call", index, item_id).arguments.append(text)
            return []
        if not text:
            return []
        item = self._items.at("message" if kind == "text" else "reasoning", index, item_id)
        found = self._telling.tell(kind, item, part, text)
        return self._calls.in_order(found, last=False) if self._calls.holding else found

    def take(self, event: Fields) -> list[Event]:
        """Any event of the wire."""
        return [] if self.over else self._calls.in_order(self._take(event), last=self.over)

    def _take(self, event: Fields) -> list[Event]:
        meaning = wire.meaning(event)
        self._known = self._known or meaning is not None
        index, item_id = event.number("output_index"), event.text("item_id") or event.text("id")
        match meaning:
            case "text" | "arguments":
                part = event.number("content_index")
                return self.say(meaning, index, item_id, part, event.text("delta") or "")
            case "reasoning":
                part = event.number("summary_index")
                return self.say(wire.thought(event), index, item_id, part, event.text("delta") or "")
            case "text done":
                item = self._items.at("message", index, item_id, ending=True)
                full = event.text("text") or event.text("refusal") or ""
                return self._telling.text_done(item, event.number("content_index"), full)
            case "part done":
                return self._part(index, item_id, event.number("content_index"), event.inner("part"))
            case "reasoning done":
                item = self._items.at("reasoning", index, item_id, ending=True)
                number = event.number("summary_index")
                if number is None and event.number("content_index") == 0:
                    number = 0  # raw reasoning has one part, whatever its deltas count
                return self._telling.reasoning_done(
                    wire.thought(event), item, number, event.text("text") or ""
                )
            case "arguments done":
                full = wire.as_text(event.raw.get("arguments")) or event.text("input") or ""
                self._items.at("call", index, item_id, ending=True).final_arguments = full
                return []
            case "item added":
                self._announce(index, event.inner("item"))
                return []
            case "item done":
                return self._item(event.inner("item"), index)
            case "annotation":
                return self._extras.cite(event.inner("annotation"))
            case "ended":
                return self._end(event)
            case "error":
                return self._fail(error_from(event.raw), wait=not wire.explains(event))
            case "ignored":
                return []
            case None:
                self.unknown.note(event.text("type") or "no type")
                return []
            case _:
                assert_never(meaning)

    def close(self) -> list[Event]:
        """The bytes have ended. An answer that was not ended by its gateway was cut off."""
        if self.over:
            return []
        if self.unknown and not self._known:
            return self.cut(StreamError("The gateway's answer is not an OpenResponses stream."))
        return self.cut(Disconnected("The gateway closed the stream before the answer was complete."))

    def cut(self, error: BridgeError) -> list[Event]:
        """The answer breaks off here."""
        return self._calls.in_order(self._unfinished() + self._fail(self._error or error), last=True)

    def answer(self, body: Fields) -> list[Event]:
        """A whole answer that came as one JSON body."""
        if "output" not in body and "status" not in body:
            error = (
                error_from(body.raw)
                if wire.is_error(body)
                else StreamError("The gateway answered with JSON that is not a response.")
            )
            return self._fail(error)
        if body.text("status") in ("queued", "in_progress"):
            return self._fail(StreamError("The gateway put the answer off: it runs in the background."))
        return self._calls.in_order(self._end(body), last=True)

    # Items

    def _announce(self, index: int | None, item: Fields) -> None:
        kind = KINDS.get(item.text("type") or "")
        if kind is None:
            return
        call_id = item.text("call_id") if kind == "call" else None
        opened = self._items.open(kind, index, item.text("id"), call_id)
        if kind == "call":
            self._calls.announce(opened, item)

    def _part(self, index: int | None, item_id: str | None, number: int | None, part: Fields) -> list[Event]:
        """A part of a message, or of reasoning: servers call its type what they like."""
        full = wire.texts([part])
        if part.text("type") in THOUGHTS or self._items.kind_at(index, item_id) == "reasoning":
            item = self._items.at("reasoning", index, item_id, ending=True)
            return self._telling.tell("reasoning", item, None, item.said.rest(full))
        item = self._items.at("message", index, item_id, ending=True)
        return self._telling.text_done(item, number, full) + self._extras.cited([part])

    def _item(self, item: Fields, index: int | None) -> list[Event]:
        """An item at its own end."""
        kind = KINDS.get(item.text("type") or "")
        if kind is None:
            return self._extra(item)
        known = self._items.ended(kind, index, item.text("id"), item.text("call_id"))
        if kind != "message":
            return self._whole(known, item, None)
        content = item.list("content")
        return self._telling.message(known, wire.texts(content)) + self._extras.cited(content)

    def _whole(self, known: Item, item: Fields, ending: str | None) -> list[Event]:
        """Reasoning or a call, complete."""
        if known.kind == "reasoning":
            return self._telling.reasoning(known, item)
        return self._calls.end(known, item, ending)

    def _extra(self, item: Fields) -> list[Event]:
        type_ = item.text("type")
        if type_ in ANSWERS:
            self._calls.answer(item)
        return self._extras.image(item) if type_ == "image_generation_call" else []

    # Endings

    def _end(self, event: Fields) -> list[Event]:
        response = event.inner("response") or event
        named = (event.text("type") or "response.completed").removeprefix("response.")
        status = response.text("status")
        if named == "failed" or status not in STATUSES:
            status = named if named in STATUSES else "completed"
        usage = wire.read_usage(response.inner("usage"))
        if status == "failed" or (response.raw.get("error") and status != "cancelled"):
            problem = response.raw.get("error")
            error = error_from(problem) if problem else None
            error = error or self._error or ServerFailed("The gateway reported a failure and gave no reason.")
            return [*self._output(response, "failed"), *self._unfinished(), *self._fail(error, usage)]
        found = self._output(response, status)
        found += self._unfinished(complete=status == "completed")
        reason: FinishReason = "tool-calls" if self._calls.wanted else "stop"
        if status == "incomplete":
            reason = INCOMPLETE.get(response.inner("incomplete_details").text("reason") or "", "other")
        elif status == "cancelled":
            reason = "other"
        self.over = True
        found.append(
            Finished(
                reason,
                ENDINGS[status],
                usage,
                response_id=response.text("id"),
                model=response.text("model"),
            )
        )
        return found + [Failed(error) for error in self._broken]

    def _output(self, response: Fields, ending: str) -> list[Event]:
        """What the final answer has beyond what was told."""
        output = response.list("output")
        kinds = [KINDS.get(item.text("type") or "") for item in output]
        signs: dict[int, tuple[ItemKind, str | None, str | None]] = {
            position: (kind, item.text("id"), item.text("call_id"))
            for position, (kind, item) in enumerate(zip(kinds, output, strict=True))
            if kind is not None
        }
        known = self._items.match(signs)
        texts = [wire.texts(item.list("content")) for item in output]
        messages = [position for position, kind in enumerate(kinds) if kind == "message"]
        added = self._telling.rests([texts[position] for position in messages])
        rests = dict(zip(messages, added, strict=True)) if added is not None else {}
        found: list[Event] = []
        for position, item in enumerate(output):
            if position not in known:
                found += self._extra(item)
            elif kinds[position] == "message":
                one = known[position]
                rest = rests.get(position, one.said.rest(texts[position]))
                found += self._telling.rest_of(one, rest) + self._extras.cited(item.list("content"))
            else:
                found += self._whole(known[position], item, ending)
        return found

    def _unfinished(self, *, complete: bool = False) -> list[Event]:
        open_ = [item for item in self._items if item.kind == "call" and not item.closed]
        return [event for item in open_ for event in self._calls.unfinished(item, complete=complete)]

    def _fail(self, error: BridgeError, usage: Usage | None = None, *, wait: bool = False) -> list[Event]:
        if wait:
            self._error = error
            return []
        self.over = True
        error.usage = usage
        return [Failed(each) for each in (*self._broken, error)]


# SECTION OpenResponses bytes to events: one decoder a turn, one list of events a network read.

# What deltas of one run have in common, each looked at on its own: that is cheaper than tuples.
_PLACE = (type, attrgetter("output_index"), attrgetter("item_id"), attrgetter("part"))
_piece = attrgetter("delta")
_KINDS: dict[type[wire.Delta], TextEvent | Literal["arguments"]] = {
    wire.TextDelta: "text",
    wire.ReasoningDelta: "reasoning",
    wire.ReasoningTextDelta: "reasoning",
    wire.SummaryDelta: "summary",
    wire.ArgumentsDelta: "arguments",
}
_BOM = b"\xef\xbb\xbf"


class StreamDecoder:
    """Takes the bytes of one answer, streamed or as one JSON body, however they are cut. Never raises."""

    def __init__(self, limit: int = FRAME_LIMIT, *, siblings: bool = False) -> None:
        """With `siblings`, a body that answers another question (models, token count) is no error."""
        self._limit = limit
        self._siblings = siblings
        self._turn = ResponseState()
        self._sse = SseDecoder(limit)
        self._start: bytes | None = b""  # until the first byte that is no white space tells what this is
        self._body: list[bytes] = []  # of an answer that is not streamed
        self._streamed = True
        self._size = 0
        self._understood = 0  # frames that were
        self._garbled = 0  # frames that were not JSON

    @property
    def over(self) -> bool:
        """Whether the answer has ended. The gateway may still hold the connection; nothing more will come."""
        return self._turn.over

    @property
    def unknown(self) -> UnknownNames:
        """Events that were not understood, by name."""
        return self._turn.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._turn.over:
            return []
        if self._start is not None:
            chunk = self._sniff(chunk)
        if not self._streamed:
            return self._collect(chunk)
        block = self._sse.complete(chunk)
        found = self._read_run(block)
        if found is None:
            found = self._read(self._sse.cut(block))
        return self._checked(found)

    def take(self, event: object) -> list[Event]:
        """An event that somebody else has already parsed."""
        return self._turn.take(Fields(event))

    def close(self) -> list[Event]:
        """The bytes have ended."""
        if self._turn.over:
            return []
        if not self._streamed:
            return self._answer(b"".join(self._body))
        garbled = self._garbled
        found = self._checked(self._read(self._sse.close()))
        if self._turn.over:
            return found
        self._garbled = garbled  # a last frame that breaks off was cut, and is not to blame
        if not self._understood and (self._sse.strange or self._garbled):
            return [*found, *self._fail("The gateway's answer is not an event stream.")]
        if self._garbled:
            return [
                *found,
                *self._turn.cut(StreamError("The gateway's stream broke off in bytes that make no sense.")),
            ]
        return found + self._turn.close()

    def _sniff(self, chunk: bytes) -> bytes:
        """Content types lie: a body that opens with a brace is JSON, whatever it was called."""
        start = (self._start or b"") + chunk
        seen = start.lstrip(b" \t\r\n")
        if _BOM.startswith(seen):
            # White space means nothing in either, and may go on for ever: the last of it stands for all.
            self._start = seen or start[-1:]
            return b""
        self._start = None
        self._streamed = not seen.removeprefix(_BOM).startswith((b"{", b"["))
        return start

    def _collect(self, chunk: bytes) -> list[Event]:
        self._body.append(chunk)
        self._size += len(chunk)
        if self._size <= self._limit:
            return []
        self._turn.over = True
        return [Failed(too_large(self._limit))]

    def _answer(self, body: bytes) -> list[Event]:
        try:
            value = read_json(body.strip().removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return self._fail("The gateway's answer is JSON that breaks off or makes no sense.")
        sibling = _sibling(Fields(value)) if self._siblings else []
        self._turn.over = bool(sibling)
        return sibling or self._turn.answer(Fields(value))

    def _read_run(self, block: bytes) -> list[Event] | None:
        """The event of a block that is one run of deltas of one item: nearly every block of a long answer."""
        payloads = self._sse.payloads(block) if block else None
        if not payloads:
            return None
        try:
            deltas = list(map(wire.read_delta, payloads))
        except (msgspec.MsgspecError, ValueError):
            return None
        if any(len(set(map(sign, deltas))) != 1 for sign in _PLACE):
            return None
        return self._tell(deltas)

    def _read(self, frames: list[Frame]) -> list[Event]:
        """Frames of any kind. Deltas in a row that belong together become one event."""
        found: list[Event] = []
        run: list[wire.Delta] = []
        for _, data in frames:
            try:
                delta = wire.read_delta(data)
            except (msgspec.MsgspecError, ValueError):
                found += self._tell(run)
                found += self._other(data)
                if self._turn.over:
                    break
                continue
            if run and any(sign(delta) != sign(run[0]) for sign in _PLACE):
                found += self._tell(run)
            run.append(delta)
        return found + self._tell(run)

    def _tell(self, run: list[wire.Delta]) -> list[Event]:
        """The one event of a run, which is used up."""
        if not run:
            return []
        self._understood += len(run)
        first, text = run[0], "".join(map(_piece, run))
        run.clear()
        return self._turn.say(_KINDS[type(first)], first.output_index, first.item_id, first.part, text)

    def _other(self, data: bytes) -> list[Event]:
        """Everything but a well-formed delta."""
        text = data.strip()
        if not text:
            return []
        if text == b"[DONE]":
            self._understood += 1
            return self._turn.close()
        try:
            value = read_json(text)
        except ValueError:
            self._garbled += 1
            return []
        self._understood += 1
        return self._turn.take(Fields(value))

    def _checked(self, found: list[Event]) -> list[Event]:
        if self._sse.error is not None and not self._turn.over:
            found += self._turn.cut(self._sse.error)
        return found

    def _fail(self, sentence: str) -> list[Event]:
        self._turn.over = True
        return [Failed(StreamError(sentence))]


def _sibling(body: Fields) -> list[Event]:
    """The answer to “which models are there?” or to “how many tokens would that be?”."""
    match body.text("object"):
        case "list":
            return [Data("models", [model.text("id") for model in body.list("data")]), Finished("stop")]
        case "response.input_tokens":
            return [Finished("stop", usage=wire.read_usage(body))]
        case _:
            return []
