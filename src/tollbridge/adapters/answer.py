"""One answer as an editor gets it: its own names, calls it can answer, reasoning it can bring back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tollbridge.adapters.carrying import Carrying
from tollbridge.adapters.parts import parts_of
from tollbridge.core.arguments import mend, wrap
from tollbridge.core.errors import BridgeError, BrokenCall
from tollbridge.core.events import Event, ToolCall
from tollbridge.core.messages import Part, ToolCallPart
from tollbridge.core.reasoning import Origin


class AnswerParts:
    """Belongs to one answer. `name` gives a tool the name its editor knows; `origin` is who answers."""

    def __init__(
        self,
        name: Callable[[str], str] | None = None,
        origin: Origin | None = None,
        *,
        reasoning: bool = True,
    ) -> None:
        self._reasoning = reasoning
        self._name = name or (lambda given: given)
        self._carrying = Carrying(origin) if origin is not None else None
        self._broken: dict[str, ToolCall] = {}
        self.changes: list[str] = []

    def take(self, events: Iterable[Event]) -> list[Part]:
        found = [self._renamed(event) for event in events]
        for event in found:
            if isinstance(event, ToolCall) and not event.offered and isinstance(event.input, str):
                self._broken[event.call_id] = event
        found = found if self._carrying is None else self._carrying.take(found)
        return parts_of(found, reasoning=self._reasoning)

    def close(self, error: BridgeError | None = None) -> tuple[list[Part], BridgeError | None]:
        """What is left to tell, and the failure that remains. A call whose arguments make no sense is none:
        the editor's loop gets it, its tool refuses it, and the model reads why."""
        parts: list[Part] = []
        if isinstance(error, BrokenCall) and all(self._is_named(call_id) for call_id in error.calls):
            parts = [self._handed_on(self._broken[call_id]) for call_id in error.calls]
            error = None
        if self._carrying is not None and error is None:
            parts += self._carrying.close()
        return parts, error

    def _renamed(self, event: Event) -> Event:
        if not isinstance(event, ToolCall) or self._name(event.name) == event.name:
            return event
        return ToolCall(event.call_id, self._name(event.name), event.input, event.offered, event.metadata)

    def _is_named(self, call_id: str) -> bool:
        return call_id in self._broken and bool(self._broken[call_id].name)

    def _handed_on(self, call: ToolCall) -> ToolCallPart:
        given = mend(call.input)
        done = "mended" if given is not None else "handed on as text, for the tool to refuse"
        self.changes.append(f"The arguments of a call of {call.name} were not JSON; they were {done}.")
        return ToolCallPart(
            call.call_id, call.name, wrap(call.input) if given is None else given, call.metadata
        )
