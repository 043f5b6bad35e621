"""The calls of one answer: each told once, and offered only where it is whole and still to be answered."""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.core.errors import BridgeError, BrokenCall
from tollbridge.core.events import Event, ToolCall
from tollbridge.core.json import read_json
from tollbridge.gateways.openresponses import wire
from tollbridge.gateways.openresponses.items import Item
from tollbridge.gateways.openresponses.wire import Fields

# What a call's own status says of it.
UNFINISHED = frozenset({"in_progress", "incomplete"})
GIVEN_UP = frozenset({"failed", "cancelled"})
# The items that answer a call: the server has run it.
ANSWERS = frozenset({"function_call_output", "custom_tool_call_output"})


class Calls:
    """What makes no sense is added to `broken`."""

    def __init__(self, broken: list[BridgeError]) -> None:
        self._broken = broken
        self._told: set[str] = set()
        self._wanted: set[str] = set()  # those of them that somebody is to run
        self._answered: set[str] = set()
        self._handed: set[str] = set()  # told already, and not to be taken back
        # Told when something follows them: a server that answers a call itself does so next.
        self._held: list[ToolCall] = []

    @property
    def wanted(self) -> bool:
        return bool(self._wanted - self._answered)

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def announce(self, item: Item, given: Fields) -> None:
        item.name = item.name or given.text("name")
        item.custom = given.text("type") == "custom_tool_call"
        item.proof = wire.call_proof(given) or item.proof
        arguments = wire.as_text(given.raw.get("arguments")) or given.text("input")
        if arguments and not item.arguments:
            item.arguments.append(arguments)

    def answer(self, given: Fields) -> None:
        """The server has run a call: nobody else is to run it, unless it was told before."""
        self._answered.update({given.text("call_id") or ""} - self._handed)

    def end(self, item: Item, given: Fields, ending: str | None) -> list[Event]:
        """A call in full: at its own end, or in a final answer that ended as `ending` says."""
        item.name = item.name or given.text("name")
        item.proof = wire.call_proof(given) or item.proof
        item.custom = given.text("type") == "custom_tool_call"
        text = given.text("input") if item.custom else wire.as_text(given.raw.get("arguments"))
        if given.text("status") in UNFINISHED:
            item.final_arguments = text or item.final_arguments
            return []
        if given.text("status") in GIVEN_UP:
            item.closed = True
            return self._withhold(item, text)
        if ending is None:
            item.done = True
            if not (item.custom or text or item.final_arguments or item.arguments):
                return []  # left open: there are servers that give the arguments only in the final answer
        item.closed = True
        return self._tell(item, text) if _is_vouched(item, text, ending) else self._withhold(item, text)

    def unfinished(self, item: Item, *, complete: bool) -> list[Event]:
        """A call that was never closed. Only an answer that is complete vouches for it."""
        return self._tell(item, None) if complete else self._withhold(item, None)

    def in_order(self, found: list[Event], *, last: bool) -> list[Event]:
        """Calls that are held are told before whatever follows them, and at the end."""
        told: list[Event] = []
        for event in found:
            if isinstance(event, ToolCall):
                self._held.append(event)
            else:
                told += [*self._released(), event]
        return told + self._released() if last else told

    def _released(self) -> list[Event]:
        held, self._held = self._held, []
        self._handed.update(call.call_id for call in held)
        return [
            msgspec.structs.replace(call, offered=False) if call.call_id in self._answered else call
            for call in held
        ]

    def _tell(self, item: Item, given: str | None) -> list[Event]:
        """The item's own arguments before those of `.done`, and those before the deltas."""
        call_id = self._id(item)
        if call_id in self._told:
            return []
        self._told.add(call_id)
        self._wanted.add(call_id)
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

    def _withhold(self, item: Item, given: str | None) -> list[Event]:
        """Nobody is to run it; what is known of it is told."""
        call_id = self._id(item)
        if call_id in self._told or not item.name:
            return []
        self._told.add(call_id)
        text = given or item.final_arguments or "".join(item.arguments)
        value = None if item.custom else _object(text)
        return [ToolCall(call_id, item.name, text if value is None else value, offered=False)]

    def _id(self, item: Item) -> str:
        return item.call_id or item.id or f"call_{len(self._told) + 1}"


def _is_vouched(item: Item, text: str | None, ending: str | None) -> bool:
    """Whether a call is whole: it has ended, its answer is complete, or all of its arguments are there though
    the answer was cut after them."""
    match ending:
        case None | "completed":
            return True
        case "incomplete" if not item.done:
            return bool(text) and not item.custom and _object(text or "") is not None
        case _:
            return item.done and ending != "failed"


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    return {} if value is None else value if isinstance(value, dict) else None
