"""The walk across and back: make the history legal, translate, request, adapt, account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Protocol

import msgspec

from tollbridge.compat.profiles import CompatMemory, CompatStore, LearnedQuirks
from tollbridge.compat.repairs import describe_omissions, find_repair, omitted_fields
from tollbridge.estimator import NEAR, HybridTokenEstimator, Preflight, prompt_warning
from tollbridge.history.answer import AnswerParts
from tollbridge.history.normalize import NormalizedRequest, normalize_request
from tollbridge.storage.tracker import BillingAccount, RequestAccounting, UsageTracker
from tollbridge.storage.worker import WRITE_TIMEOUT, wait_for_write
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.events import Event, empty_answer_error, incomplete_reason
from tollbridge.types.messages import ChatRequest, DataPart, Part, ThinkingPart
from tollbridge.types.models import Capabilities
from tollbridge.types.reasoning import Origin, is_marker
from tollbridge.types.text import write_json
from tollbridge.types.usage import Usage

# SECTION The toll of a turn: what it will come to before, what it came to after, and what is learned from the two.
#
# It warns and learns; it never refuses a request and never delays one.

log = logging.getLogger(__name__)

# Answers of a gateway that has no such route. Any other failure is about that one question.
CANNOT_COUNT = frozenset({404, 405, 501})


class Counter(Protocol):
    """A gateway that can be asked how many tokens a request would come to."""

    async def input_tokens(self, request: ChatRequest, *, api_key: str | None = None) -> int: ...


class TokenAccounting:
    """Joins an estimator to turns. With a `counter`, the gateway is asked once for every new conversation, in
    the background; one that cannot say is not asked again.

    What is learned is written by a thread of its own, in order: the file may be another process's just now.
    `behind` is for a program that lives for a few turns: a prompt that is surely short is not estimated
    beforehand, for a vocabulary takes its time to load, and no turn waits until its lesson is learned.
    """

    def __init__(
        self, estimator: HybridTokenEstimator, counter: Counter | None = None, *, behind: bool = False
    ) -> None:
        self.estimator = estimator
        self._counter = counter
        self._behind = behind
        self._asking: set[asyncio.Task[None]] = set()
        self._learner = ThreadPoolExecutor(1, thread_name_prefix="toll")

    def before(
        self, request: ChatRequest, window: int | None, api_key: str | None = None
    ) -> Preflight | None:
        """What the prompt will come to, with a warning in the log where it is near or over the window."""
        if self._behind and (window is None or _is_surely_short(request, window)):
            return None
        preflight = self.estimator.preflight(request, window)
        if preflight.warning is not None:
            log.warning("%s", preflight.warning)
        if self._counter is not None and preflight.estimate.method == "estimated":
            task = asyncio.create_task(self._ask(self._counter, request, api_key))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return preflight

    def warning(self, usage: Usage | None, window: int | None, preflight: Preflight | None) -> str | None:
        """Of a turn that has ended: by what the gateway reported, and by the estimate where it did not."""
        if usage is not None and usage.input_tokens:
            return prompt_warning(usage.input_tokens, window)
        return preflight.warning if preflight is not None else None

    async def after(
        self,
        request: ChatRequest,
        usage: Usage | None,
        answer: Iterable[Part],
        preflight: Preflight | None = None,
    ) -> None:
        """`usage` is that of the last step: the one whose input was this request."""
        if usage is not None:
            parts, told = tuple(answer), preflight.estimate if preflight else None
            await self._learn(lambda: self.estimator.calibrate_request(request, usage, parts, told))

    async def refused(self, request: ChatRequest, error: BridgeError) -> None:
        """“Too long” teaches: the numbers in it are the truth for this prompt."""
        if isinstance(error, ContextTooLong):
            await self._learn(lambda: self.estimator.refused(request, error))

    async def aclose(self, within: float = WRITE_TIMEOUT) -> None:
        """Stop asking, and keep what was learned, unless that takes too many seconds."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await wait_for_write(self._learner.submit(lambda: None), within)  # which comes last
        self._learner.shutdown(wait=False)

    async def _learn(self, act: Callable[[], object]) -> None:
        """Usually it is done when this returns; a store that another process holds delays nobody for long."""
        learning = self._learner.submit(act)
        if not self._behind:
            await wait_for_write(learning)

    async def _ask(self, counter: Counter, request: ChatRequest, api_key: str | None) -> None:
        try:
            tokens = await counter.input_tokens(request, api_key=api_key)
        except BridgeError as error:
            if error.status in CANNOT_COUNT:
                log.info("The gateway does not count tokens (%s); it is not asked again.", error.status)
                self._counter = None
        else:
            await self._learn(lambda: self.estimator.counted(request, tokens))


def _is_surely_short(request: ChatRequest, window: int) -> bool:
    """Whatever the vocabulary, a token of text is a byte at least; a picture is as many as it likes."""
    parts = (part for message in request.messages for part in message.parts)
    if any(isinstance(part, DataPart) for part in parts):
        return False
    return len(write_json((request.messages, request.tools)).encode()) < NEAR * window


# SECTION One request on its way over the bridge: made legal for its reader, and once more if it is refused.


class PreparedRequest:
    """`begun` once anything was said: from then on nothing is asked again. `learned` is what the lessons
    say, where it was recalled already."""

    def __init__(
        self,
        request: ChatRequest,
        base_url: str,
        lessons: CompatStore,
        abilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
    ) -> None:
        self.begun = False
        self._asked = request
        self._base_url = base_url
        self._lessons = lessons
        self._abilities = abilities
        self._origin = Origin.of(request.model, base_url)
        self._learned = learned or lessons.recall(base_url, request.model)
        self._refusal: BridgeError | None = None  # the one that was healed
        self._changes: dict[str, None] = {}
        self._legal = self._made(self._learned)

    @property
    def sent(self) -> ChatRequest:
        return self._legal.request

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(self._changes)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of thing was changed in what was sent."""
        return self._legal.counts

    def answer(self) -> AnswerParts:
        tools = frozenset(tool.name for tool in self._asked.tools)
        return AnswerParts(self._legal.names.back, self._origin, tools=tools)

    def note(self, changes: Iterable[str]) -> None:
        for change in changes:
            if change not in self._changes:
                self._changes[change] = None
                log.info("%s", change)

    def heal(self, error: BridgeError) -> bool:
        """Whether to ask again, with a request that is changed: once. What was changed is remembered, unless
        the very same refusal follows: then it was not what the gateway meant."""
        if self.begun:
            return False
        if self._refusal is not None:
            if (error.code, error.message) == (self._refusal.code, self._refusal.message):
                self._lessons.learn(self._base_url, self._asked.model, self._learned)
            return False
        cure = find_repair(error, self.sent, self._learned)
        if cure is None:
            return False
        self._refusal = error
        log.info("The gateway refused the request (%s); asking once more.", error.code or error.kind)
        self.note(cure.changes)
        self._lessons.learn(self._base_url, self._asked.model, cure.learned)
        self._legal = self._made(cure.learned)
        return True

    def _made(self, learned: LearnedQuirks) -> NormalizedRequest:
        quirks, can = learned.quirks, self._abilities
        if can is not None:
            accepted = msgspec.structs.replace(
                quirks, images=quirks.images and can.images, files=quirks.files and can.files
            )
            learned = msgspec.structs.replace(learned, quirks=accepted)
        reasons = self._asked.reasons or (can is not None and can.reasoning)
        asked = msgspec.structs.replace(self._asked, quirks=quirks, reasons=reasons)
        legal = normalize_request(asked, learned, self._origin)
        self.note(legal.changes)
        self.note(describe_omissions(omitted_fields(asked, quirks)))
        return legal


# SECTION The walk across and back: make the history legal, translate, request, adapt, account.

# Seconds a turn that was stopped waits for its row: the editor waits for the turn.
STOPPING = 0.05


class StreamClient(Protocol):
    """What the bridge needs of a client: where it talks to, and events, one list a network read."""

    @property
    def base_url(self) -> str: ...

    def batches(self, request: ChatRequest, *, api_key: str | None = None) -> AsyncGenerator[list[Event]]: ...


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn ended. `first` and `duration` are seconds; `changes` says what was mended on
    the way, in words, and `counts` how often, by kind; `warning` that the answer stopped before its end, or
    that the prompt was near what fits."""

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


class Bridge:
    """Carries turns between an editor and a gateway. Turns under way at once share the tracker, the toll, and
    what was learned of the gateway."""

    def __init__(
        self,
        gateway: StreamClient,
        tracker: UsageTracker | None = None,
        toll: TokenAccounting | None = None,
        *,
        account: BillingAccount | None = None,
        lessons: CompatStore | None = None,
    ) -> None:
        self._gateway = gateway
        self._payer = account or BillingAccount()
        self._toll = toll
        self._lessons = lessons or CompatMemory()
        self.tracker = tracker or UsageTracker()

    async def answer(
        self,
        request: ChatRequest,
        report: Callable[[list[Part]], object],
        *,
        api_key: str | None = None,
        window: int | None = None,
        abilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
    ) -> TurnResult:
        """Report the parts of the answer as they come, a list for each network read, and say how it ended.

        A failure is raised when everything before it has been reported; an answer that stopped before its
        first word is one. Cancelling hangs up. `window` is the most input tokens the model takes, and
        `abilities` what it can do, where that is known: a prompt near the window is warned of, and what the
        model cannot take is replaced by a note. `learned` is what the lessons say of the server, where it was
        recalled already.
        """
        crossing = PreparedRequest(request, self._gateway.base_url, self._lessons, abilities, learned)
        preflight = self._toll.before(crossing.sent, window, api_key) if self._toll is not None else None
        account = RequestAccounting(request.model, self.tracker, self._payer)
        said: list[Part] = []  # only where something is learned from it

        def tell(parts: list[Part]) -> None:
            if parts:
                report(parts)
            if self._toll is not None:
                said.extend(part for part in parts if not is_marker(part))

        try:
            await wait_for_write(account.ticket)
            await self._cross(crossing, account, tell, api_key)
        except asyncio.CancelledError:
            await wait_for_write(account.close("cancelled"), within=STOPPING)
            raise
        except BridgeError as error:
            await wait_for_write(account.close("failed", error))
            if self._toll is not None:
                await self._toll.refused(crossing.sent, error)
            raise
        else:
            await wait_for_write(account.close("completed"))
        finally:
            await wait_for_write(
                account.close("failed")
            )  # whatever else happened, the editor's own errors too
        turn = _turn(account, crossing, preflight)
        if self._toll is None:
            return turn
        await self._toll.after(crossing.sent, turn.context, said, preflight)
        warnings = turn.warning, self._toll.warning(turn.context, window, preflight)
        return msgspec.structs.replace(turn, warning=" ".join(filter(None, warnings)) or None)

    async def _cross(
        self,
        crossing: PreparedRequest,
        account: RequestAccounting,
        tell: Callable[[list[Part]], None],
        api_key: str | None,
    ) -> None:
        """Ask, and ask once more where the refusal can be cured: only while nothing has been said."""
        while True:
            answer = crossing.answer()
            spoken = False
            try:
                async with aclosing(self._gateway.batches(crossing.sent, api_key=api_key)) as batches:
                    async for batch in batches:
                        account.see(batch)
                        crossing.begun = True
                        parts = answer.take(batch)
                        spoken = spoken or any(map(_is_said, parts))
                        tell(parts)
                failure: BridgeError | None = None
            except BridgeError as error:
                if crossing.heal(error):
                    continue
                failure = error
            parts, failure = answer.close(failure)
            tell(parts)
            crossing.note(answer.changes)
            if failure is None and account.finished is not None and not (spoken or any(map(_is_said, parts))):
                failure = empty_answer_error(account.finished, crossing.sent.max_output_tokens)
            if failure is not None:
                raise failure
            return


def _is_said(part: Part) -> bool:
    """Whether a part is of the answer, and not of the way there."""
    return not (isinstance(part, ThinkingPart) or is_marker(part))


def _turn(account: RequestAccounting, crossing: PreparedRequest, preflight: Preflight | None) -> TurnResult:
    finished = account.finished
    return TurnResult(
        usage=finished.usage if finished else None,
        context=(finished.context or finished.usage) if finished else None,
        finish_reason=finished.reason if finished else None,
        response_id=finished.response_id if finished else None,
        model=finished.model if finished else None,
        first=account.first,
        duration=account.duration,
        changes=crossing.changes,
        counts=crossing.counts,
        preflight=preflight,
        warning=incomplete_reason(finished) if finished else None,
    )
