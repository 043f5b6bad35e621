"""One turn: prepare the request, estimate it, send it, repair it if it is rejected, account for it.

`Turn` holds the state of one request; what requests share (clients, catalog, storage) belongs to `Engine`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cached_property

import msgspec

from tollbridge.estimator import Preflight
from tollbridge.lifecycle import Lifecycle
from tollbridge.observers.budget import BudgetObserver
from tollbridge.prepare import PreparedRequest
from tollbridge.request_context import RequestContext
from tollbridge.storage.worker import wait_for_write
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.events import (
    Data,
    Event,
    File,
    Source,
    TextDelta,
    ToolCall,
    empty_answer_error,
    incomplete_reason,
)
from tollbridge.types.messages import ChatRequest, Part


class Turn(Lifecycle[list[Event]]):
    """One request, translated to the gateway's protocol, and its answer.

        async with engine.turn(request) as turn:
            async for event in turn:
                ...
        print(turn.result.usage)

    The events, or `parts`, or `batches` can be read once. A failure is raised after everything before it was
    yielded.

    Args:
        request: The request of the caller.
        context: What the request needs.
    """

    def __init__(self, request: ChatRequest, context: RequestContext) -> None:
        self.request = request
        super().__init__(context)

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for batch in self._items:
            for event in batch:
                yield event

    def batches(self) -> AsyncGenerator[list[Event]]:
        """Return the events as one list per network read, for callers on the hot path."""
        return self._items

    async def parts(self) -> AsyncGenerator[list[Part]]:
        """Yield the answer as message parts, one list per network read, instead of events.

        The last part of an answer with reasoning holds all of it, for callers that cannot keep the metadata
        of single parts.
        """
        async for _ in self._items:
            if parts := self.result.take_parts():
                yield parts
        if parts := self.result.take_reasoning():
            yield parts

    @cached_property
    def _prepared(self) -> PreparedRequest:
        context = self.context
        return PreparedRequest(
            self.request,
            context.client.base_url,
            context.compat,
            context.capabilities,
            context.learned,
            min_output_tokens=context.client.protocol.min_output_tokens,
        )

    def _sent_request(self) -> ChatRequest:
        return self._prepared.request

    async def _exchange(self) -> AsyncGenerator[list[Event]]:
        """Send the request, and again if it was rejected for a reason that can be repaired."""
        context, prepared = self.context, self._prepared
        preflight = await self._measure(prepared)
        self._usage_observer.start()
        self._usage_observer.write_row()
        await wait_for_write(self._usage_observer.row_written)
        while True:
            request = prepared.request
            if self._budget_observer is not None:
                request = await self._reserve(self._budget_observer, prepared, preflight)
                preflight = None  # it is the estimate of the first request
            request = self._request_diagnosis(request)
            answer = prepared.answer_events()
            failure: BridgeError | None = None
            try:
                async with aclosing(
                    context.client.batches(request, api_key=context.api_key, observers=self._observers)
                ) as batches:
                    async for batch in batches:
                        if not prepared.is_accepted:
                            prepared.accept()
                        yield self._observe(answer.take(batch))
            except BridgeError as error:
                if prepared.repair(error, request):
                    self._usage_observer.retry(error)
                    await wait_for_write(self._usage_observer.row_written)
                    continue
                failure = error
            events, failure = answer.close(failure)
            if events:
                yield self._observe(events)
            prepared.add_changes(answer.changes)
            finished = self.result.finished
            if failure is None and finished is not None and not any(map(_is_output, self.result.events)):
                # A limit that the user did not set is not mentioned, except that of a budget.
                limited = self.request if self._budget_observer is None else request
                failure = empty_answer_error(finished, limited.max_output_tokens)
            if failure is not None:
                self._add_numbers(failure)
                raise failure
            return

    async def _measure(self, prepared: PreparedRequest) -> Preflight | None:
        """Estimate the prompt, and choose an output limit if the caller set none and one is needed."""
        context, preflight = self.context, None
        if context.tokens is not None:
            preflight = await context.tokens.measure(
                prepared.request, context.window, context.api_key, count=context.may_count
            )
        self.result.preflight = prepared.preflight = preflight
        if context.output_limit is not None and self.request.max_output_tokens is None:
            tokens, exact = None, False
            if preflight is not None:
                tokens, exact = preflight.estimate.tokens, preflight.estimate.method == "actual"
            limit = context.output_limit.choose(tokens, exact=exact)
            if limit is not None:
                prepared.limit_output(limit)
        return preflight

    async def _reserve(
        self, budget: BudgetObserver, prepared: PreparedRequest, preflight: Preflight | None
    ) -> ChatRequest:
        """Reserve the cost of the request. Return it, limited to what the budgets allow."""
        request = prepared.request
        prompt = preflight.estimate if preflight else None
        limit = await budget.reserve(request, prompt, may_limit=self.request.max_output_tokens is None)
        if limit is not None:
            request = msgspec.structs.replace(request, max_output_tokens=limit)
            prepared.add_changes([f"Limited the answer to {limit:,} tokens: the budget does not allow more."])
        return request

    def _request_diagnosis(self, request: ChatRequest) -> ChatRequest:
        """Ask a server that can explain cache misses to compare the prompt with the previous one.

        The field is added only here: it changes with each request, and is not part of the prompt.
        """
        context = self.context
        if context.cache is None:
            return request
        scope = context.client.base_url, context.account.account, request.conversation
        previous = context.cache.previous_response(*scope)
        return context.client.protocol.request_diagnosis(request, previous)

    def _add_numbers(self, error: BridgeError) -> None:
        """Add the estimate and the window to a context-length error of a gateway that reports no numbers."""
        preflight = self.result.preflight
        if not isinstance(error, ContextTooLong) or preflight is None or (error.tokens and error.limit):
            return
        tokens, limit = error.tokens or preflight.estimate.tokens, error.limit or self.context.window
        numbers = f"The prompt has about {tokens:,} tokens"
        numbers += f"; the model accepts {limit:,}." if limit else "."
        error.message = f"{error.message.rstrip()} {numbers}".lstrip()
        error.args = (error.message,)
        error.tokens, error.limit = tokens, limit

    def _complete_result(self) -> None:
        result, prepared = self.result, self._prepared
        result.changes, result.counts = prepared.changes, prepared.counts
        if result.finished is not None:
            reason = incomplete_reason(result.finished, prepared.request.max_output_tokens)
            result.warnings += [reason] if reason else []
        result.warnings += prepared.warnings


def _is_output(event: Event) -> bool:
    """Return whether an event is part of the answer itself, and not reasoning or the end of the stream."""
    match event:
        case TextDelta(text):
            return bool(text)
        case ToolCall():
            return event.offered
        case File() | Source() | Data():
            return True
        case _:
            return False
