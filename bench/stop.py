"""How long Stop takes while the sidecar is busy: the time from `$/cancelRequest` to the closed connection.

Each scenario runs the real sidecar against a gateway in this process: another turn receives a gzip bomb, the
editor does not read, or 500 streams are open. The time includes whatever delays this process itself.

On a busy machine every program waits for the processor. `slowdown` is how many times its processor time a
computation took meanwhile: the figures count only if it is close to 1.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import socket
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Column, Table

from bench.targets import at_most, exit_if_missed

STOPS = int(os.environ.get("BENCH_STOPS", "100"))
STREAMS = 500
STREAM_SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))
# Milliseconds of 99 of 100 stops, at most.
STOP_TARGET = 100.0
PATIENCE = 30.0

BOMB_BYTES = 1 << 30
DELTA = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"msg_1",'
    b'"output_index":0,"content_index":0,"delta":" word","sequence_number":1,"logprobs":[]}\n\n'
)
END = (
    b'data: {"type":"response.completed","response":{"status":"completed","output":[],"usage":'
    b'{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}\n\ndata: [DONE]\n\n'
)
# What a bomb consists of.
BOMBS = {"comments": b": keep-alive\n\n", "unknown events": b"data: {}\n\n", "text": DELTA}
# What is sent to an editor that does not read: several times what the pipes and buffers hold, also those of
# the operating system.
FLOODS, FLOOD_EVENTS, FLOOD_TEXT = 2, 30_000, " word" * 80
PACE = 0.1  # seconds between two events of a paced stream


def make_bomb(unit: bytes) -> bytes:
    """Return a gzip body of `BOMB_BYTES` bytes that repeats a text."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    piece = unit * ((1 << 20) // len(unit))
    # After a full flush the next block does not refer to earlier data: it can be repeated.
    start = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * (BOMB_BYTES // len(piece))


class Gateway:
    """Answers each request as the prompt says: `paced`, `flood`, or a bomb.

    Attributes:
        started: Set by the key of a request when its answer has begun.
        closed: The time at which the client closed the connection of a request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.started: dict[str, asyncio.Event] = {}
        self.closed: dict[str, asyncio.Future[float]] = {}
        self.blocked = 0  # floods that wait because the client does not read
        self.seconds = STREAM_SECONDS
        self._bombs: dict[str, bytes] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Gateway]:
        listener = socket.create_server(("127.0.0.1", 0), backlog=STREAMS)
        # The operating system would otherwise hold megabytes for a client that does not read.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        server = await asyncio.start_server(self._serve, sock=listener)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()

    def expect(self, key: str) -> None:
        self.started[key] = asyncio.Event()
        self.closed[key] = asyncio.get_running_loop().create_future()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        asked = re.search(rb"answer=([a-z ]+);key=(\w+)", body)
        kind, key = (asked[1].decode(), asked[2].decode()) if asked else ("paced", "")
        eof = asyncio.ensure_future(reader.read())
        if key:
            self.started[key].set()
        with suppress(ConnectionError):
            await self._answer(kind, writer, eof)
            writer.close()
            await eof
        eof.cancel()
        writer.close()
        if key and not self.closed[key].done():
            self.closed[key].set_result(time.monotonic())

    async def _answer(self, kind: str, writer: asyncio.StreamWriter, eof: asyncio.Future[bytes]) -> None:
        encoding = b"content-encoding: gzip\r\n" if kind in BOMBS else b""
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            + encoding
            + b"\r\n"
        )
        if kind in BOMBS:
            if kind not in self._bombs:
                self._bombs[kind] = make_bomb(BOMBS[kind])
            writer.write(self._bombs[kind])
            await writer.drain()
            await eof
        elif kind == "flood":
            block = DELTA.replace(b" word", FLOOD_TEXT.encode()) * 100
            for _ in range(FLOOD_EVENTS // 100):
                writer.write(block)
                self.blocked += 1
                try:
                    await writer.drain()
                finally:
                    self.blocked -= 1
            writer.write(END)
        else:
            for _ in range(round(self.seconds / PACE)):
                writer.write(DELTA)
                await asyncio.wait([eof], timeout=PACE)
                if eof.done():
                    return
            writer.write(END)
        await writer.drain()


class Editor:
    """A client of the sidecar. `texts` counts the characters that each turn reported."""

    def __init__(self, process: asyncio.subprocess.Process, gateway: Gateway) -> None:
        self.process = process
        self.texts: dict[int, int] = {}
        self._gateway = gateway
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._reading = asyncio.Event()
        self._reading.set()

    @classmethod
    @asynccontextmanager
    async def start(cls, gateway: Gateway) -> AsyncIterator[Editor]:
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "TOLLBRIDGE_DATA_DIR": folder, "TOLLBRIDGE_CACHE_DIR": folder}
            with (Path(folder) / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tollbridge.sidecar"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=env,
                )
                editor = cls(process, gateway)
                reading = asyncio.create_task(editor._read())
                try:
                    await editor.request("initialize", {"protocolVersion": 1})
                    await editor.request("usage", {})  # the engine is loaded
                    yield editor
                finally:
                    editor.resume()
                    if process.stdin:
                        process.stdin.close()
                    try:
                        async with asyncio.timeout(PATIENCE):
                            await process.wait()
                    except TimeoutError:
                        process.kill()
                        raise
                    finally:
                        reading.cancel()

    def pause(self) -> None:
        """Stop reading what the sidecar writes."""
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    def send(self, method: str, params: Any) -> int:
        self._next_id += 1
        self._answers[self._next_id] = asyncio.get_running_loop().create_future()
        body = json.dumps(
            {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        ).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self._next_id

    def chat(self, kind: str, key: str) -> int:
        self._gateway.expect(key)
        text = {"type": "text", "value": f"answer={kind};key={key}"}
        account = {"baseUrl": self._gateway.url}
        number = self.send(
            "chat", {"account": account, "model": "m", "messages": [{"role": 1, "content": [text]}]}
        )
        self.texts[number] = 0
        return number

    def cancel(self, number: int) -> None:
        body = b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}' % number
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def answer(self, number: int) -> Any:
        """Wait for the result of a request, or its error."""
        async with asyncio.timeout(PATIENCE + STREAM_SECONDS):
            return await self._answers[number]

    async def request(self, method: str, params: Any) -> Any:
        return await self.answer(self.send(method, params))

    async def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                await self._reading.wait()
                header = await out.readuntil(b"\r\n\r\n")
                message = json.loads(await out.readexactly(int(header[16:-4])))
                if message.get("method") == "$/progress":
                    parts = message["params"]["value"]["parts"]
                    length = sum(len(part["value"]) for part in parts if part["type"] == "text")
                    self.texts[message["params"]["token"]] += length
                elif message.get("id") in self._answers:
                    self._answers[message["id"]].set_result(message.get("result", message.get("error")))


class Stops:
    """The milliseconds of each stop, and how slow the machine was meanwhile."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._slowdowns: list[float] = []

    @property
    def slowdown(self) -> float:
        """That of the slowest twentieth, because the slowest stops are compared."""
        return max(1.0, sorted(self._slowdowns)[math.ceil(0.95 * len(self._slowdowns)) - 1])

    def measure_slowdown(self) -> None:
        wall, cpu = time.monotonic(), time.thread_time()
        while (used := time.thread_time() - cpu) < 0.01:
            pass
        self._slowdowns.append((time.monotonic() - wall) / used)


async def measure_stops(
    gateway: Gateway, editor: Editor, stops: int, keep_busy: Callable[[], None] = lambda: None
) -> Stops:
    """Start a turn and stop it, several times."""
    results = Stops()
    for index in range(stops):
        results.measure_slowdown()
        keep_busy()
        key = f"stop{index}"
        number = editor.chat("paced", key)
        async with asyncio.timeout(PATIENCE):
            await gateway.started[key].wait()
            await asyncio.sleep(0.02)  # for the sidecar to read the first events
            begin = time.monotonic()
            editor.cancel(number)
            results.times.append((await gateway.closed[key] - begin) * 1000)
    return results


async def during_bomb(kind: str, stops: int) -> dict[str, Any]:
    """Measure stops while another turn receives a gzip bomb."""
    async with Gateway().serving() as gateway, Editor.start(gateway) as editor:
        bombs: list[int] = []

        def keep_busy() -> None:
            if not bombs or editor._answers[bombs[-1]].done():
                bombs.append(editor.chat(kind, f"bomb{len(bombs)}"))

        keep_busy()
        await gateway.started["bomb0"].wait()
        measured = await measure_stops(gateway, editor, stops, keep_busy)
        begin = time.monotonic()
        status = await editor.request("status", {})
        status_ms = (time.monotonic() - begin) * 1000
        editor.cancel(bombs[-1])
        return _result(f"gzip bomb of {kind}", measured, editor, status, status_ms=status_ms)


async def with_unread_output(stops: int) -> dict[str, Any]:
    """Measure stops while the editor does not read and several turns have more for it than fits."""
    async with Gateway().serving() as gateway, Editor.start(gateway) as editor:
        editor.pause()
        floods = [editor.chat("flood", f"flood{n}") for n in range(FLOODS)]
        async with asyncio.timeout(PATIENCE):
            for n in range(FLOODS):
                await gateway.started[f"flood{n}"].wait()
            calm = 0
            while calm < 5:  # until the gateway cannot send any more, for a while
                await asyncio.sleep(0.1)
                calm = calm + 1 if gateway.blocked == FLOODS else 0
        measured = await measure_stops(gateway, editor, stops)
        rss = psutil.Process(editor.process.pid).memory_info().rss / 2**20
        number = editor.send("status", {})
        editor.resume()
        status = await editor.answer(number)
        for flood in floods:
            answer = await editor.answer(flood)
            assert answer.get("finishReason") == "stop", answer
            assert editor.texts[flood] == FLOOD_EVENTS * len(FLOOD_TEXT), "text was lost"
        return _result("editor does not read", measured, editor, status, rss_mb=rss)


async def with_many_streams(stops: int, seconds: float) -> dict[str, Any]:
    """Measure stops while 500 streams of some seconds are open. None of them may fail."""
    gateway = Gateway()
    gateway.seconds = seconds
    async with gateway.serving(), Editor.start(gateway) as editor:
        begin = time.monotonic()
        streams = [editor.chat("paced", f"stream{n}") for n in range(STREAMS)]
        async with asyncio.timeout(PATIENCE):
            for n in range(STREAMS):
                await gateway.started[f"stream{n}"].wait()
        opened = time.monotonic() - begin
        process = psutil.Process(editor.process.pid)
        process.cpu_percent()
        measured = await measure_stops(gateway, editor, stops)
        cpu = process.cpu_percent()
        status = await editor.request("status", {})
        rss = process.memory_info().rss / 2**20
        answers = [await editor.answer(number) for number in streams]
        failed = [answer for answer in answers if answer.get("finishReason") != "stop"]
        complete = round(seconds / PACE) * len(" word")
        lost = sum(editor.texts[number] != complete for number in streams)
        return _result(
            f"{STREAMS} streams of {seconds:g} s",
            measured,
            editor,
            status,
            cpu_percent=cpu,
            rss_mb=rss,
            opened_s=opened,
            failed=len(failed) + lost,
            reason=failed[0]["message"] if failed else "",
        )


def _result(name: str, stops: Stops, editor: Editor, status: dict[str, Any], **more: Any) -> dict[str, Any]:
    times = sorted(stops.times)
    more.setdefault("rss_mb", psutil.Process(editor.process.pid).memory_info().rss / 2**20)
    return {
        "scenario": name,
        "p50": statistics.median(times),
        "p99": times[math.ceil(0.99 * len(times)) - 1],
        "worst": times[-1],
        "slowdown": stops.slowdown,
        "lag": status["longestLagSeconds"] * 1000,
        **more,
    }


async def run_all() -> list[dict[str, Any]]:
    results = [await during_bomb(kind, STOPS) for kind in BOMBS]
    results.append(await with_unread_output(STOPS))
    results.append(await with_many_streams(STOPS, STREAM_SECONDS))
    return results


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    results = asyncio.run(run_all())
    columns = ("p50", "p99", "slowdown", "lag", "MB", "CPU %", "failed")
    table = Table(Column("scenario", no_wrap=True), *columns)
    missed: list[str] = []
    for result in results:
        p50, p99, lag, rss = (f"{result[name]:.0f}" for name in ("p50", "p99", "lag", "rss_mb"))
        cpu, failed = result.get("cpu_percent"), result.get("failed", 0)
        table.add_row(
            result["scenario"],
            *(p50, p99, f"{result['slowdown']:.1f}", lag, rss),
            "" if cpu is None else f"{cpu:.0f}",
            str(failed),
        )
        missed += at_most(f"Stop p99, {result['scenario']}", result["p99"], STOP_TARGET, " ms")
        missed += at_most(f"failed streams, {result['scenario']}", failed, 0)
    Console().print(table, "p50, p99 and lag (the longest of the sidecar's event loop) in milliseconds.")
    return missed


if __name__ == "__main__":
    exit_if_missed(main())
