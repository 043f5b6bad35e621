"""The token estimator an application holds: counts, predicts, and learns from what gateways report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from threading import RLock, Thread
from typing import Literal, TypeVar

import msgspec

from tollbridge.storage.database import Database, StoreBusy, StoreUnusable
from tollbridge.storage.tables import LedgerTables
from tollbridge.tokens.ledger import EstimationResult, Ledger
from tollbridge.tokens.records import Accuracy
from tollbridge.tokens.tokenizers import BASE, LruCache, family_of, warm
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.usage import Usage

_log = logging.getLogger(__name__)

T = TypeVar("T")

# A prompt that fills this share of the window is near its end.
NEAR = 0.9
# Characters of texts that one generation of the cache of counts may hold, and those of the longest of them.
_MOST = 2_000_000
_KEPT = 20_000


Verdict = Literal["fits", "near", "over", "unknown"]


def judge_prompt(tokens: int, window: int | None) -> Verdict:
    """A prompt beside the most input tokens its model takes, where that is known."""
    if not window:
        return "unknown"
    return "over" if tokens > window else "near" if tokens / window >= NEAR else "fits"


def prompt_warning(tokens: int | None, window: int | None, came_to: str = "came to") -> str | None:
    """A sentence for the log and the status bar, where there is something to say."""
    if tokens is None or not window or (verdict := judge_prompt(tokens, window)) not in ("near", "over"):
        return None
    where = "more than" if verdict == "over" else f"{tokens / window:.0%} of"
    return f"The prompt {came_to} {tokens:,} tokens, {where} the {window:,} that fit."


class Preflight(msgspec.Struct, frozen=True):
    """A prompt beside the window it must fit into. It warns, and refuses nothing: the gateway decides."""

    estimate: EstimationResult
    window: int | None

    @property
    def verdict(self) -> Verdict:
        return judge_prompt(self.estimate.tokens, self.window)

    @property
    def warning(self) -> str | None:
        return prompt_warning(self.estimate.tokens, self.window, "is about")


class HybridTokenEstimator:
    """Estimates improve with every `calibrate`. With a `path`, what is learned outlives the process and is
    shared with every other that uses the same file; without one it is kept in memory. Threads may share it.

    Learning may wait for another process that writes, `patience` seconds at the most (10, if not said);
    estimating waits for nobody.
    """

    def __init__(self, path: str | PathLike[str] | None = None, *, patience: float | None = None) -> None:
        self._database: Database | None = None
        self._ledger = self._open(Path(path), patience) if path is not None else Ledger()
        self._lesson = self._ledger.lesson
        self._counts: dict[str, LruCache[str, int]] = {}
        self._lock = RLock()

    def _open(self, path: Path, patience: float | None) -> Ledger:
        try:
            self._database = Database(path, patience)
            return Ledger(LedgerTables(self._database))
        except StoreUnusable as error:
            _log.warning("%s; what is learned now is lost at the end", error.message)
            return Ledger()

    def warm(self, *models: str) -> Thread:
        """Load the vocabularies of these models in the background."""
        names = {family_of(model).vocabulary or BASE for model in models} or {BASE}
        return warm(*sorted(names))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    # --- counting and estimating ---

    @property
    def lesson(self) -> int:
        """Another number whenever texts that were counted may now count otherwise."""
        with self._lock:
            return self._ledger.lesson

    def estimate_text(self, model: str, text: str) -> int:
        """The tokens of a text by itself. Exact where the model's vocabulary is bundled."""
        with self._lock:
            if self._lesson != self._ledger.lesson:
                self._lesson = self._ledger.lesson
                self._counts.clear()
            counts = self._counts.get(model)
            if counts is None:
                counts = self._counts[model] = LruCache(_MOST)
            count = counts.get(text)
        if count is None:
            self._ledger.read_text(model, text)  # which takes its time: nobody else waits for it
            count = self._reading(lambda ledger: ledger.text_tokens(model, text))
            if len(text) <= _KEPT:
                with self._lock:
                    counts.put(text, count, len(text) + 100)
        return count

    def estimate_message(self, model: str, message: Message) -> int:
        """The tokens of a message's content, without what surrounds every message: hosts add that."""
        self._ledger.read_texts(model, message)
        return self._reading(lambda ledger: ledger.message_tokens(model, message))

    def estimate_conversation(
        self, model: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> EstimationResult:
        return self.estimate_request(ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools)))

    def estimate_request(self, request: ChatRequest) -> EstimationResult:
        """The input tokens a gateway will report for this request."""
        for message in request.messages:
            self._ledger.read_texts(request.model, message)
        return self._reading(lambda ledger: ledger.estimate(request))

    def preflight(self, request: ChatRequest, window: int | None) -> Preflight:
        """Compare the request with the most input tokens the model takes, where that is known."""
        return Preflight(self.estimate_request(request), window or None)

    # --- learning ---

    def calibrate(
        self,
        model: str,
        messages: Sequence[Message],
        usage: Usage,
        tools: Sequence[Tool] = (),
        answer: Iterable[Part] = (),
    ) -> bool:
        """Learn from a completed request; whether its report was believed."""
        request = ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools))
        return self.calibrate_request(request, usage, answer)

    def calibrate_request(
        self,
        request: ChatRequest,
        usage: Usage,
        answer: Iterable[Part] = (),
        told: EstimationResult | None = None,
    ) -> bool:
        """`usage` is that of the last step, the one whose input was this request; `answer` is what was
        streamed, so that it is known by its output tokens when it comes back as history; `told` is what was
        estimated beforehand, if it may have become surer since."""
        parts = tuple(answer)

        def learn(ledger: Ledger) -> bool:
            believed = ledger.record(request, usage, told=told)
            if believed:
                ledger.record_answer(request.model, parts, usage)
            return believed

        return self._writing(learn)

    def counted(self, request: ChatRequest, tokens: int) -> bool:
        """Learn from a count the gateway was asked for (`/v1/responses/input_tokens`); whether it was
        believed."""
        return self._writing(lambda ledger: ledger.record_count(request, tokens))

    def refused(self, request: ChatRequest, error: ContextTooLong) -> bool:
        """Learn from a refusal: the numbers it gives are the truth for this prompt."""
        if error.tokens:
            told = Usage(input_tokens=error.tokens)
            return self._writing(lambda ledger: ledger.record(request, told, surely=True))
        if error.limit and not error.shared and self.estimate_request(request).tokens <= error.limit:
            # Nobody said how long it is, but it is longer than this.
            longer = error.limit + 1
            self._reading(lambda ledger: ledger.record_floor(request, longer))
            return True
        return False

    def seen(self, model: str) -> int:
        """How many requests of a model were learned from."""
        return self._reading(lambda ledger: ledger.rates.seen(model))

    def accuracy(self) -> list[Accuracy]:
        """How right the estimates were, by model."""
        return self._reading(lambda ledger: ledger.accuracy())

    def reset(self) -> None:
        """Forget everything that was learned and recorded."""
        self._writing(lambda ledger: ledger.clear())

    # --- the store ---

    def _writing(self, act: Callable[[Ledger], T]) -> T:
        """Another process that writes is waited for; one that never ends costs this lesson and no more."""
        try:
            if self._database is None:
                return self._safely(act)
            return self._database.patiently(lambda: self._safely(act))
        except StoreBusy as error:
            _log.warning("%s; what this request taught is lost", error.message)
            return act(Ledger())

    def _reading(self, act: Callable[[Ledger], T]) -> T:
        """Nobody is waited for."""
        try:
            return self._safely(act)
        except StoreBusy as error:
            _log.warning("%s; this once nothing learned is used", error.message)
            return act(Ledger())

    def _safely(self, act: Callable[[Ledger], T]) -> T:
        """One at a time; and a store that fails for good costs what was learned, never a turn."""
        with self._lock:
            try:
                return act(self._ledger)
            except StoreBusy:
                raise
            except StoreUnusable as error:
                _log.warning("%s; going on without it", error.message)
                self._ledger = Ledger()
                self._lesson = -1
                return act(self._ledger)
