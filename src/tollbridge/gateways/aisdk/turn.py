"""The state of one turn: what has been said, what is still open, and how it ended.

Nothing is said twice and nothing is taken back: deltas leave as they come, joined where they are neighbours;
calls leave when it is certain whose they are; the end, and after it every failure, leaves last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollbridge.core.errors import BridgeError, BrokenCall, Disconnected, StreamError
from tollbridge.core.events import Event, Failed, Finished, FinishReason, ReasoningEnded
from tollbridge.gateways.aisdk import wire
from tollbridge.gateways.aisdk.calls import Calls
from tollbridge.gateways.aisdk.deltas import Deltas
from tollbridge.gateways.aisdk.toll import Toll
from tollbridge.gateways.unknown import Unknown

ERROR_LIMIT = 16  # a stream that does nothing but fail is not repeated word for word


class Turn:
    """`model_parts`: the chunks come from a model and not from the SDK, so a call's input is JSON text."""

    def __init__(
        self, *, model_parts: bool = False, on_unknown: Callable[[wire.Chunk], None] | None = None
    ) -> None:
        self.model_parts = model_parts
        self.on_unknown = on_unknown
        self.calls = Calls()
        self.deltas = Deltas(self.calls)
        self.toll = Toll()
        self.approvals: dict[str, str] = {}  # the call each one is about
        self.unknown = Unknown()
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
