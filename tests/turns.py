"""Run turns with one client, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.compat.memory import CompatMemory
from tollbridge.history.answer import AnswerEvents
from tollbridge.request_context import RequestContext, StreamClient
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.token_accounting import TokenAccounting
from tollbridge.turn import Turn
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Origin, Part


class Runner:
    """Runs turns that share a client, a usage tracker and what is known about servers."""

    def __init__(
        self,
        client: StreamClient,
        tracker: UsageTracker | None = None,
        tokens: TokenAccounting | None = None,
        *,
        account: BillingAccount | None = None,
        compat: CompatMemory | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.tracker = tracker or UsageTracker()
        self._fields: dict[str, Any] = {
            "client": client,
            "usage": self.tracker,
            "tokens": tokens,
            "account": account or BillingAccount(),
            "compat": compat or CompatMemory(),
            "observers": observers,
        }

    def turn(self, request: ChatRequest, **fields: Any) -> Turn:
        """Return a turn; `fields` are those of `RequestContext`."""
        context = RequestContext(
            model=request.model, conversation=request.conversation, **self._fields, **fields
        )
        return Turn(request, context)

    async def run(
        self, request: ChatRequest, report: Callable[[list[Part]], object] = list, **fields: Any
    ) -> Answer:
        """Run a turn, and report the parts of each network read."""
        async with self.turn(request, **fields) as turn:
            async for parts in turn.parts():
                report(parts)
        return turn.result


class AnswerParts:
    """Converts the raw events of one answer to message parts, as a turn does."""

    def __init__(
        self,
        restore_name: Callable[[str], str] | None = None,
        origin: Origin | None = None,
        *,
        reasoning: bool = True,
        tools: Collection[str] | None = None,
    ) -> None:
        self._events = AnswerEvents(restore_name, tools=tools)
        self._answer = Answer(origin, reasoning=reasoning)

    @property
    def changes(self) -> list[str]:
        return self._events.changes

    def take(self, events: Iterable[Event]) -> list[Part]:
        self._answer.add(self._events.take(events))
        return self._answer.take_parts()

    def close(self, error: BridgeError | None = None) -> tuple[list[Part], BridgeError | None]:
        """Return the remaining parts and the error that remains."""
        events, error = self._events.close(error)
        self._answer.add(events)
        parts = self._answer.take_parts()
        return [*parts, *(self._answer.take_reasoning() if error is None else ())], error


def answer_of(events: Iterable[Event]) -> Answer:
    """Return the answer that consists of these events."""
    answer = Answer()
    answer.add(events)
    return answer


def completed() -> Answer:
    """Return an empty answer that is complete."""
    answer = Answer()
    answer.end("completed")
    return answer
