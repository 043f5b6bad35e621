"""The lifecycle of every request: prepare, reserve, send with retries, observe, settle, learn.

`Turn` translates a request, `ForwardedTurn` passes a body on unchanged: two ways to exchange bytes with the
gateway, in the same lifecycle. What else happens with a request is done by observers, in `observers/`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar

from tollbridge.answer import Answer, AnswerOutcome
from tollbridge.clients.observer import Observer, Observers
from tollbridge.observers.budget import BudgetObserver
from tollbridge.observers.cache import CacheObserver
from tollbridge.observers.learner import LearnerObserver
from tollbridge.observers.usage import UsageObserver
from tollbridge.request_context import RequestContext
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Origin

# What an exchange yields: lists of events, or bytes.
Item = TypeVar("Item")


class Lifecycle(ABC, Generic[Item]):
    """One request and its answer. Use it in `async with`: leaving the block hangs up.

    Attributes:
        result: The answer, as far as it was received. It exists from the start, and after a failure too.

    Args:
        delay: Seconds that records and explanations may wait, if nobody waits for them; 0 if the request does
            not end before they are written.
        marks_reasoning: Whether reasoning in the answer is marked with its origin.
    """

    def __init__(self, context: RequestContext, *, delay: float = 0.0, marks_reasoning: bool = True) -> None:
        self.context = context
        self.origin = Origin.of(context.model, context.client.base_url)
        self.result = Answer(self.origin if marks_reasoning else None)
        # With budgets, the record replaces the reservation, which ends now.
        self._usage = UsageObserver(
            self.result,
            context.model,
            context.usage,
            context.account,
            prices=context.prices,
            find_prices=context.find_prices,
            conversation=context.conversation,
            delay=0.0 if context.budgets is not None else delay,
            waits=not delay,
        )
        self._budget: BudgetObserver | None = None
        observers: list[Observer] = [self._usage]
        if self._is_readable:
            if context.cache is not None:
                observers.append(CacheObserver(context.cache, self._usage, self._sent_request, delay=delay))
            if context.tokens is not None:
                observers.append(
                    LearnerObserver(
                        context.tokens,
                        self._usage,
                        self._sent_request,
                        window=context.window,
                        later=bool(delay),
                    )
                )
        if context.budgets is not None:
            self._budget = BudgetObserver(context.budgets, self._usage, warns=not delay)
            observers.append(self._budget)
        if context.on_record is not None:
            self._usage.listeners.append(context.on_record)
        self._observers = Observers((*observers, *context.observers))
        self._caller_failed = False
        self._items = self._run()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caller_failed = isinstance(error, Exception)
        await self._items.aclose()

    @property
    def _is_readable(self) -> bool:
        """Whether the request can be decoded, so that something can be learned from it."""
        return True

    @abstractmethod
    def _sent_request(self) -> ChatRequest:
        """Return the request as it was sent."""

    @abstractmethod
    def _exchange(self) -> AsyncGenerator[Item]:
        """Send the request and yield what the gateway answers, or raise why it does not."""

    def _describe(self) -> None:
        """Add to the result what only the end of the exchange shows."""

    async def _run(self) -> AsyncGenerator[Item]:
        """Yield what the exchange yields. However it ends, complete the result and tell the observers."""
        outcome: AnswerOutcome = "failed"
        failure: BridgeError | None = None
        try:
            async with aclosing(self._exchange()) as items:
                async for item in items:
                    yield item
            outcome = "completed" if self.result.error is None else "failed"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "failed" if self._caller_failed else "cancelled"
            raise
        except BridgeError as error:
            failure = error
            raise
        finally:
            self.result.end(outcome, failure or self.result.error)
            self._describe()
            for end in self._observers.end:
                await end(self.result)

    def _observe(self, events: list[Event]) -> list[Event]:
        """Add the events of one network read to the result. Return them as they are kept there."""
        batch = self.result.add(events)
        for observe in self._observers.events:
            observe(batch)
        return batch
