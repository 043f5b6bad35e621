"""A JSON-RPC client that starts the real stdio server and waits for its messages with a deadline."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SRC = Path(__file__).parents[3] / "src"
PATIENCE = 20.0


class Refusal(Exception):
    """The `error` of an answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: dict[str, Any] = error.get("data") or {}


class Editor:
    def __init__(self, command: list[str] | None = None, env: dict[str, str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "tollbridge.sidecar"]
        self._folder = tempfile.TemporaryDirectory(prefix="sidecar-")
        places = {"TOLLBRIDGE_DATA_DIR": self._folder.name, "TOLLBRIDGE_CACHE_DIR": self._folder.name}
        self._env = {**os.environ, "PYTHONPATH": str(SRC), **places, **(env or {})}
        self._answers: dict[Any, asyncio.Future[Any]] = {}
        self._next_id = 0
        self.notes: list[dict[str, Any]] = []  # notifications, in order
        self.orphans: list[dict[str, Any]] = []  # answers to nothing that was asked
        self._arrived = asyncio.Event()
        self.stderr = ""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env
        )
        self._readers = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._read_log())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_stdin()
        async with asyncio.timeout(PATIENCE):
            await self.process.wait()
            await asyncio.gather(*self._readers)
        self._folder.cleanup()

    async def exit_code(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    def close_stdin(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def send(self, message: Any) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: Any = None) -> tuple[int, asyncio.Future[Any]]:
        """Sends a request; its id, and what will be its answer."""
        self._next_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._next_id] = answer
        self.send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id, answer

    async def request(self, method: str, params: Any = None) -> Any:
        _, answer = self.ask(method, params)
        async with asyncio.timeout(PATIENCE):
            return await answer

    async def initialize(self, **settings: Any) -> Any:
        return await self.request("initialize", {"protocolVersion": 1, "settings": settings})

    def parts(self, token: int | str) -> list[dict[str, Any]]:
        """The parts reported so far for one chat."""
        reports = [note["params"] for note in self.notes if note["method"] == "$/progress"]
        return [part for report in reports if report["token"] == token for part in report["value"]["parts"]]

    async def until_part(self, token: int | str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.parts(token):
                self._arrived.clear()
                await self._arrived.wait()

    async def until_note(self) -> None:
        """Wait for the next message of the sidecar."""
        self._arrived.clear()
        async with asyncio.timeout(PATIENCE):
            await self._arrived.wait()

    async def until_orphan(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while not self.orphans:
                self._arrived.clear()
                await self._arrived.wait()
        return self.orphans.pop(0)

    async def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while header := await out.readline():
            length = int(header.removeprefix(b"Content-Length: "))
            frame = await _exactly(out, 2 + length)
            if frame is None:
                break  # killed in the middle of it
            assert frame[:2] == b"\r\n"
            self._take(json.loads(frame[2:]))
            self._arrived.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EOFError("the sidecar is gone"))
                answer.exception()

    def _take(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            self.notes.append(message)
            return
        answer = self._answers.pop(message["id"], None)
        if answer is None:
            self.orphans.append(message)
        elif answer.cancelled():
            pass
        elif "error" in message:
            answer.set_exception(Refusal(message["error"]))
        else:
            answer.set_result(message["result"])

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.stderr += line.decode()


async def _exactly(stream: asyncio.StreamReader, length: int) -> bytes | None:
    try:
        return await stream.readexactly(length)
    except asyncio.IncompleteReadError:
        return None


def join_text(parts: list[dict[str, Any]], kind: str = "text") -> str:
    return "".join(part["value"] for part in parts if part["type"] == kind)
