"""One answer as it is told: wire events in, events of ours out, each thing said once.

Servers say things twice (delta, `.done`, item, final response) or only once in any of these places. What was
told is never told again, and what a fuller copy adds is told when it comes.
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

import msgspec

from tollbridge.core.errors import BridgeError, BrokenCall, Disconnected, ServerFailed, StreamError
from tollbridge.core.events import (
    Corrected,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
)
from tollbridge.core.json import read_json
from tollbridge.core.usage import Usage
from tollbridge.gateways.openresponses import wire
from tollbridge.gateways.openresponses.extras import Extras
from tollbridge.gateways.openresponses.items import KINDS, Item, Items
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


class Turn:
    """Belongs to one answer. Once `over`, nothing more is said."""

    def __init__(self) -> None:
        self.over = False
        self.unknown = Unknown()
        self._known = False  # whether anything was understood
        self._items = Items()
        self._last: dict[str, Item] = {}  # what was told last of text, and of reasoning
        self._calls: set[str] = set()
        self._reasoning_ended: set[int] = set()
        self._broken: list[BridgeError] = []  # calls that make no sense, told after everything else
        self._extras = Extras(self._broken)
        # An error without a word, while `response.failed` may explain it.
        self._error: BridgeError | None = None

    def say(
        self, kind: str, index: int | None, item_id: str | None, part: int | None, text: str
    ) -> list[Event]:
        """A piece of text, reasoning or arguments."""
        self._known = True
        if kind == "arguments":
            self._items.at("call", index, item_id).arguments.append(text)
            return []
        if not text:
            return []
        item = self._items.at("message" if kind == "text" else "reasoning", index, item_id)
        return self._tell(kind, item, part, text)

    def take(self, event: Fields) -> list[Event]:
        """Any event of the wire."""
        if self.over:
            return []
        meaning = wire.meaning(event)
        self._known = self._known or meaning is not None
        index, item_id = event.number("output_index"), event.text("item_id") or event.text("id")
        match meaning:
            case "text" | "reasoning" | "arguments":
                part = event.number("summary_index" if meaning == "reasoning" else "content_index")
                return self.say(meaning, index, item_id, part, event.text("delta") or "")
            case "text done":
                full = event.text("text") or event.text("refusal") or ""
                return self._part(index, item_id, event.number("content_index"), full)
            case "part done":
                part_ = event.inner("part")
                if part_.text("type") == "reasoning_text":
                    return []
                said = self._part(index, item_id, event.number("content_index"), wire.texts([part_]))
                return said + self._extras.cited([part_])
            case "reasoning done":
                item = self._items.at("reasoning", index, item_id)
                full, number = event.text("text") or "", event.number("summary_index")
                if number is None and event.number("content_index") == 0:
                    number = 0  # raw reasoning has one part, whatever its deltas count
                if (number or 0) in item.parts:
                    return self._done("reasoning", item, number, full)
                return self._tell("reasoning", item, number, "" if item.said.length else full)
            case "arguments done":
                full = wire.as_text(event.raw.get("arguments")) or event.text("input") or ""
                self._items.at("call", index, item_id).final_arguments = full
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
        return self._unfinished() + self._fail(self._error or error)

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
        return self._end(body)

    # Items

    def _announce(self, index: int | None, item: Fields) -> None:
        kind = KINDS.get(item.text("type") or "")
        if kind is None:
            return
        call_id = item.text("call_id") if kind == "call" else None
        opened = self._items.open(kind, index, item.text("id"), call_id)
        opened.name = opened.name or item.text("name")
        opened.custom = item.text("type") == "custom_tool_call"
        if kind == "call" and not opened.arguments:
            given = wire.as_text(item.raw.get("arguments")) or item.text("input")
            if given:
                opened.arguments.append(given)

    def _item(self, item: Fields, index: int | None, position: int | None = None) -> list[Event]:
        """A complete item: at its own end, or (with its position) in the final answer."""
        type_ = item.text("type") or ""
        kind = KINDS.get(type_)
        if kind is None:
            return self._extras.image(item) if type_ == "image_generation_call" else []
        id_, call_id = item.text("id"), item.text("call_id")
        if position is not None:
            known = self._items.match(kind, position, id_, call_id)
        else:
            known = self._items.ended(kind, index, id_, call_id)
        if kind == "message":
            rest = known.said.rest(wire.texts(item.list("content")))
            known.said.add(rest)
            known.closed = True
            return ([TextDelta(rest)] if rest else []) + self._extras.cited(item.list("content"))
        if kind == "reasoning":
            return self._reasoning(known, item)
        known.name = known.name or item.text("name")
        known.proof = {name: item.raw[name] for name in wire.CALL_PROOFS if item.raw.get(name)} or known.proof
        known.custom = type_ == "custom_tool_call"
        given = item.text("input") if known.custom else wire.as_text(item.raw.get("arguments"))
        if item.text("status") in ("in_progress", "incomplete"):
            known.final_arguments = given or known.final_arguments
            return []
        if position is None and not (known.custom or given or known.final_arguments or known.arguments):
            return []  # left open: there are servers that give the arguments only in the final answer
        known.closed = True
        return self._call(known, given)

    def _tell(self, kind: str, item: Item, part: int | None, text: str) -> list[Event]:
        if not text:
            return []
        item.tell(text, part or 0)
        self._last[kind] = item
        return [TextDelta(text) if kind == "text" else ReasoningDelta(text, _block(item, part))]

    def _part(self, index: int | None, item_id: str | None, part: int | None, full: str) -> list[Event]:
        item = self._items.at("message", index, item_id)
        if (part or 0) in item.parts:
            return self._done("text", item, part, full)
        return self._tell("text", item, part, full)

    def _done(
        self, kind: Literal["text", "reasoning"], item: Item, part: int | None, full: str
    ) -> list[Event]:
        """A part in full, of which something was told: its rest, or what it should have been.

        Only the part that was told last can be corrected, and only where the event names it: of a server that
        numbers nothing, it may be the end of a longer text."""
        rest = item.parts[part or 0].rest(full)
        if rest or part is None or self._last.get(kind) is not item:
            return self._tell(kind, item, part, rest)
        void = item.correct(full, part)
        block = _block(item, part) if kind == "reasoning" else None
        return [Corrected(full, void, kind, block)] if void else []

    def _reasoning(self, known: Item, item: Fields) -> list[Event]:
        """One server streams as summary what it then gives as content: either may copy what was told."""
        found: list[Event] = []
        copies = [wire.texts(item.list("content")), wire.texts(item.list("summary"))]
        for copy in copies:
            rest = known.said.rest(copy)
            if rest:
                known.said.add(rest)
                found.append(ReasoningDelta(rest, known.id))
                break
        proof = {name: said for name in wire.PROOFS if (said := item.text(name))}
        if (proof or known.said.length) and id(known) not in self._reasoning_ended:
            self._reasoning_ended.add(id(known))
            metadata = {"id": item.text("id"), **proof} if proof else None
            found.append(ReasoningEnded(known.id, metadata))
        known.closed = True
        return found

    def _call(self, item: Item, given: str | None) -> list[Event]:
        """A complete call: the item's own arguments before those of `.done`, and those before the deltas."""
        call_id = item.call_id or item.id or f"call_{len(self._calls) + 1}"
        if call_id in self._calls:
            return []
        self._calls.add(call_id)
        name = item.name or ""
        copies = [given, item.final_arguments, "".join(item.arguments)]
        item.arguments.clear()
        text = next((copy for copy in copies if copy and copy.strip()), "")
        if item.custom:
            return [ToolCall(call_id, name, text, metadata=item.proof)]
        for copy in filter(None, copies):
            value = _object(copy)
            if value is not None and name:
                return [ToolCall(call_id, name, value, metadata=item.proof)]
        if not text and name:
            return [ToolCall(call_id, name, {}, metadata=item.proof)]
        problem = (
            f"the tool {name} with arguments that are not a JSON object" if name else "a tool without a name"
        )
        message = f"The model called {problem}. Ask it to try again."
        self._broken.append(BrokenCall(message, calls=(call_id,)))
        return [ToolCall(call_id, name, text, offered=False, metadata=item.proof)]

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
            return [*map(_withheld, self._output(response)), *self._unfinished(), *self._fail(error, usage)]
        found = self._output(response)
        found += self._unfinished(complete=status == "completed")
        reason: FinishReason = "tool-calls" if self._calls else "stop"
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

    def _output(self, response: Fields) -> list[Event]:
        """What the final answer has beyond what was told."""
        items = enumerate(response.list("output"))
        return [event for position, item in items for event in self._item(item, None, position)]

    def _unfinished(self, *, complete: bool = False) -> list[Event]:
        """Calls that were never closed. Only an answer that is complete vouches for them."""
        found: list[Event] = []
        for item in self._items:
            if item.kind != "call" or item.closed:
                continue
            if complete:
                found += self._call(item, None)
            elif item.name:
                text = item.final_arguments or "".join(item.arguments)
                found.append(ToolCall(item.call_id or item.id or "", item.name, text, offered=False))
        return found

    def _fail(self, error: BridgeError, usage: Usage | None = None, *, wait: bool = False) -> list[Event]:
        if wait:
            self._error = error
            return []
        self.over = True
        return [*(Failed(broken) for broken in self._broken), Failed(error, usage)]


def _withheld(event: Event) -> Event:
    """A call of an answer that failed is not for anyone to run."""
    return msgspec.structs.replace(event, offered=False) if isinstance(event, ToolCall) else event


def _block(item: Item, part: int | None) -> str | None:
    """A summary of several parts is several blocks of thinking."""
    return f"{item.id}:{part}" if part and item.id else item.id


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    return {} if value is None else value if isinstance(value, dict) else None
