"""One answer as it is told: wire events in, events of ours out, each thing said once.

Servers say things twice (delta, `.done`, item, final response) or only once in any of these places. What was
told is never told again, and what a fuller copy adds is told when it comes.
"""

from __future__ import annotations

from typing import Literal, assert_never

from tollbridge.core.errors import BridgeError, Disconnected, ServerFailed, StreamError
from tollbridge.core.events import Event, Failed, Finished, FinishReason
from tollbridge.core.usage import Usage
from tollbridge.gateways.openresponses import wire
from tollbridge.gateways.openresponses.calls import ANSWERS, Calls
from tollbridge.gateways.openresponses.extras import Extras
from tollbridge.gateways.openresponses.items import KINDS, Item, ItemKind, Items
from tollbridge.gateways.openresponses.telling import Telling, Words
from tollbridge.gateways.openresponses.wire import Fields
from tollbridge.gateways.refusal import error_from
from tollbridge.gateways.unknown import Unknown

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


class Turn:
    """Belongs to one answer. Once `over`, nothing more is said."""

    def __init__(self) -> None:
        self.over = False
        self.unknown = Unknown()
        self._known = False  # whether anything was understood
        self._items = Items()
        self._telling = Telling()
        self._broken: list[BridgeError] = []  # calls that make no sense, told after everything else
        self._calls = Calls(self._broken)
        self._extras = Extras(self._broken)
        # An error without a word, while `response.failed` may explain it.
        self._error: BridgeError | None = None

    def say(
        self,
        kind: Words | Literal["arguments"],
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
