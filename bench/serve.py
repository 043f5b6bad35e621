"""`tollbridge serve` beside LiteLLM's proxy and Portkey's gateway, in one interleaved run.

All forward streams of Chat Completions from the same upstream (`bench/upstream.py`); direct calls are the
floor. Measured are the latency that a proxy adds, its throughput, its start and its memory.

Run it with `PYTHONPATH=extension python -m bench.serve`; `--alone` leaves out the other proxies, which are
installed on the first run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.table import Table

from bench.targets import at_least, at_most, exit_if_missed
from bench.upstream import TIME_FIELD

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SEQUENTIAL_REQUESTS = 50
PACED_STREAMS, PACE, PACED_EVENTS = 16, 40, 120
BURST_CLIENTS, BURST_SECONDS = 16, 4.0
MANY_STREAMS, MANY_PACE, MANY_EVENTS = 500, 2, 20

FIRST_BYTE_TARGET_MS = 1.5
PACED_P99_TARGET_MS = 2.0
THROUGHPUT_TARGET = 15.0
START_TARGET_S = 1.0
MEMORY_TARGET_MB = 80.0

_SENT_AT = re.compile(TIME_FIELD + rb"(\d+);")


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A running proxy.

    Attributes:
        name: Its name in the tables.
        url: The URL of its Chat Completions endpoint.
        headers: The headers that it requires.
        pid: Its process; 0 for direct calls.
        start_s: Seconds from its start to its first answer.
    """

    name: str
    url: str
    headers: dict[str, str] = {}
    pid: int = 0
    start_s: float = 0.0


# --- The client ---


class Stream(msgspec.Struct):
    """What the client saw of one stream: times are in seconds."""

    first_byte: float
    latencies: list[float]
    complete: bool


class Connection:
    """A keep-alive HTTP connection that reads streams with as little overhead as possible."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        parts = urlsplit(proxy.url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, prompt: str = "Hi") -> Stream:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        assert self._reader is not None
        message = {"role": "user", "content": prompt}
        body = json.dumps({"model": "m", "messages": [message], "stream": True}).encode()
        lines = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in self._proxy.headers.items()),
        ]
        started = time.monotonic()
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"{self._proxy.name}: {head[:200]!r}")
        stream, data = Stream(0.0, [], False), b""
        while not data.endswith(b"0\r\n\r\n"):
            chunk = await self._reader.read(65536)
            if not chunk:
                break
            now = time.monotonic()
            if not stream.first_byte:
                stream.first_byte = now - started
            now_ns = time.monotonic_ns()
            stream.latencies += [(now_ns - int(sent)) / 1e9 for sent in _SENT_AT.findall(chunk)]
            data = (data + chunk)[-16:]
            stream.complete = stream.complete or b"[DONE]" in chunk
        return stream

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def run_streams(proxy: Proxy, count: int, prompt: str) -> list[Stream | BaseException]:
    """Run concurrent streams, started over half a second so that their events do not coincide."""
    connections = [Connection(proxy) for _ in range(count)]

    async def run(index: int) -> Stream:
        await asyncio.sleep(0.5 * index / count)
        return await connections[index].request(prompt)

    try:
        return await asyncio.gather(*(run(index) for index in range(count)), return_exceptions=True)
    finally:
        for connection in connections:
            connection.close()


async def run_burst(proxy: Proxy) -> float:
    """Return the streams per second of several clients that send one request after the other."""
    ends = time.monotonic() + BURST_SECONDS
    done = 0

    async def run() -> None:
        nonlocal done
        connection = Connection(proxy)
        while time.monotonic() < ends:
            await connection.request()
            done += 1
        connection.close()

    started = time.monotonic()
    await asyncio.gather(*(run() for _ in range(BURST_CLIENTS)))
    return done / (time.monotonic() - started)


# --- The proxies ---


@contextmanager
def process(command: Sequence[str | Path], **environment: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


async def first_answer(proxy: Proxy, started: float) -> float:
    """Return the seconds until the proxy has answered for the first time."""
    while time.monotonic() - started < 120:
        with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
            connection = Connection(proxy)
            stream = await connection.request()
            connection.close()
            if stream.complete:
                return time.monotonic() - started
        await asyncio.sleep(0.02)
    raise RuntimeError(f"{proxy.name} did not start")


@asynccontextmanager
async def tollbridge(upstream: str, folder: str) -> AsyncIterator[Proxy]:
    port = free_port()
    started = time.monotonic()
    command = [sys.executable, "-m", "tollbridge", "serve", "--port", str(port)]
    command += ["--base-url", upstream, "--backend", "chat-completions"]
    homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), folder)
    with process(command, **homes) as server:
        proxy = Proxy(name="tollbridge", url=f"http://127.0.0.1:{port}/v1/chat/completions", pid=server.pid)
        start = await first_answer(proxy, started)
        yield msgspec.structs.replace(proxy, start_s=start)


@asynccontextmanager
async def litellm(upstream: str, folder: str) -> AsyncIterator[Proxy]:
    from tests.interop.environment import install
    from tests.interop.litellm.proxy import REQUIREMENTS, config

    home, port = install(REQUIREMENTS), free_port()
    settings = Path(folder) / "litellm.yaml"
    settings.write_text(config(upstream, "sk-bench", "m"))
    started = time.monotonic()
    command: list[str | Path] = [home / "bin" / "litellm", "--config", settings]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_PROXY": "*"}
    with process(command, **variables) as server:
        proxy = Proxy(
            name="litellm",
            url=f"http://127.0.0.1:{port}/v1/chat/completions",
            headers={"Authorization": "Bearer sk-bench"},
            pid=server.pid,
        )
        start = await first_answer(proxy, started)
        yield msgspec.structs.replace(proxy, start_s=start)


@asynccontextmanager
async def portkey(upstream: str) -> AsyncIterator[Proxy]:
    """Run Portkey's gateway, with the last version of its HTTP server that works with it for streams."""
    from tests.interop.node import installed
    from workshop.node import NODE

    source, port = Path(__file__).parent / "portkey", free_port()
    program = installed(source) / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    started = time.monotonic()
    command: list[str | Path] = [
        NODE,
        "--require",
        source / "loopback.cjs",
        program,
        "--headless",
        f"--port={port}",
    ]
    with process(command, NODE_ENV="production") as server:
        proxy = Proxy(
            name="portkey",
            url=f"http://127.0.0.1:{port}/v1/chat/completions",
            headers={
                "Authorization": "Bearer none",
                "x-portkey-provider": "openai",
                "x-portkey-custom-host": upstream,
            },
            pid=server.pid,
        )
        start = await first_answer(proxy, started)
        yield msgspec.structs.replace(proxy, start_s=start)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process and its children."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(entry.name) == pid or int(fields[1]) == pid:
                pages = int((entry / "statm").read_text().split()[1])
                total += pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return total


# --- The run ---


class Figures(msgspec.Struct):
    """What was measured of one proxy, over all rounds."""

    first_bytes: list[float] = []
    latencies: list[float] = []
    throughputs: list[float] = []
    failures: int = 0
    memory: float = 0.0


async def measure(proxies: Sequence[Proxy]) -> dict[str, Figures]:
    figures = {proxy.name: Figures() for proxy in proxies}
    for proxy in proxies:
        if proxy.pid:
            figures[proxy.name].memory = memory_mb(proxy.pid)
    for _ in range(ROUNDS):
        connections = [Connection(proxy) for proxy in proxies]
        for connection in connections:
            await connection.request()
        pairs = list(zip(proxies, connections, strict=True))
        for number in range(SEQUENTIAL_REQUESTS):
            # What was called before changes a call by some tenths of a millisecond, so the order rotates.
            first = number % len(pairs)
            for proxy, connection in pairs[first:] + pairs[:first]:
                stream = await connection.request()
                figures[proxy.name].first_bytes.append(stream.first_byte)
        for connection in connections:
            connection.close()
        for proxy in proxies:
            for result in await run_streams(proxy, PACED_STREAMS, f"pace {PACE} {PACED_EVENTS}"):
                if isinstance(result, BaseException) or not result.complete:
                    figures[proxy.name].failures += 1
                else:
                    figures[proxy.name].latencies += result.latencies
        for proxy in proxies:
            figures[proxy.name].throughputs.append(await run_burst(proxy))
    return figures


async def count_failures(proxy: Proxy) -> int:
    """Run many concurrent streams and return how many failed."""
    results = await run_streams(proxy, MANY_STREAMS, f"pace {MANY_PACE} {MANY_EVENTS}")
    return sum(isinstance(result, BaseException) or not result.complete for result in results)


async def run(with_peers: bool) -> list[str]:
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        process([sys.executable, "-m", "bench.upstream"]) as upstream,
    ):
        assert upstream.stdout is not None
        url = f"http://127.0.0.1:{int(upstream.stdout.readline())}/v1"
        async with contextlib.AsyncExitStack() as stack:
            proxies = [Proxy(name="direct", url=f"{url}/chat/completions")]
            proxies.append(await stack.enter_async_context(tollbridge(url, folder)))
            if with_peers:
                proxies.append(await stack.enter_async_context(litellm(url, folder)))
                proxies.append(await stack.enter_async_context(portkey(url)))
            figures = await measure(proxies)
            failures = await count_failures(proxies[1])
    return show(proxies, figures, failures)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def show(proxies: Sequence[Proxy], figures: dict[str, Figures], failures: int) -> list[str]:
    table = Table(title="Proxies, streams of 50 chunks; latencies are added to direct calls")
    heads = ("proxy", "first byte p50 ms", "p99 ms", "paced p50 ms", "p99 ms", "streams/s", "start s", "MB")
    for head in heads:
        table.add_column(head, justify="left" if head == "proxy" else "right")
    direct = figures["direct"]
    base_first, base_paced = statistics.median(direct.first_bytes), statistics.median(direct.latencies)
    added: dict[str, tuple[float, ...]] = {}
    for proxy in proxies:
        data = figures[proxy.name]
        first = [1000 * (percentile(data.first_bytes, share) - base_first) for share in (0.5, 0.99)]
        paced = [1000 * (percentile(data.latencies, share) - base_paced) for share in (0.5, 0.99)]
        speed = statistics.median(data.throughputs)
        added[proxy.name] = (*first, *paced, speed, proxy.start_s, data.memory)
        table.add_row(proxy.name, *(f"{value:,.2f}" for value in added[proxy.name]))
    Console(width=120).print(table)
    print(f"{MANY_STREAMS} concurrent streams: {failures} failed")
    ours = added["tollbridge"]
    missed = [
        *at_most("first byte added, p50", ours[0], FIRST_BYTE_TARGET_MS, " ms"),
        *at_most("paced latency added, p99", ours[3], PACED_P99_TARGET_MS, " ms"),
        *at_most("start to first answer", ours[5], START_TARGET_S, " s"),
        *at_most("memory at rest", ours[6], MEMORY_TARGET_MB, " MB"),
        *at_most("failed streams of 500", failures, 0),
    ]
    if "litellm" in added:
        missed += at_least("streams per second / litellm", ours[4] / added["litellm"][4], THROUGHPUT_TARGET)
    return missed


def main(with_peers: bool = True) -> list[str]:
    """Run the benchmark and return the missed targets."""
    return asyncio.run(run(with_peers))


if __name__ == "__main__":
    exit_if_missed(main("--alone" not in sys.argv))
