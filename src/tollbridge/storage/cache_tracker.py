"""Compare each prompt with the previous one of its conversation, and keep what the prompt cache did for it.

`CacheTable` stores the last prompts of conversations, as digests, and one report per turn. `CacheTracker`
makes the reports on a background thread, after the response, so that they delay no request.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from tollbridge.storage.database import BatchQueue, Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import UsageRow
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

# Rows of each table; the oldest are deleted. A prompt of 250,000 tokens takes 23 kB, a report 400 bytes.
PROMPT_LIMIT, REPORT_LIMIT = 500, 5_000
# Prompts kept in memory, and how many of a table's newest prompts are compared with a new one.
_RECENT_LIMIT, _CANDIDATE_LIMIT = 32, 16
_RESPONSE_LIMIT = 1_000
# Requests that may wait to be explained, in memory. While that many wait, no more are explained.
_WAITING_LIMIT = 256
# Seconds that writing waits for another process, and that closing takes at most.
_BUSY_TIMEOUT, _CLOSING_TIMEOUT = 1.0, 1.0

_encode_prompt = msgspec.msgpack.Encoder().encode
_decode_prompt = msgspec.msgpack.Decoder(SentPrompt).decode


class Scope(msgspec.Struct, frozen=True):
    """Where prompts can share a cache: one account at one gateway, and the conversation, if it has an id."""

    base_url: str
    account: str
    conversation: str | None = None

    @classmethod
    def of(cls, row: UsageRow) -> Scope:
        return cls(row.base_url, row.account, row.conversation)


class StoredReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one turn. The fields are those of `explain --json`, which adds those of the report."""

    turn: str
    started: float
    model: str
    conversation: str | None = None
    response_id: str | None = None
    report: CacheReport


class CacheEntry(msgspec.Struct, frozen=True):
    """What is stored of one turn.

    Attributes:
        scope: Where the prompt can be found again.
        prompt: The prompt.
        report: The report.
        replaced: The turn whose prompt is the beginning of this one, and is not needed any more.
    """

    scope: Scope
    prompt: SentPrompt
    report: StoredReport
    replaced: str | None = None


class CacheTable:
    """Stores prompts and reports. Closes the given database when it is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_prompts(self, scope: Scope) -> list[SentPrompt]:
        """Return the newest prompts of a conversation; without an id, those of the account without one."""
        rows = self._database.query(
            "SELECT prompt FROM sent_prompt WHERE base_url = ? AND account = ? AND conversation IS ? "
            "ORDER BY id DESC LIMIT ?",
            (scope.base_url, scope.account, scope.conversation, _CANDIDATE_LIMIT),
        )
        prompts = []
        for (data,) in rows:
            with suppress(msgspec.MsgspecError):  # written by another version
                prompts.append(_decode_prompt(data))
        return prompts

    def put(self, entries: Sequence[CacheEntry]) -> None:
        """Add prompts and their reports in one transaction."""
        self._database.retry_while_busy(lambda: self._put(entries))

    def _put(self, entries: Sequence[CacheEntry]) -> None:
        with self._database.transaction():
            for entry in entries:
                self._put_entry(entry.scope, entry.prompt, entry.report, entry.replaced)
            for table, limit in (("sent_prompt", PROMPT_LIMIT), ("cache_report", REPORT_LIMIT)):
                self._database.execute(
                    f"DELETE FROM {table} WHERE id <= "  # noqa: S608
                    f"(SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (limit,),
                )

    def _put_entry(
        self, scope: Scope, prompt: SentPrompt, report: StoredReport, replaced: str | None
    ) -> None:
        self._database.execute("DELETE FROM sent_prompt WHERE turn IS ?", (replaced,))
        self._database.execute(
            "INSERT OR REPLACE INTO sent_prompt (turn, base_url, account, conversation, prompt) "
            "VALUES (?, ?, ?, ?, ?)",
            (prompt.turn, scope.base_url, scope.account, scope.conversation, _encode_prompt(prompt)),
        )
        self._database.execute(
            "INSERT OR REPLACE INTO cache_report (turn, started, missed, report) VALUES (?, ?, ?, ?)",
            (report.turn, report.started, report.report.missed, msgspec.json.encode(report).decode()),
        )

    def find_report(self, turn: str | None = None) -> StoredReport | None:
        """Return the report of a turn by the start of its id, or the last report."""
        escaped = (turn or "").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        rows = self._database.query(
            "SELECT report FROM cache_report WHERE turn LIKE ? ESCAPE '\\' ORDER BY started DESC LIMIT 1",
            (f"{escaped}%",),
        )
        return next(_decode_reports(rows), None)

    def misses(self, since: float = 0.0, limit: int = REPORT_LIMIT) -> list[StoredReport]:
        """Return the newest misses, the newest first."""
        rows = self._database.query(
            "SELECT report FROM cache_report WHERE missed AND started >= ? ORDER BY started DESC LIMIT ?",
            (since, limit),
        )
        return list(_decode_reports(rows))

    def close(self) -> None:
        self._database.close()


def _decode_reports(rows: Iterable[tuple[str]]) -> Iterator[StoredReport]:
    for (data,) in rows:
        with suppress(msgspec.MsgspecError):  # written by another version
            yield msgspec.json.decode(data, type=StoredReport)


class CacheTracker:
    """Explains what the prompt cache did for each answered request.

    A background thread computes the digests and compares them, in order. Nothing is delayed if the database
    cannot be used: the prompts of this process are also kept in memory.

    Args:
        path: The database; without it, prompts are kept in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._table: CacheTable | None = None
        self._recent: deque[tuple[Scope, SentPrompt]] = deque(maxlen=_RECENT_LIMIT)
        self._responses: OrderedDict[Scope, str] = OrderedDict()
        self._worker = WorkerThread("cache-reports")
        self._entries = BatchQueue(self._worker, self._store)
        self._waiting = BatchQueue(self._worker, self._explain_all)
        self._closing = False

    def add(
        self, read_request: Callable[[], ChatRequest], row: UsageRow | None, finished: Finished | None
    ) -> Future[CacheReport | None] | None:
        """Explain a request that was answered.

        Args:
            read_request: Returns the request as it was sent. It is called on the background thread.
            row: The record of the last attempt.
            finished: The end of the answer.

        Returns:
            A future with the report; `None` if the gateway reported no usage.
        """
        call = self._prepare(read_request, row, finished)
        if call is None:
            return None
        self._waiting.hurry()  # what was added before is explained before
        return self._worker.submit(call)

    def add_later(
        self,
        read_request: Callable[[], ChatRequest],
        row: UsageRow | None,
        finished: Finished | None,
        delay: float,
    ) -> None:
        """Like `add`, but nobody waits for the report: it is made within `delay` seconds, with others."""
        call = self._prepare(read_request, row, finished)
        if call is not None and len(self._waiting) < _WAITING_LIMIT:
            self._waiting.add(call, delay)

    def _prepare(
        self, read_request: Callable[[], ChatRequest], row: UsageRow | None, finished: Finished | None
    ) -> Callable[[], CacheReport | None] | None:
        """Return a function that explains a request; `None` if the gateway reported no usage."""
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
        return partial(self._explain, read_request, row, finished.cache)

    def previous_response(self, base_url: str, account: str, conversation: str | None) -> str | None:
        """Return the id of the last response in a conversation."""
        return self._responses.get(Scope(base_url, account, conversation))

    def close(self) -> None:
        """Finish writing, for at most a second, and close the database."""
        self._closing = True
        self._waiting.hurry()
        self._worker.submit(self._close_table)
        self._worker.close(_CLOSING_TIMEOUT)

    # --- On the background thread ---

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
        entry = CacheEntry(scope, prompt, stored, replaced)
        if self._closing:
            self._store([entry])
        else:  # afterwards: the turn waits for the report only
            self._entries.add(entry)
        return report

    def _find_previous(self, scope: Scope, prompt: SentPrompt) -> SentPrompt | None:
        same_conversation = scope.conversation is not None
        recent = [entry for place, entry in self._recent if place == scope]
        previous = choose_previous(prompt.chain, recent, same_conversation=same_conversation)
        if previous is None and (table := self._open()) is not None:
            try:
                stored = table.find_prompts(scope)
            except StoreUnusable as error:
                log.info("%s", error.message)
                return None
            previous = choose_previous(prompt.chain, stored, same_conversation=same_conversation)
        return previous

    def _store(self, entries: list[CacheEntry]) -> None:
        if (table := self._open()) is not None:
            try:
                table.put(entries)
            except StoreUnusable as error:
                log.info("%s", error.message)

    def _close_table(self) -> None:
        if self._table is not None:
            self._table.close()

    def _open(self) -> CacheTable | None:
        if self._table is None and self._path is not None:
            try:
                self._table = CacheTable(Database(self._path, _BUSY_TIMEOUT))
            except StoreUnusable as error:
                log.info("%s", error.message)
        return self._table
