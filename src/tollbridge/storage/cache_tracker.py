"""Compare each prompt with the previous one of its conversation, and keep what the prompt cache did for it.

This happens on a background thread, after the response, so that it delays no request.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

import msgspec

from tollbridge.storage.rows import CacheEntry, Scope, StoredReport, UsageRow
from tollbridge.storage.store import PromptStore, StoreUnusable
from tollbridge.storage.worker import BatchQueue, Pending, WorkerThread
from tollbridge.tokens.prompt_cache import (
    CacheReport,
    SentPrompt,
    choose_previous,
    explain,
    is_continuation,
    make_chain,
)
from tollbridge.types.events import CacheDiagnosis, Finished
from tollbridge.types.messages import ChatRequest

log = logging.getLogger(__name__)

# Prompts kept in memory, and conversations whose last response is known.
_RECENT_LIMIT, _RESPONSE_LIMIT = 32, 1_000
# Requests that may wait to be explained, in memory. While that many wait, no more are explained.
_WAITING_LIMIT = 256


class CacheTracker:
    """Explains what the prompt cache did for each answered request.

    A background thread computes the digests and compares them, in order. Nothing is delayed if the store
    cannot be used: the prompts of this process are also kept in memory.

    Args:
        store: Where prompts and reports are stored; `None` to keep them in memory only.
        worker: The background thread.
    """

    def __init__(self, store: PromptStore | None, worker: WorkerThread) -> None:
        self._store = store
        self._recent: deque[tuple[Scope, SentPrompt]] = deque(maxlen=_RECENT_LIMIT)
        self._responses: OrderedDict[Scope, str] = OrderedDict()
        self._worker = worker
        self._waiting = BatchQueue(worker, self._explain_all)

    def add(
        self,
        read_request: Callable[[], ChatRequest],
        row: UsageRow | None,
        finished: Finished | None,
        delay: float = 0.0,
    ) -> Pending[CacheReport | None] | None:
        """Explain a request that was answered, unless the gateway reported no usage.

        Args:
            read_request: Returns the request as it was sent. It is called on the background thread.
            row: The record of the last attempt.
            delay: Seconds that the report may wait, to be made together with others.

        Returns:
            The report; `None` if there is none, and with a delay, because nobody waits for it.
        """
        usage = finished and (finished.context or finished.usage)
        if row is None or finished is None or row.turn is None or not usage or not usage.input_tokens:
            return None
        scope = Scope.of(row)
        if scope.conversation is not None and finished.response_id is not None:
            self._responses[scope] = finished.response_id
            self._responses.move_to_end(scope)
            if len(self._responses) > _RESPONSE_LIMIT:
                self._responses.popitem(last=False)
        row = msgspec.structs.replace(row, usage=usage)
        call = partial(self._explain, read_request, row, finished.cache)
        if not delay:
            self._waiting.hurry()  # what was added before is explained before
            return self._worker.submit(call)
        if len(self._waiting) < _WAITING_LIMIT:
            self._waiting.add(call, delay)
        return None

    def previous_response(self, base_url: str, account: str, conversation: str | None) -> str | None:
        """Return the id of the last response in a conversation."""
        return self._responses.get(Scope(base_url, account, conversation))

    def finish(self) -> None:
        """Explain now what may wait. The worker thread does it before it ends."""
        self._waiting.hurry()

    def _explain_all(self, calls: list[Callable[[], object]]) -> None:
        for call in calls:
            call()

    def _explain(
        self, read_request: Callable[[], ChatRequest], row: UsageRow, diagnosis: CacheDiagnosis | None
    ) -> CacheReport | None:
        try:
            return self._make_report(read_request(), row, diagnosis)
        except Exception as error:  # noqa: BLE001 - an explanation must not fail a turn
            log.warning("The use of the prompt cache could not be explained: %s", type(error).__name__)
            return None

    def _make_report(
        self, request: ChatRequest, row: UsageRow, diagnosis: CacheDiagnosis | None
    ) -> CacheReport:
        scope, turn = Scope.of(row), row.turn or ""
        prompt = SentPrompt(
            turn=turn,
            started=row.started,
            chain=make_chain(request),
            usage=row.usage,
            provider=row.provider,
            response_id=row.response_id,
        )
        previous = self._find_previous(scope, prompt)
        report = explain(prompt, previous, row.prices, diagnosis)
        if report.missed:
            log.info("Prompt cache: %s", report.sentence)
        replaced = None
        if previous is not None and is_continuation(previous.chain, prompt.chain):
            replaced = previous.turn
        self._recent = deque((entry for entry in self._recent if entry[1].turn != replaced), _RECENT_LIMIT)
        self._recent.append((scope, prompt))
        stored = StoredReport(
            turn=turn,
            started=row.started,
            model=row.model,
            conversation=row.conversation,
            response_id=row.response_id,
            report=report,
        )
        if self._store is not None:
            self._store.put(CacheEntry(scope, prompt, stored, replaced))
        return report

    def _find_previous(self, scope: Scope, prompt: SentPrompt) -> SentPrompt | None:
        same_conversation = scope.conversation is not None
        recent = [entry for place, entry in self._recent if place == scope]
        previous = choose_previous(prompt.chain, recent, same_conversation=same_conversation)
        if previous is None and self._store is not None:
            try:
                stored = self._store.find(scope)
            except StoreUnusable as error:
                log.info("%s", error.message)
                return None
            previous = choose_previous(prompt.chain, stored, same_conversation=same_conversation)
        return previous
