"""One turn: prepare the request, estimate it, send it, repair it if it is rejected, account for it.

`Turn` holds the state of one request; what requests share (clients, catalog, storage) belongs to `Engine`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from tollbridge.budget import BudgetGuard
from tollbridge.clients.base import GatewayClient, Observer
from tollbridge.compat.lessons import describe_lesson, uses_feature
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.repairs import SENSITIVE_NOTES, describe_omissions, omitted_fields
from tollbridge.estimator import Preflight
from tollbridge.history.answer import AnswerEvents, PartsBuilder, apply_corrections, join_parts
from tollbridge.history.normalize import MIN_OUTPUT_TOKENS, NormalizedRequest, normalize_request
from tollbridge.protocols.billing import read_billing_headers
from tollbridge.storage.cache_tracker import CacheTracker, request_diagnosis
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.tracker import BillingAccount, RequestAccounting, UsageTracker
from tollbridge.storage.worker import wait_for_write
from tollbridge.token_accounting import TokenAccounting
from tollbridge.tokens.prompt_cache import CacheReport
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.events import (
    Billing,
    Cost,
    Data,
    Event,
    File,
    Source,
    TextDelta,
    ToolCall,
    Usage,
    empty_answer_error,
    incomplete_reason,
)
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    is_marker,
)
from tollbridge.types.models import OUTPUT_RESERVE, Capabilities, Model, Prices, identify
from tollbridge.types.quirks import Hypothesis, LearnedQuirks, Lesson

log = logging.getLogger(__name__)

# --- The request that a turn sends ---

# The least room for an answer with which a request is sent again.
MIN_ROOM = 16
# How often a request is changed and sent again. A server can reject several features, one after the other.
REPAIR_LIMIT = 3


class OutputLimit(msgspec.Struct, frozen=True):
    """How to choose the output limit of a request whose caller set none.

    Attributes:
        tokens: The most output tokens of the model.
        window: The context window that prompt and answer share, if known.
        required: Whether the protocol requires a limit. Otherwise it is sent only if the gateway would assume
            `tokens`, and prompt and answer would not fit the window.
    """

    tokens: int
    window: int | None = None
    required: bool = False

    @classmethod
    def for_model(cls, model: Model, *, required: bool) -> OutputLimit | None:
        """Return how the limit of a request is chosen; `None` if no limit is needed.

        The Messages API requires a limit. Gateways that send requests for Claude to it add the model's
        largest limit, which providers reject if it does not fit the window next to the prompt.
        """
        if not required and not identify(model.id).is_claude:
            return None
        tokens = model.max_output_tokens or None  # a limit of 0 is not usable
        if tokens is None and required:
            from tollbridge.protocols.anthropic_messages.requests import default_max_tokens

            tokens = default_max_tokens(model.id)
        return None if tokens is None else cls(tokens, model.context_window, required)

    def choose(self, preflight: Preflight | None) -> int | None:
        """Return the limit for a prompt, or `None` if none should be sent.

        A limit that is too low would cut the answer. One that is too high is rejected with the exact numbers,
        so an estimate does not make it lower than a usual answer needs.
        """
        limit = self.tokens
        if self.window is not None and preflight is not None:
            estimate = preflight.estimate
            least = MIN_ROOM if estimate.method == "actual" else OUTPUT_RESERVE
            limit = min(limit, max(least, self.window - estimate.tokens))
        return limit if self.required or limit < self.tokens else None


class PreparedRequest:
    """A request made valid for its server, and again after each rejection that can be repaired.

    A repair is only a hypothesis about the server. `accept` is called when the first event has arrived: it
    confirms the hypotheses of this turn, and from then on the request is not sent again. If the turn fails
    before, nothing is learned.

    Args:
        request: The request of the caller.
        base_url: The gateway it is sent to.
        compat: What is known about servers, and where lessons are remembered.
        capabilities: What the model can do, if known.
        learned: What `compat` says about this model, if the caller looked it up already.
        min_output_tokens: The lowest output limit that the server's protocol allows.
    """

    def __init__(
        self,
        request: ChatRequest,
        base_url: str,
        compat: CompatMemory,
        capabilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
        *,
        min_output_tokens: int = MIN_OUTPUT_TOKENS,
    ) -> None:
        # Whether the gateway has accepted the request, see `accept`.
        self.started = False
        # The estimate of the prompt, for a rejection that does not say how long it is.
        self.preflight: Preflight | None = None
        self._min_output_tokens = min_output_tokens
        self._original = request
        self._base_url = base_url
        self._compat = compat
        self._capabilities = capabilities
        self._origin = Origin.of(request.model, base_url)
        self._learned = learned or compat.recall(base_url, request.model, request)
        self._hypotheses: list[Hypothesis] = []
        self._repairs = 0
        self._changes: dict[str, None] = {}
        self._normalized = self._normalize(self._learned)
        # Lessons about the whole server only concern the form of requests, which users do not see.
        self._add_lesson_note(
            lesson
            for lesson in compat.lessons(base_url, request)
            if lesson.model and uses_feature(lesson, request)
        )

    @property
    def request(self) -> ChatRequest:
        """The request to send."""
        return self._normalized.request

    @property
    def changes(self) -> tuple[str, ...]:
        """One sentence for each thing that was changed; those in `warnings` come first."""
        return (*self.warnings, *(change for change in self._changes if change not in SENSITIVE_NOTES))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The changes that concern privacy or the meaning of the answer."""
        return tuple(change for change in self._changes if change in SENSITIVE_NOTES)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of thing was changed."""
        return self._normalized.counts

    def answer_events(self) -> AnswerEvents:
        """Return the converter for the events of the answer to this request."""
        tools = frozenset(tool.name for tool in self._original.tools)
        return AnswerEvents(self._normalized.names.back, tools=tools)

    def add_changes(self, changes: Iterable[str]) -> None:
        for change in changes:
            if change not in self._changes:
                self._changes[change] = None
                log.info("%s", change)

    def limit_output(self, tokens: int) -> None:
        """Set the output limit of the request."""
        self._original = msgspec.structs.replace(self._original, max_output_tokens=tokens)
        limited = msgspec.structs.replace(self.request, max_output_tokens=tokens)
        self._normalized = msgspec.structs.replace(self._normalized, request=limited)

    def repair(self, error: BridgeError, sent: ChatRequest | None = None) -> bool:
        """Change the request after a rejection, at most `REPAIR_LIMIT` times, and never in the same way.

        Args:
            error: The rejection.
            sent: What was rejected, if fields were added to the request.

        Returns:
            Whether to send the request again.
        """
        if self.started or self._repairs == REPAIR_LIMIT:
            return False
        if isinstance(error, ContextTooLong):
            return self._make_room(error)
        # Imported here: its patterns take time to compile, and few requests are rejected.
        from tollbridge.compat.repairs import find_repair

        repair = find_repair(error, sent or self.request, self._learned)
        if repair is None:
            return False
        self._repairs += 1
        log.info("The gateway rejected the request (%s); retrying with changes.", error.code or error.kind)
        self.add_changes(repair.changes)
        self._hypotheses += repair.hypotheses
        self._learned = repair.learned
        self._normalized = self._normalize(repair.learned)
        return True

    def _make_room(self, error: ContextTooLong) -> bool:
        """Lower the output limit if the prompt fits the window, and only prompt and answer together do not.

        A gateway without a limit from the caller may assume the model's largest.
        """
        tokens, limit = error.tokens, error.limit
        if tokens is None and error.shared and self.preflight is not None:
            tokens = self.preflight.estimate.tokens
        if tokens is None or limit is None:
            return False
        room, previous = limit - tokens, self.request.max_output_tokens
        if room < MIN_ROOM or (previous is not None and room >= previous):
            return False
        self._repairs += 1
        self.limit_output(room)
        share = f"the prompt takes {tokens:,} of the {limit:,} tokens of the context window"
        self.add_changes([f"Limited the answer to {room:,} tokens: {share}."])
        return True

    def accept(self) -> None:
        """Note that the gateway has accepted the request."""
        self.started = True
        self._compat.accept(self._base_url, self._original, self.request, self._hypotheses)
        self._add_lesson_note(self._hypotheses)

    def _add_lesson_note(self, lessons: Iterable[Lesson | Hypothesis]) -> None:
        """Say what was learned, if the user can undo it."""
        if self._compat.persistent and (facts := "; ".join(map(describe_lesson, lessons))):
            note = (
                f"Learned from errors of this gateway: {facts}. `tollbridge quirks` shows and removes this."
            )
            self.add_changes([note])

    def _normalize(self, learned: LearnedQuirks) -> NormalizedRequest:
        quirks, capabilities = learned.quirks, self._capabilities
        reasons = self._original.reasons or (capabilities is not None and capabilities.reasoning)
        request = msgspec.structs.replace(self._original, quirks=quirks, reasons=reasons)
        if capabilities is not None:
            # Content that the model cannot accept is replaced as if the server rejected it.
            accepted = msgspec.structs.replace(
                quirks,
                images=quirks.images and capabilities.images,
                files=quirks.files and capabilities.files,
            )
            learned = msgspec.structs.replace(learned, quirks=accepted)
        normalized = normalize_request(
            request, learned, self._origin, min_output_tokens=self._min_output_tokens
        )
        self.add_changes(normalized.changes)
        if quirks.without:
            self.add_changes(describe_omissions(omitted_fields(request, quirks)))
        return normalized


# --- The turn ---

# Seconds that a cancelled turn waits until its usage is written: the editor waits for the turn.
STOP_TIMEOUT = 0.05


class StreamClient(Protocol):
    """The part of a client that a turn needs: its base URL, and the events of each network read."""

    @property
    def base_url(self) -> str: ...

    def batches(self, request: ChatRequest, *, api_key: str | None = None) -> AsyncGenerator[list[Event]]: ...


class TurnResult(msgspec.Struct, frozen=True):
    """The outcome of a turn that completed.

    Attributes:
        usage: What the gateway reported for the whole turn, failed attempts included; `None` if it reported
            nothing.
        context: The tokens that fill the context window now: less than `usage` after several steps.
        finish_reason: Why the model stopped.
        response_id: The gateway's id of the response.
        model: The model that answered, as the gateway names it.
        first: Seconds until the first event.
        duration: Seconds until the end.
        changes: One sentence for each thing that was changed in the request or the answer.
        counts: How often each kind of thing was changed.
        preflight: The estimate made before sending, if one was made.
        cost: What the turn costs, failed attempts included.
        warning: A sentence if the answer was cut short, the prompt is close to the context window, a field
            that concerns privacy or the meaning of the answer was not sent, or most of a budget is spent.
        message: The answer as a message that can be appended to the history.
        cache: What the provider's prompt cache did for this turn, and why not more; `None` if unknown.
    """

    usage: Usage | None
    context: Usage | None
    finish_reason: str | None
    response_id: str | None
    model: str | None
    first: float | None
    duration: float
    changes: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    preflight: Preflight | None = None
    warning: str | None = None
    message: Message = Message(Role.ASSISTANT, ())
    cost: Cost = Cost()
    cache: CacheReport | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the answer: text, thinking and tool calls."""
        return self.message.parts

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """The reasoning of the answer."""
        return "".join(part.text for part in self.parts if isinstance(part, ThinkingPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls that the caller should answer."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that can be written as JSON."""
        result: dict[str, Any] = msgspec.to_builtins(self)
        return result


class Turn:
    """One request and its answer, as an asynchronous iterator of events.

    Usually created by `Engine.turn`:

        async with engine.turn(request) as turn:
            async for event in turn:
                ...
        print(turn.result.usage)

    An error is raised after all events before it were yielded. Leaving the block early closes the connection.

    Args:
        request: The request of the caller.
        client: Sends the request.
        compat: What is known about servers; by default, no quirks are known.
        usage: Where the usage is recorded.
        tokens: Estimates the prompt and learns from the usage; by default, neither happens.
        cache: Explains what the prompt cache did for the turn; by default, nothing does.
        account: The account that the usage is recorded for.
        prices: The prices of the model, if known: the cost is recorded with the usage.
        find_prices: Returns the prices if they become known during the turn.
        api_key: The key for this request; by default the client's own.
        window: The most input tokens the model accepts, if known: a prompt close to it causes a warning.
        output_limit: How to choose the output limit if the request has none; by default none is sent.
        capabilities: What the model can do, if known: content it cannot accept is replaced by a note.
        learned: What `compat` says about this model, if it was looked up already.
        count: Whether the gateway may be asked to count the tokens of the prompt.
        budget: Keeps the turn within the budgets, and records its usage; by default, there are none.
        observers: Called with everything that happens in the turn.
        on_unbilled: Called with each attempt whose cost the gateway can be asked for.
    """

    def __init__(
        self,
        request: ChatRequest,
        client: StreamClient,
        *,
        compat: CompatMemory | None = None,
        usage: UsageTracker | None = None,
        tokens: TokenAccounting | None = None,
        cache: CacheTracker | None = None,
        account: BillingAccount | None = None,
        prices: Prices | None = None,
        find_prices: Callable[[], Prices | None] | None = None,
        api_key: str | None = None,
        window: int | None = None,
        output_limit: OutputLimit | None = None,
        capabilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
        count: bool = True,
        budget: BudgetGuard | None = None,
        observers: Sequence[Observer] = (),
        on_unbilled: Callable[[UsageRow], object] | None = None,
    ) -> None:
        self.request = request
        self.result: TurnResult | None = None
        self.origin = Origin.of(request.model, client.base_url)
        self._client = client
        if isinstance(client, GatewayClient):
            for observer in observers:
                client = self._client = client.observed_by(observer)
        self._compat = compat or CompatMemory()
        # A `BudgetGuard` is a usage tracker that passes everything on to the tracker it was created with.
        self._usage = budget or usage or UsageTracker()
        self._budget = budget
        self._tokens = tokens
        self._cache = cache
        self._account = account or BillingAccount()
        self._prices = prices
        self._find_prices = find_prices
        self._api_key = api_key
        self._window = window
        self._output_limit = output_limit
        self._capabilities = capabilities
        self._learned = learned
        self._may_count = count
        self._observers = observers
        self._on_unbilled = on_unbilled
        self._caller_failed = False
        self._batches = self._run()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caller_failed = isinstance(error, Exception)
        await self._batches.aclose()

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for batch in self._batches:
            for event in batch:
                yield event

    def batches(self) -> AsyncGenerator[list[Event]]:
        """Return the events as one list per network read, for callers on the hot path."""
        return self._batches

    async def parts(self) -> AsyncGenerator[list[Part]]:
        """Yield the answer as message parts, one list per network read, instead of events.

        The last part of an answer with reasoning holds all of it, for callers that cannot keep the metadata
        of single parts.
        """
        builder = PartsBuilder(self.origin)
        async for batch in self._batches:
            if parts := builder.take(batch):
                yield parts
        if parts := builder.close():
            yield parts

    async def _run(self) -> AsyncGenerator[list[Event]]:
        """Yield the events, and notify the observers of the end of the turn."""
        try:
            async with aclosing(self._run_and_record()) as batches:
                async for batch in batches:
                    for observer in self._observers:
                        observer.events(batch)
                    yield batch
        except BaseException as error:
            for observer in self._observers:
                await observer.end(None, error)
            raise
        for observer in self._observers:
            await observer.end(self.result, None)

    async def _run_and_record(self) -> AsyncGenerator[list[Event]]:
        """Yield the events, record the usage however the turn ends, and learn from it."""
        prepared = PreparedRequest(
            self.request,
            self._client.base_url,
            self._compat,
            self._capabilities,
            self._learned,
            min_output_tokens=getattr(self._client, "min_output_tokens", MIN_OUTPUT_TOKENS),
        )
        preflight = await self._measure(prepared)
        client, is_observed = self._client, isinstance(self._client, GatewayClient)
        record = RequestAccounting(
            self.request.model,
            self._usage,
            self._account,
            self._prices,
            find_prices=self._find_prices,
            conversation=self.request.conversation,
            sent=not is_observed,
            on_unbilled=self._on_unbilled,
        )
        if isinstance(client, GatewayClient):
            client = client.observed_by(AttemptObserver(record))
        answer: list[Event] = []
        try:
            await wait_for_write(record.row)  # `row` is a future: the write of that row
            async with aclosing(self._send(client, prepared, record, preflight)) as batches:
                async for batch in batches:
                    answer += batch
                    yield batch
        except (asyncio.CancelledError, GeneratorExit):
            outcome = record.close("failed" if self._caller_failed else "cancelled")
            await wait_for_write(outcome, STOP_TIMEOUT)
            raise
        except BridgeError as error:
            await wait_for_write(record.close("failed", error))
            if self._tokens is not None:
                await self._tokens.learn_from_rejection(prepared.request, error)
            self._add_numbers(error, preflight)
            raise
        else:
            await wait_for_write(record.close("completed"))
        finally:
            await wait_for_write(record.close("failed"))  # any other exception; the first call counts
        explanation = None
        if self._cache is not None:
            explanation = self._cache.add(lambda: prepared.request, record.last_row, record.finished)
        parts = PartsBuilder(self.origin).take(apply_corrections(answer))
        await wait_for_write(explanation)
        report = explanation.result() if explanation is not None and explanation.done() else None
        budget_warning = None if self._budget is None else await self._budget.warning()
        self.result = self._make_result(record, prepared, preflight, parts, report, budget_warning)
        if self._tokens is not None:
            parts = [part for part in parts if not is_marker(part)]
            provider = record.last_row.provider if record.last_row else None
            await self._tokens.learn(prepared.request, self.result.context, parts, preflight, provider)

    async def _measure(self, prepared: PreparedRequest) -> Preflight | None:
        """Estimate the prompt, and choose an output limit if the caller set none and one is needed."""
        preflight = None
        if self._tokens is not None:
            preflight = prepared.preflight = await self._tokens.measure(
                prepared.request, self._window, self._api_key, count=self._may_count
            )
        if self._output_limit is not None and self.request.max_output_tokens is None:
            limit = self._output_limit.choose(preflight)
            if limit is not None:
                prepared.limit_output(limit)
        return preflight

    def _add_numbers(self, error: BridgeError, preflight: Preflight | None) -> None:
        """Add the estimate and the window to a context-length error of a gateway that reports no numbers."""
        if not isinstance(error, ContextTooLong) or preflight is None or (error.tokens and error.limit):
            return
        tokens, limit = error.tokens or preflight.estimate.tokens, error.limit or self._window
        numbers = f"The prompt has about {tokens:,} tokens"
        numbers += f"; the model accepts {limit:,}." if limit else "."
        error.message = f"{error.message.rstrip()} {numbers}".lstrip()
        error.args = (error.message,)
        error.tokens, error.limit = tokens, limit

    async def _send(
        self,
        client: StreamClient,
        prepared: PreparedRequest,
        record: RequestAccounting,
        preflight: Preflight | None,
    ) -> AsyncGenerator[list[Event]]:
        """Send the request, and again if it was rejected for a reason that can be repaired."""
        while True:
            request = prepared.request
            if self._budget is not None:
                client, request = await self._reserve(self._budget, client, prepared, preflight)
                preflight = None  # it is the estimate of the first request
            answer = prepared.answer_events()
            has_output = False
            failure: BridgeError | None = None
            request = self._request_diagnosis(request)
            try:
                async with aclosing(client.batches(request, api_key=self._api_key)) as batches:
                    async for batch in batches:
                        record.add_events(batch)
                        if not prepared.started:
                            prepared.accept()
                        events = answer.take(batch)
                        has_output = has_output or any(map(_is_output, events))
                        yield events
            except BridgeError as error:
                if prepared.repair(error, request):
                    record.retry(error)
                    await wait_for_write(record.row)
                    continue
                failure = error
            events, failure = answer.close(failure)
            if events:
                yield events
            prepared.add_changes(answer.changes)
            finished = record.finished
            if failure is None and finished is not None and not (has_output or any(map(_is_output, events))):
                # A limit that the user did not set is not mentioned, except that of a budget.
                limited = self.request if self._budget is None else request
                failure = empty_answer_error(finished, limited.max_output_tokens)
            if failure is not None:
                raise failure
            return

    def _request_diagnosis(self, request: ChatRequest) -> ChatRequest:
        """Ask a server that can explain cache misses to compare the prompt with the previous one.

        The field is added only here: it changes with each request, and is not part of the prompt.
        """
        if self._cache is None or not isinstance(self._client, GatewayClient):
            return request
        scope = self._client.base_url, self._account.account, request.conversation
        return request_diagnosis(request, self._client.protocol, self._cache.previous_response(*scope))

    async def _reserve(
        self,
        budget: BudgetGuard,
        client: StreamClient,
        prepared: PreparedRequest,
        preflight: Preflight | None,
    ) -> tuple[StreamClient, ChatRequest]:
        """Reserve the cost of the request. Return it, limited to what the budgets allow, and its client."""
        request = prepared.request
        prompt = preflight.estimate if preflight else None
        limit = await budget.reserve(request, prompt, may_limit=self.request.max_output_tokens is None)
        if limit is not None:
            request = msgspec.structs.replace(request, max_output_tokens=limit)
            prepared.add_changes([f"Limited the answer to {limit:,} tokens: the budget does not allow more."])
        if isinstance(client, GatewayClient):
            client = client.admitting_retries(lambda: budget.reserve(request))
        return client, request

    def _make_result(
        self,
        record: RequestAccounting,
        prepared: PreparedRequest,
        preflight: Preflight | None,
        parts: list[Part],
        cache: CacheReport | None,
        budget_warning: str | None,
    ) -> TurnResult:
        finished = record.finished
        context = (finished.context or finished.usage) if finished else None
        limit = prepared.request.max_output_tokens
        warnings = [incomplete_reason(finished, limit) if finished else None, *prepared.warnings]
        if self._tokens is not None:
            warnings.append(self._tokens.warning(context, self._window, preflight))
        warnings.append(budget_warning)
        return TurnResult(
            usage=record.usage,
            context=context,
            finish_reason=finished.reason if finished else None,
            response_id=finished.response_id if finished else None,
            model=finished.model if finished else None,
            first=record.first,
            duration=record.duration,
            changes=prepared.changes,
            counts=prepared.counts,
            preflight=preflight,
            warning=" ".join(filter(None, warnings)) or None,
            message=Message(Role.ASSISTANT, join_parts(parts)),
            cost=record.cost,
            cache=cache,
        )


class AttemptObserver(Observer):
    """Records each attempt of a client."""

    def __init__(self, record: RequestAccounting) -> None:
        self._record = record

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002
        self._record.send()

    def response(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        if (billing := read_billing_headers(headers)) is not None:
            self._record.add_billing(billing)

    def billing(self, billing: Billing) -> None:
        self._record.add_billing(billing)

    def retry(self, error: BridgeError, seconds: float) -> None:  # noqa: ARG002
        self._record.retry(error)


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
