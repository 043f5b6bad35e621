"""What an engine opens: at most two connections to the database, one thread that writes, one lock file."""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.stdio.stdio_client import Editor
from tests.storage.stored import open_estimator, open_store, read_rows
from tests.tokens.samples import MODEL, hidden_count, request, user
from tollbridge import Account, ChatRequest, Engine, Message, Role, Settings
from tollbridge.config.schema import BudgetSettings
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.storage.store import StoreUnusable
from tollbridge.testing.server import Gateway
from tollbridge.tokens.records import LedgerChanges
from tollbridge.transport.files import database_file
from tollbridge.types.events import Usage

# A statement that changes rows, with the name of its table.
WRITE = re.compile(r"(?:INSERT(?: OR REPLACE)? INTO|UPDATE|DELETE FROM) (\w+)")
SOURCE = Path(__file__).parents[2] / "src" / "tollbridge"


class Connections:
    """Counts the connections that are open at the same time, and notes which threads write with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[sqlite3.Connection] = []
        self.writes: set[tuple[str, str]] = set()  # the name of a thread, and what it wrote to
        connect = sqlite3.connect

        def open_connection(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            self.opened.append(connection)
            connection.set_trace_callback(self._note)
            return connection

        monkeypatch.setattr(sqlite3, "connect", open_connection)

    def _note(self, statement: str) -> None:
        if write := WRITE.match(statement):
            self.writes.add((threading.current_thread().name, write[1]))

    @property
    def open(self) -> int:
        return sum(map(_is_open, self.opened))


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return False
    return True


async def test_an_engine_with_budgets_has_two_connections_one_writer_and_one_lock_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections, before = Connections(monkeypatch), set(threading.enumerate())
    settings = Settings(budgets=BudgetSettings(day=Decimal(5)))
    hello = ChatRequest(model="tollbridge/demo", messages=[Message(Role.USER, "Hello")], conversation="one")
    async with Gateway() as gateway:
        account = Account("work", gateway.url, "openresponses", "none")
        async with Engine.open(settings) as engine:
            for _ in range(2):
                await engine.create(hello, account)
            assert engine.count(hello.model, ["Hello"]) == [1]
            await engine.usage_report()
            await engine.lessons()
            names = {thread.name for thread in set(threading.enumerate()) - before}
            assert connections.open == len(connections.opened) <= 2
            assert {name for name in names if not name.startswith("asyncio_")} <= {
                "store",
                "background",
                "prices",
                "warm tokenizers",
            }
            assert len(list(database_file().parent.glob("*-alive-*"))) == 1
            await asyncio.to_thread(engine.estimator.reset)
        assert connections.open == 0
        assert not list(database_file().parent.glob("*-alive-*"))
        tables = {"usage", "reservation", "sent_prompt", "cache_report"}
        tables |= {"prefix", "measured", "learned", "toolset", "outcome"}
        assert connections.writes == {("store", table) for table in tables}


def test_threads_that_record_usage_and_learn_at_the_same_time_write_on_one_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connections, start = Connections(monkeypatch), threading.Barrier(2)
    questions = [request([user(f"Question {number} about the bridge. " * 5)]) for number in range(20)]
    keys = [str(number) for number in range(200)]

    def record_usage(store: SqliteStore) -> None:
        start.wait(10)
        for key in keys:
            store.usage.put(UsageRow(key=key, model=MODEL, outcome="completed", started=1.0))

    def learn(estimator: HybridTokenEstimator) -> None:
        start.wait(10)
        for question in questions:
            assert estimator.calibrate_request(question, Usage(hidden_count(question)))
            assert estimator.estimate_request(question).method == "actual"  # it reads what it has written

    path = tmp_path / "store.db"
    with open_store(path) as store, ThreadPoolExecutor(2) as threads:
        recording = threads.submit(record_usage, store)
        learning = threads.submit(learn, HybridTokenEstimator(store.tokens))
        recording.result(60)
        learning.result(60)
    tables = {"usage", "prefix", "measured", "learned", "toolset", "outcome"}
    assert connections.writes == {("store", table) for table in tables}
    assert [row.key for row in read_rows(path)] == keys
    with open_estimator(path) as estimator:
        assert {estimator.estimate_request(question).method for question in questions} == {"actual"}


def test_a_store_that_is_closed_writes_nothing_and_does_not_wait(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.tokens.commit(LedgerChanges(outcomes=[("m", "hybrid", 1, 1, 1, "")]))
    with pytest.raises(StoreUnusable, match="closed"):
        store.tokens.commit(LedgerChanges())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
async def test_the_sidecar_has_few_threads_after_a_turn() -> None:
    async with Editor() as editor, Gateway() as gateway:
        await editor.initialize()
        account = {"baseUrl": gateway.url}
        message = {"role": 1, "content": [{"type": "text", "value": "Hello"}]}
        await editor.request("chat", {"account": account, "model": "tollbridge/demo", "messages": [message]})
        tasks = Path(f"/proc/{editor.process.pid}/task")
        # Beside the main thread: those that read and write the pipes, the event loop, the writer of the
        # store, and the background thread. A thread of the default executor may have resolved a name.
        assert len(list(tasks.iterdir())) <= 7


def test_only_the_storage_package_imports_sqlite3() -> None:
    importers = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if "sqlite3" in path.read_text(encoding="utf-8") and "sqlite3" in _imports(path)
    }
    assert importers == {"storage"}


def test_only_the_engine_and_the_token_counts_of_the_sidecar_open_a_store() -> None:
    openers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "storage" and "open_store" in path.read_text(encoding="utf-8")
    }
    assert openers == {"engine.py", "frontends/stdio/counts.py"}


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
