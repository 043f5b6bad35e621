"""The state of one AI SDK stream: pending deltas, undecided tool calls, usage and errors.

`StreamState` is the whole state. It emits deltas immediately, with consecutive deltas joined, and tool calls
as soon as it is known whether the caller or the backend executes them. The `Finished` event and then all
errors are emitted at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tollbridge.protocols.ai_sdk import wire
from tollbridge.protocols.billing import read_billing
from tollbridge.protocols.stream import DecoderState
from tollbridge.types.errors import BridgeError, BrokenCall, Disconnected, StreamError
from tollbridge.types.events import (
    Billing,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningEnded,
    TextDelta,
    ToolCall,
    Usage,
    add_known,
)
from tollbridge.types.text import exceeds_depth, read_json

# With these finish reasons the output was not truncated, so valid arguments are a complete call.
_COMPLETE_REASONS: frozenset[FinishReason | None] = frozenset(
    {"stop", "tool-calls", "other", "unknown", None}
)


class _Call(msgspec.Struct):
    """A tool call. `offered` is `None` while it is undecided whether the caller is to execute it."""

    call_id: str
    name: str
    input: Any
    offered: bool | None
    metadata: dict[str, Any] | None


class _Input(msgspec.Struct):
    """Arguments that are being streamed. `ended` is set by the chunk that completes them."""

    name: str
    is_text: bool
    offered: bool
    pieces: list[str]
    ended: bool = False


class CallQueue:
    """The tool calls of a stream, and the order of all events.

    A chunk after a call (a result, an error or a denial) can show that the caller must not execute it. Until
    then the call is undecided, and it holds back all events after it. At the end of its step a call without
    a result is offered to the caller, because the backend sends its results within the step.
    """

    def __init__(self) -> None:
        self._ready: list[Event] = []
        self._queue: list[Event | _Call] = []  # the first undecided call and all events after it
        self._step: dict[str, _Call] = {}  # the calls of this step; other steps can use the same ids
        self._inputs: dict[str, _Input] = {}  # streamed arguments of calls that are not complete
        self._answered: set[str] = set()  # calls of this step with a result
        self._invalid: dict[str, None] = {}  # invalid calls of the last step, in order

    @property
    def invalid(self) -> tuple[str, ...]:
        """The ids of calls that the backend reported as invalid, without a result or another step."""
        return tuple(self._invalid)

    def emit(self, event: Event) -> None:
        if self._queue:
            self._queue.append(event)
        else:
            self._ready.append(event)

    def drain(self) -> list[Event]:
        ready, self._ready = self._ready, []
        return ready

    def start_input(self, call_id: str, name: str, *, is_text: bool, offered: bool) -> None:
        if call_id not in self._step:
            self._inputs[call_id] = _Input(name, is_text, offered, [])

    def add_input(self, call_id: str, piece: str, name: str = "") -> None:
        streamed = self._inputs.get(call_id)
        if streamed is not None:
            streamed.pieces.append(piece)
        elif call_id not in self._step:
            self._inputs[call_id] = _Input(name, False, True, [piece])

    def end_input(self, call_id: str) -> None:
        if call_id in self._inputs:
            self._inputs[call_id].ended = True

    def mark_invalid(self, call_id: str) -> None:
        """Record that the backend reported a call as invalid."""
        if call_id not in self._answered:
            self._invalid[call_id] = None

    def add_call(
        self,
        call_id: str,
        name: str,
        value: Any,
        *,
        offered: bool | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Add a complete call. It replaces an undecided call with the same id of the same step."""
        streamed = self._inputs.pop(call_id, None)
        if streamed is not None:
            name = name or streamed.name
            offered = offered if streamed.offered else False
        if offered is not False and isinstance(value, str) and not value.strip():
            # Blank text means no arguments, except for a tool whose input is text.
            value = value if streamed is not None and streamed.is_text else {}
        if call_id in self._answered:
            offered = False
        call = self._step.get(call_id)
        if call is None:
            call = self._step[call_id] = _Call(call_id, name, value, offered, metadata)
            self._queue.append(call)
        elif call.offered is None:
            call.name, call.input, call.offered = name or call.name, value, offered
            call.metadata = metadata or call.metadata
        self._release()

    def mark_answered(self, call_id: str) -> None:
        """Record that the backend executed a call or that it was denied: the caller must not execute it."""
        self._answered.add(call_id)
        self._invalid.pop(call_id, None)
        self._inputs.pop(call_id, None)
        call = self._step.get(call_id)
        if call is not None and call.offered is None:
            call.offered = False
            self._release()

    def mark_answered_by_name(self, name: str) -> None:
        """Record that a tool failed. Before version 5.0.0 the error contains only the name of the tool."""
        for call_id, call in self._step.items():
            if call.name == name and call.offered is None:
                self.mark_answered(call_id)
                return

    def parse_inputs(self) -> list[BridgeError]:
        """Parse the inputs of undecided calls, when the `finish` chunk shows that they are JSON text."""
        errors: list[BridgeError] = []
        for call in self._step.values():
            if call.offered is None and isinstance(call.input, str):
                try:
                    call.input = read_arguments(call.input)
                except ValueError:
                    call.offered = False
                    errors.append(invalid_arguments(call.call_id, call.name))
        return errors

    def start_step(self) -> None:
        """Start a step. The model has received the errors about its invalid calls."""
        self._invalid.clear()

    def end_step(self) -> None:
        self._decide(offered=True)
        self._step.clear()
        self._answered.clear()

    def reset_step(self) -> None:
        """Restart the step. The calls that were not emitted yet are discarded."""
        self._queue = [item for item in self._queue if not isinstance(item, _Call)]
        self._step.clear()
        self._inputs.clear()
        self._invalid.clear()
        self._release()

    def finish(self, reason: FinishReason | None) -> list[BridgeError]:
        """End a stream that finished normally, and return an error for each call with truncated arguments.

        Streamed arguments that are complete become a call.
        """
        self.end_step()
        errors: list[BridgeError] = []
        for call_id, streamed in self._inputs.items():
            try:
                if reason not in _COMPLETE_REASONS:
                    raise ValueError
                value = _parse_input(streamed)
            except ValueError:
                errors.append(
                    StreamError(f'The arguments of a call to the tool "{streamed.name}" were truncated.')
                )
            else:
                self._ready.append(ToolCall(call_id, streamed.name, value, streamed.offered))
        self._inputs.clear()
        return errors

    def abandon(self) -> None:
        """End a stream that was truncated, aborted or failed.

        Undecided calls are not offered, because the backend can be executing them.
        """
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
                item = ToolCall(item.call_id, item.name, item.input, item.offered, item.metadata)
            self._ready.append(item)
            count += 1
        del self._queue[:count]


def read_arguments(text: str) -> Any:
    """Return the value of a model's arguments.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply.
    """
    return _read_value(text) if text.strip() else {}


def _read_value(text: str) -> Any:
    value = read_json(text)
    if exceeds_depth(value):
        raise ValueError("nested too deeply")
    return value


def invalid_arguments(call_id: str, name: str) -> BrokenCall:
    return BrokenCall(f'The arguments of a call to the tool "{name}" are not JSON.', calls=(call_id,))


def _parse_input(streamed: _Input) -> Any:
    text = wire.repair_text("".join(streamed.pieces))
    if streamed.ended and (streamed.is_text or not text.strip()):
        return text if streamed.is_text else {}
    if streamed.is_text:
        raise ValueError
    return _read_value(text)


_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT, _REASONING = range(2)


class DeltaBuffer:
    """Collects the deltas of one network read; `flush` emits them as one event.

    JavaScript can split an emoji into two surrogates, the first at the end of one delta and the second at the
    start of the next. A high surrogate at the end is kept for the next delta of the same kind; a lone
    surrogate at the end of the stream is emitted unchanged.
    """

    def __init__(self, calls: CallQueue) -> None:
        self._calls = calls
        self._kind = _TEXT
        self._block: str | None = None
        self._pieces: list[str] = []
        self._has_surrogates = False  # set at the first surrogate and never reset
        self._high_surrogates = ["", ""]  # kept for the next delta, for text and reasoning
        self._emitted = [0, 0]  # characters emitted in this step, of text and reasoning
        self._void = [0, 0]  # emitted characters that the next delta replaces, of text and reasoning

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

    def check_surrogates(self, text: str) -> None:
        """Look for surrogates. The fast path does not need this, because msgspec rejects lone surrogates."""
        self._has_surrogates = self._has_surrogates or _SURROGATE.search(text) is not None

    def flush(self) -> None:
        pieces = self._pieces
        if pieces:
            text = "".join(pieces) if len(pieces) > 1 else pieces[0]
            pieces.clear()
            self._emit(self._kind, self._join_surrogates(text) if self._has_surrogates else text)

    def close(self) -> None:
        self.flush()
        for kind in (_TEXT, _REASONING):
            text, self._high_surrogates[kind] = self._high_surrogates[kind], ""
            self._emit(kind, text)

    def start_step(self) -> None:
        self.flush()
        self._emitted = [0, 0]

    def reset_step(self) -> None:
        """Discard the text of this step. It was already emitted; the next delta says how much it replaces."""
        self.flush()
        self._high_surrogates = ["", ""]
        for kind in (_TEXT, _REASONING):
            self._void[kind] += self._emitted[kind]
        self._emitted = [0, 0]

    def _emit(self, kind: int, text: str) -> None:
        void = self._void[kind]
        if void:
            self._void[kind] = 0
        elif not text:
            return
        self._emitted[kind] += len(text)
        delta = TextDelta(text, void) if kind == _TEXT else ReasoningDelta(text, self._block, void)
        self._calls.emit(delta)

    def _join_surrogates(self, text: str) -> str:
        text = wire.repair_text(self._high_surrogates[self._kind] + text)
        last = text[-1:]
        high_surrogate = last if "\ud800" <= last <= "\udbff" else ""
        self._high_surrogates[self._kind] = high_surrogate
        return text[:-1] if high_surrogate else text


class StepUsage:
    """The usage of a stream with several steps: the sum is billed, the last step fills the context window."""

    def __init__(self) -> None:
        self._billed: Usage | None = None
        self._steps: Usage | None = None  # sum of the steps since the last total
        self._last: Usage | None = None

    def add_step(self, usage: Usage | None) -> None:
        self._steps = add_known(self._steps, usage)
        self._last = usage or self._last

    def add_total(self, total: Usage | None) -> None:
        """Add a total, which replaces the sum of its steps. Merged streams contain several totals."""
        if total is not None and self._steps is not None and total.cache_write_tokens is None:
            # Version 5 reports cache writes only with the steps.
            total = msgspec.structs.replace(total, cache_write_tokens=self._steps.cache_write_tokens)
        self._billed = add_known(self._billed, total or self._steps)
        self._last = self._last if self._steps is not None else total or self._last
        self._steps = None

    def total(self) -> Usage | None:
        return add_known(self._billed, self._steps)

    def context(self) -> Usage | None:
        """Return the usage of the last step, if it differs from the total."""
        return self._last if self._last != self.total() else None


ERROR_LIMIT = 16  # further errors of a stream are dropped


class StreamState(DecoderState):
    """The state of one stream. `ChunkState` adds what each chunk does to it.

    Args:
        model_parts: Whether the chunks come from a language model and not from the SDK. If so, the input of a
            call is JSON text.
        on_unknown: Called with each chunk of an unknown type.
    """

    title = "an AI SDK"

    def __init__(
        self, *, model_parts: bool = False, on_unknown: Callable[[wire.Chunk], None] | None = None
    ) -> None:
        super().__init__()
        self.model_parts = model_parts
        self.on_unknown = on_unknown
        self.calls = CallQueue()
        self.deltas = DeltaBuffer(self.calls)
        self.usage = StepUsage()
        self.approvals: dict[str, str] = {}  # the call id for each approval id
        self.finished = False
        self.aborted = False
        self.reason: FinishReason | None = None
        self.response_id: str | None = None
        self.model: str | None = None
        self._blocks: dict[str | None, dict[str, Any]] = {}  # metadata of the open reasoning blocks
        self._errors: list[BridgeError] = []

    def read_billing(self, chunk: wire.Chunk, *, step: bool = False) -> None:
        """Read what the metadata of a chunk says about the bill. The costs of steps are added."""
        billing = read_billing(chunk.get("providerMetadata"))
        if billing is None:
            return
        earlier = self.billing or Billing()
        if step and billing.cost is not None and earlier.cost is not None:
            surcharge = (billing.surcharge or 0) + (earlier.surcharge or 0) or None
            billing = msgspec.structs.replace(billing, cost=billing.cost + earlier.cost, surcharge=surcharge)
        self.billing = earlier | billing

    def drain(self) -> list[Event]:
        """Return the events that are ready, and remove them."""
        self.deltas.flush()
        return self.calls.drain()

    def emit(self, event: Event) -> None:
        self.deltas.flush()
        self.calls.emit(event)

    def fail(self, error: BridgeError) -> None:
        """Record an error. It is emitted at the end; decoding continues."""
        if len(self._errors) < ERROR_LIMIT and error not in self._errors:
            self._errors.append(error)

    def add_metadata(self, block: str | None, metadata: dict[str, Any]) -> None:
        """Merge metadata into a reasoning block. Its start, any delta and its end can contain metadata."""
        merged = self._blocks.setdefault(block, {})
        for provider, value in metadata.items():
            both = isinstance(value, dict) and isinstance(merged.get(provider), dict)
            merged[provider] = {**merged[provider], **value} if both else value

    def end_reasoning(self, block: str | None) -> None:
        self.emit(ReasoningEnded(block, self._blocks.pop(block, None) or None))

    def finish(self) -> None:
        """Apply the end marker `[DONE]`. The stream is complete even without a `finish` chunk."""
        self._check_recognized()
        self.finished = self.finished or not (self._errors or self.aborted)
        self.end()

    def end(self) -> None:
        """End the stream: emit the last events, `Finished` and the errors."""
        if self.is_finished:
            return
        self.is_finished = True
        self._check_recognized()
        self.deltas.flush()
        if self.finished and not self.aborted:
            failed = any(not isinstance(error, BrokenCall) for error in self._errors)
            for error in self.calls.finish("error" if failed else self.reason):
                self.fail(error)
        else:
            self.calls.abandon()
        self.deltas.close()
        for block in [block for block, metadata in self._blocks.items() if metadata]:
            self.end_reasoning(block)
        self._emit_end()

    def interrupt(self, error: BridgeError) -> list[Event]:
        self.fail(error)
        return self.close()

    def close(self) -> list[Event]:
        self.end()
        return self.drain()

    def fail_unrecognized(self) -> None:
        self.fail(self._not_recognized())

    def _check_recognized(self) -> None:
        if self.unknown and not self.has_known_events:
            self.fail_unrecognized()

    def _emit_end(self) -> None:
        ended, usage = self.finished or self.aborted, self.usage.total()
        if ended:
            self.calls.emit(
                Finished(
                    reason=None if self.aborted else self.reason,
                    ended="abort" if self.aborted else "finish",
                    usage=usage,
                    context=self.usage.context(),
                    response_id=self.response_id,
                    model=self.model,
                    invalid=() if self.aborted else self.calls.invalid,
                    billing=self.billing,
                )
            )
        elif not self._errors:
            self._errors.append(Disconnected("The stream ended before the answer was complete."))
        for error in self._errors:
            error.usage = None if ended else usage
            self.calls.emit(Failed(error))
