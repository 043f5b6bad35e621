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
from typing import ClassVar, Generic, Self, TypeVar

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

# Seconds that what is stored about a request in the background may wait, to be written together with others.
WRITE_DELAY = 0.1
# What an exchange yields: lists of events, or bytes.
Item = TypeVar("Item")


class Lifecycle(ABC, Generic[Item]):
    """One request and its answer. Use it in `async with`: leaving the block hangs up.

    Attributes:
        result: The answer, as far as it was received. It exists from the start, and after a failure too.
        in_background: Whether rows are written, and prompts explained and learned from, after the request has
            ended. Otherwise it ends when that is done.

    Args:
        marks_reasoning: Whether reasoning in the answer is marked with its origin.
    """

    in_background: ClassVar[bool] = False

    def __init__(self, context: RequestContext, *, marks_reasoning: bool = True) -> None:
        self.context = context
        self.origin = Origin.of(context.model, context.client.base_url)
        self.result = Answer(self.origin if marks_reasoning else None)
        delay = WRITE_DELAY if self.in_background else 0.0
        self._usage_observer = UsageObserver(
            self.result,
            context.model,
            context.usage,
            context.account,
            prices=context.prices,
            find_prices=context.find_prices,
            conversation=context.conversation,
            # With budgets, the row replaces the reservation, which ends now.
            delay=0.0 if context.budgets is not None else delay,
            waits=not self.in_background,
        )
        self._budget_observer: BudgetObserver | None = None
        usage = self._usage_observer
        observers: list[Observer] = [usage]
        if self._can_decode and context.cache is not None:
            observers.append(CacheObserver(context.cache, usage, self._sent_request, delay=delay))
        if self._can_decode and context.tokens is not None:
            learner = LearnerObserver(
                context.tokens,
                usage,
                self._sent_request,
                window=context.window,
                in_background=self.in_background,
            )
            observers.append(learner)
        if context.budgets is not None:
            self._budget_observer = BudgetObserver(context.budgets, usage, warns=not self.in_background)
            observers.append(self._budget_observer)
        if context.on_record is not None:
            usage.listeners.append(context.on_record)
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
    def _can_decode(self) -> bool:
        """Whether the request can be decoded, so that something can be learned from it."""
        return True

    @abstractmethod
    def _sent_request(self) -> ChatRequest:
        """Return the request as it was sent."""

    @abstractmethod
    def _exchange(self) -> AsyncGenerator[Item]:
        """Send the request and yield what the gateway answers, or raise why it does not."""

    def _complete_result(self) -> None:
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
            self._complete_result()
            for end in self._observers.end:
                await end(self.result)

    def _observe(self, events: list[Event]) -> list[Event]:
        """Add the events of one network read to the result. Return them as they are kept there."""
        batch = self.result.add(events)
        for observe in self._observers.events:
            observe(batch)
        return batch
