"""What an engine opens: at most two connections to the database, one thread that writes, one lock file."""

from __future__ import annotations

import ast
import sqlite3
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.stdio.stdio_client import Editor
from tollbridge import Account, ChatRequest, Engine, Message, Role, Settings
from tollbridge.config.schema import BudgetSettings
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file

SOURCE = Path(__file__).parents[2] / "src" / "tollbridge"


class Connections:
    """Counts the connections that are open at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[sqlite3.Connection] = []
        connect = sqlite3.connect

        def open_connection(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            self.opened.append(connection)
            return connection

        monkeypatch.setattr(sqlite3, "connect", open_connection)

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
    request = ChatRequest(model="tollbridge/demo", messages=[Message(Role.USER, "Hello")], conversation="one")
    async with Gateway() as gateway:
        account = Account("work", gateway.url, "openresponses", "none")
        async with Engine.open(settings) as engine:
            for _ in range(2):
                await engine.create(request, account)
            assert engine.count(request.model, ["Hello"]) == [1]
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
        assert connections.open == 0
        assert not list(database_file().parent.glob("*-alive-*"))


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
