"""The tool calls of a turn, and the order in which everything leaves.

Whether a call is for the editor shows only later: a result, a failure or a denial may follow it. So a call
that is not decided waits, and what comes after it waits behind it. The end of its step decides: whatever the
backend wanted to answer it has answered by then.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.core.errors import BridgeError, BrokenCall, StreamError
from tollbridge.core.events import Event, FinishReason, ToolCall
from tollbridge.core.json import read_json
from tollbridge.gateways.aisdk import wire

# After these reasons a model had said all it wanted, so whole arguments are a whole call.
_SAID_ALL: frozenset[FinishReason | None] = frozenset({"stop", "tool-calls", "other", "unknown", None})


class _Call(msgspec.Struct):
    """`offered` is `None` until it is decided."""

    call_id: str
    name: str
    input: Any
    offered: bool | None
    metadata: dict[str, Any] | None

    def event(self) -> ToolCall:
        return ToolCall(self.call_id, self.name, self.input, bool(self.offered), self.metadata)


class _Input(msgspec.Struct):
    """Arguments that are being streamed. `ended`: the model said that they are complete."""

    name: str
    is_text: bool
    offered: bool
    pieces: list[str]
    ended: bool = False


class Calls:
    def __init__(self) -> None:
        self._ready: list[Event] = []
        self._queue: list[Event | _Call] = []  # from the first undecided call on
        self._step: dict[str, _Call] = {}  # the calls of this step; ids come again in other steps
        self._inputs: dict[str, _Input] = {}  # streamed, and not called yet
        self._answered: set[str] = set()
        self._invalid: dict[str, None] = {}  # in order; of the last step

    @property
    def invalid(self) -> tuple[str, ...]:
        """The calls that the backend found to make no sense, and neither answered nor came back to."""
        return tuple(self._invalid)

    def emit(self, event: Event) -> None:
        if self._queue:
            self._queue.append(event)
        else:
            self._ready.append(event)

    def take_ready(self) -> list[Event]:
        ready, self._ready = self._ready, []
        return ready

    def start_input(self, call_id: str, name: str, *, is_text: bool, offered: bool) -> None:
        if call_id not in self._step:
            self._inputs[call_id] = _Input(name, is_text, offered, [])

    def add_input(self, call_id: str, piece: str, name: str = "") -> None:
        given = self._inputs.get(call_id)
        if given is not None:
            given.pieces.append(piece)
        elif call_id not in self._step:
            self._inputs[call_id] = _Input(name, False, True, [piece])

    def end_input(self, call_id: str) -> None:
        if call_id in self._inputs:
            self._inputs[call_id].ended = True

    def refuse(self, call_id: str) -> None:
        """The backend says of a call that it makes no sense."""
        if call_id not in self._answered:
            self._invalid[call_id] = None

    def call(
        self,
        call_id: str,
        name: str,
        value: Any,
        *,
        offered: bool | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """A final call. A second one of the same id in a step replaces the first while that still waits."""
        streamed = self._inputs.pop(call_id, None)
        if streamed is not None:
            name = name or streamed.name
            offered = offered if streamed.offered else False
        if offered is not False and isinstance(value, str) and not value.strip():
            # No arguments at all, unless the tool is one that takes text.
            value = value if streamed is not None and streamed.is_text else {}
        if call_id in self._answered:
            offered = False
        known = self._step.get(call_id)
        if known is None:
            call = self._step[call_id] = _Call(call_id, name, value, offered, metadata)
            self._queue.append(call)
        elif known.offered is None:
            known.name, known.input, known.offered = name or known.name, value, offered
            known.metadata = metadata or known.metadata
        self._release()

    def answer(self, call_id: str) -> None:
        """The backend answered it, or it was denied: nobody is to run it any more."""
        self._answered.add(call_id)
        self._invalid.pop(call_id, None)
        self._inputs.pop(call_id, None)
        call = self._step.get(call_id)
        if call is not None and call.offered is None:
            call.offered = False
            self._release()

    def answer_by_name(self, name: str) -> None:
        """Before 5.0.0 the streams tell of a failed tool by its name alone."""
        for call_id, call in self._step.items():
            if call.name == name and call.offered is None:
                self.answer(call_id)
                return

    def read_texts(self) -> list[BridgeError]:
        """The end shows that a model spoke: what its calls were made with is JSON text, and no value."""
        errors: list[BridgeError] = []
        for call in self._step.values():
            if call.offered is None and isinstance(call.input, str):
                try:
                    call.input = read_arguments(call.input)
                except ValueError:
                    call.offered = False
                    errors.append(not_json(call.call_id, call.name))
        return errors

    def start_step(self) -> None:
        """The model goes on: it has read what was wrong with its calls."""
        self._invalid.clear()

    def end_step(self) -> None:
        self._decide(offered=True)
        self._step.clear()
        self._answered.clear()

    def reset_step(self) -> None:
        """The step starts anew. The calls that have not left yet never will."""
        self._queue = [item for item in self._queue if not isinstance(item, _Call)]
        self._step.clear()
        self._inputs.clear()
        self._invalid.clear()
        self._release()

    def end_turn(self, reason: FinishReason | None) -> list[BridgeError]:
        """The turn is over in order. Streamed arguments that are whole are a call; cut ones are an error."""
        self.end_step()
        errors: list[BridgeError] = []
        for call_id, given in self._inputs.items():
            try:
                if reason not in _SAID_ALL:
                    raise ValueError
                value = _whole(given)
            except ValueError:
                errors.append(
                    StreamError(f"The arguments of a call of the tool “{given.name}” were cut off.")
                )
            else:
                self._ready.append(ToolCall(call_id, given.name, value, given.offered))
        self._inputs.clear()
        return errors

    def break_off(self) -> None:
        """The turn is cut, aborted or failed: an undecided call may well be running, so it is not offered."""
        self._decide(offered=False)
        self._inputs.clear()

    def _decide(self, *, offered: bool) -> None:
        for call in self._step.values():
            if call.offered is None:
                call.offered = offered
        self._release()

    def _release(self) -> None:
        count = 0
        for item in self._queue:
            if isinstance(item, _Call):
                if item.offered is None:
                    break
                item = item.event()
            self._ready.append(item)
            count += 1
        del self._queue[:count]


def read_arguments(text: str) -> Any:
    """The value of a model's arguments. Raises `ValueError` for what is no JSON."""
    return read_json(text) if text.strip() else {}


def not_json(call_id: str, name: str) -> BrokenCall:
    return BrokenCall(f"The arguments of a call of the tool “{name}” are not JSON.", calls=(call_id,))


def _whole(given: _Input) -> Any:
    text = wire.mend("".join(given.pieces))
    if given.ended and (given.is_text or not text.strip()):
        return text if given.is_text else {}
    if given.is_text:
        raise ValueError
    return read_json(text)
