"""The state of one turn: what has been said, what is still open, and how it ended.

Nothing is said twice and nothing is taken back: deltas leave as they come, joined where they are neighbours;
calls leave when it is certain whose they are; the end, and after it every failure, leaves last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.sse import UnknownNames
from tollbridge.types.errors import BridgeError, BrokenCall, Disconnected, StreamError
from tollbridge.types.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
)
from tollbridge.types.text import read_json
from tollbridge.types.usage import Usage

# SECTION The tool calls of a turn, and the order in which everything leaves.
#
# Whether a call is for the editor shows only later: a result, a failure or a denial may follow it. So a call
# that is not decided waits, and what comes after it waits behind it. The end of its step decides: whatever the
# backend wanted to answer it has answered by then.

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


class CallQueue:
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
    text = wire.repair_text("".join(given.pieces))
    if given.ended and (given.is_text or not text.strip()):
        return text if given.is_text else {}
    if given.is_text:
        raise ValueError
    return read_json(text)


# SECTION Text and reasoning on their way: neighbours joined, halves of a character made whole.

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT, _REASONING = range(2)


class Deltas:
    """Collects what one network read brings; `flush` makes one event of it.

    JavaScript cuts an emoji in two: half of it may end one delta, the other half begin the next. A first half
    at the end is kept for the next delta of its kind; what stays a half to the end leaves as it is.
    """

    def __init__(self, calls: CallQueue) -> None:
        self._calls = calls
        self._kind = _TEXT
        self._block: str | None = None
        self._pieces: list[str] = []
        self._halves = False  # from the first half a character on
        self._kept = ["", ""]
        self._said = [0, 0]  # characters of this step
        self._void = [0, 0]  # characters that the next delta replaces

    def add_text(self, text: str) -> None:
        if self._kind != _TEXT:
            self.flush()
            self._kind = _TEXT
        self._pieces.append(text)

    def add_reasoning(self, text: str, block: str | None) -> None:
        if self._kind != _REASONING or self._block != block:
            self.flush()
            self._kind, self._block = _REASONING, block
        self._pieces.append(text)

    def watch(self, text: str) -> None:
        """Look for half characters. The fast path cannot meet any: its reader refuses them."""
        if not self._halves and _SURROGATE.search(text):
            self._halves = True

    def flush(self) -> None:
        pieces = self._pieces
        if pieces:
            text = "".join(pieces) if len(pieces) > 1 else pieces[0]
            pieces.clear()
            self._give(self._kind, self._mended(text) if self._halves else text)

    def close(self) -> None:
        self.flush()
        for kind in (_TEXT, _REASONING):
            text, self._kept[kind] = self._kept[kind], ""
            self._give(kind, text)

    def start_step(self) -> None:
        self.flush()
        self._said = [0, 0]

    def reset_step(self) -> None:
        """What this step has said is void. It has left already; the next delta says how much it replaces."""
        self.flush()
        self._kept = ["", ""]
        for kind in (_TEXT, _REASONING):
            self._void[kind] += self._said[kind]
        self._said = [0, 0]

    def _give(self, kind: int, text: str) -> None:
        void = self._void[kind]
        if void:
            self._void[kind] = 0
        elif not text:
            return
        self._said[kind] += len(text)
        delta = TextDelta(text, void) if kind == _TEXT else ReasoningDelta(text, self._block, void)
        self._calls.emit(delta)

    def _mended(self, text: str) -> str:
        text = wire.repair_text(self._kept[self._kind] + text)
        last = text[-1:]
        keep = last if "\ud800" <= last <= "\udbff" else ""
        self._kept[self._kind] = keep
        return text[:-1] if keep else text


# SECTION What a turn of several steps cost: the sum is billed, the last step fills the window.


class StepUsage:
    def __init__(self) -> None:
        self._billed: Usage | None = None
        self._steps: Usage | None = None  # of the turn that is not finished yet
        self._last: Usage | None = None

    def add_step(self, usage: Usage | None) -> None:
        self._steps = _sum(self._steps, usage)
        self._last = usage or self._last

    def add_turn(self, total: Usage | None) -> None:
        """A total replaces the sum of its steps. Merged streams send several, one for each of theirs."""
        self._billed = _sum(self._billed, total or self._steps)
        self._last = self._last if self._steps is not None else total or self._last
        self._steps = None

    def total(self) -> Usage | None:
        return _sum(self._billed, self._steps)

    def context(self) -> Usage | None:
        """The last step's usage, where it is not the whole."""
        return self._last if self._last != self.total() else None


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one + other


# SECTION The state of one turn: what has been said, what is still open, and how it ended.
#
# Nothing is said twice and nothing is taken back: deltas leave as they come, joined where they are neighbours;
# calls leave when it is certain whose they are; the end, and after it every failure, leaves last.

ERROR_LIMIT = 16  # a stream that does nothing but fail is not repeated word for word


class StreamState:
    """`model_parts`: the chunks come from a model and not from the SDK, so a call's input is JSON text."""

    def __init__(
        self, *, model_parts: bool = False, on_unknown: Callable[[wire.Chunk], None] | None = None
    ) -> None:
        self.model_parts = model_parts
        self.on_unknown = on_unknown
        self.calls = CallQueue()
        self.deltas = Deltas(self.calls)
        self.toll = StepUsage()
        self.approvals: dict[str, str] = {}  # the call each one is about
        self.unknown = UnknownNames()
        self.known = False  # whether anything was understood
        self.finished = False
        self.aborted = False
        self.over = False
        self.reason: FinishReason | None = None
        self.response_id: str | None = None
        self.model: str | None = None
        self._blocks: dict[str | None, dict[str, Any]] = {}  # metadata of the open blocks of reasoning
        self._errors: list[BridgeError] = []

    def drain(self) -> list[Event]:
        """What can leave now."""
        self.deltas.flush()
        return self.calls.take_ready()

    def emit(self, event: Event) -> None:
        self.deltas.flush()
        self.calls.emit(event)

    def fail(self, error: BridgeError) -> None:
        """Something went wrong. It is told last; the stream goes on."""
        if len(self._errors) < ERROR_LIMIT and error not in self._errors:
            self._errors.append(error)

    def remember(self, block: str | None, metadata: dict[str, Any]) -> None:
        """What goes back with a block of reasoning may ride on its start, any delta, or its end."""
        known = self._blocks.setdefault(block, {})
        for provider, said in metadata.items():
            both = isinstance(said, dict) and isinstance(known.get(provider), dict)
            known[provider] = {**known[provider], **said} if both else said

    def end_reasoning(self, block: str | None) -> None:
        self.emit(ReasoningEnded(block, self._blocks.pop(block, None) or None))

    def finish(self) -> None:
        """The stream's own mark of its end: a right end even where no `finish` was sent."""
        self._check_known()
        self.finished = self.finished or not (self._errors or self.aborted)
        self.end()

    def end(self) -> None:
        """Nothing more will come."""
        if self.over:
            return
        self.over = True
        self._check_known()
        self.deltas.flush()
        if self.finished and not self.aborted:
            failed = any(not isinstance(error, BrokenCall) for error in self._errors)
            for error in self.calls.end_turn("error" if failed else self.reason):
                self.fail(error)
        else:
            self.calls.break_off()
        self.deltas.close()
        for block in [block for block, metadata in self._blocks.items() if metadata]:
            self.end_reasoning(block)
        self._say_the_end()

    def not_ours(self) -> None:
        self.fail(StreamError("The gateway's answer is not an AI SDK stream."))

    def _check_known(self) -> None:
        if self.unknown and not self.known:
            self.not_ours()

    def _say_the_end(self) -> None:
        ended, usage = self.finished or self.aborted, self.toll.total()
        if ended:
            self.calls.emit(
                Finished(
                    reason=None if self.aborted else self.reason,
                    ended="abort" if self.aborted else "finish",
                    usage=usage,
                    context=self.toll.context(),
                    response_id=self.response_id,
                    model=self.model,
                    invalid=() if self.aborted else self.calls.invalid,
                )
            )
        elif not self._errors:
            self._errors.append(Disconnected("The stream stopped before its end."))
        for error in self._errors:
            error.usage = None if ended else usage
            self.calls.emit(Failed(error))
