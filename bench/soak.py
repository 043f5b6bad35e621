"""Soak test: many turns through a real stdio server, whose memory must reach a plateau.

`make soak` runs it. The server is started as an editor starts it; the gateway is the embedded one. Every turn
is part of a conversation with new texts; some turns fail, are retried or are cancelled; tokens are counted in
between. The resident memory of the server is sampled and drawn as `build/soak.svg`. The run fails if the
memory still grows in its second half, or if the recorded usage differs from what the gateway counted.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from tests.storage.stored import read_rows

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.events import Usage

TURNS = int(os.environ.get("SOAK_TURNS", "20000"))
LIMIT_SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
CONCURRENCY = 8
SAMPLES = 100
# The second half of the run may grow by this share of its mean.
GROWTH_LIMIT = 0.03
PLOT = Path("build/soak.svg")
MODELS = ("tollbridge/demo", "tollbridge/plain")
# One turn in ten does not go well.
FAULTS = ("failed-counted", "disconnect", "server-error-once", "failed", "cache-writes", "usage-null")
WORDS = ("bridge", "river", "toll", "span", "arch", "cable", "deck", "pier", "load", "wind", "steel", "stone")


class Server:
    """A stdio server, and the requests to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._next_id = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.ensure_future(self._read())

    def send(self, method: str, params: Any) -> tuple[int, asyncio.Future[Any]]:
        self._next_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._next_id] = answer
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id, answer

    def cancel(self, request_id: int) -> None:
        self._write({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}})

    def memory(self) -> float:
        """Return the resident memory in MB."""
        import psutil  # a development dependency

        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    async def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()
        await self._reading

    def _write(self, message: Any) -> None:
        body = msgspec.json.encode(message)
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while header := await out.readline():
            length = int(header.removeprefix(b"Content-Length: "))
            message = msgspec.json.decode((await out.readexactly(length + 2))[2:])
            if "id" in message and "method" not in message:
                self._answers.pop(message["id"]).set_result(message)


class Conversation:
    """A conversation of a few turns, each with new text."""

    def __init__(self, server: Server, url: str, number: int) -> None:
        self._server = server
        self._random = random.Random(number)
        self._account = {"baseUrl": url, "id": f"account-{number % 5}"}
        self._model = MODELS[number % len(MODELS)]
        self._number = number

    async def run(self, turns: int) -> None:
        messages = [_message(3, f"You are assistant {self._number}. {self._text(200)}")]
        for turn in range(turns):
            fault = f" fault:{self._random.choice(FAULTS)}" if self._random.random() < 0.1 else ""
            question = f"Question {turn} of {self._number}: {self._text(60)}"
            count = {"model": self._model, "items": [question, self._text(30)]}
            _, counted = self._server.send("count", count)
            request = {
                "account": self._account,
                "model": self._model,
                "messages": [*messages, _message(1, question + fault)],
                "tools": self._tools(),
            }
            request_id, answered = self._server.send("chat", request)
            if self._random.random() < 0.02:
                await asyncio.sleep(0.005)
                self._server.cancel(request_id)
            await asyncio.gather(counted, answered)
            messages += [_message(1, question), _message(2, self._text(100))]

    def _tools(self) -> list[dict[str, str]]:
        is_capable = self._model == MODELS[0]
        return [{"name": "list_dir", "description": self._text(5)}] if is_capable else []

    def _text(self, words: int) -> str:
        return " ".join(f"{self._random.choice(WORDS)}{self._random.randrange(1000)}" for _ in range(words))


def _message(role: int, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "value": text}]}


async def soak() -> bool:
    """Run all turns, draw the plot, and return whether memory and usage are as they should be."""
    PLOT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tollbridge-soak-") as folder:
        names = ("TOLLBRIDGE_DATA_DIR", "TOLLBRIDGE_CACHE_DIR", "XDG_CONFIG_HOME")
        environment = {**os.environ, **dict.fromkeys(names, folder)}
        async with Gateway(settings=FaultSettings(stall_seconds=1, pace=0.001)) as gateway:
            server = Server(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tollbridge.sidecar"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=environment,
                )
            )
            await server.send("initialize", {"protocolVersion": 1, "settings": {}})[1]
            samples = await _run_turns(server, gateway.url)
            await server.close()
            return all([_judge_memory(samples), await _judge_usage(gateway, Path(folder) / "tollbridge.db")])


async def _run_turns(server: Server, url: str) -> list[tuple[int, float]]:
    """Run the turns and return samples: the number of turns and the memory in MB."""
    started, done, number = time.monotonic(), 0, 0
    samples: list[tuple[int, float]] = []

    async def converse() -> None:
        nonlocal done, number
        while done < TURNS and time.monotonic() - started < LIMIT_SECONDS:
            number += 1
            await Conversation(server, url, number).run(5)
            done += 5
            if done >= (len(samples) + 1) * TURNS / SAMPLES:
                samples.append((done, server.memory()))

    await asyncio.gather(*(converse() for _ in range(CONCURRENCY)))
    seconds = time.monotonic() - started
    print(f"{done:,} turns in {seconds:.0f} s ({done / seconds:.0f} per second)")
    return samples


def _judge_memory(samples: list[tuple[int, float]]) -> bool:
    half = samples[len(samples) // 2 :]
    growth = _slope(half) * (half[-1][0] - half[0][0])
    mean = sum(memory for _, memory in half) / len(half)
    limit = GROWTH_LIMIT * mean
    PLOT.write_text(_draw(samples))
    highest = max(memory for _, memory in samples)
    print(f"Memory: {samples[0][1]:.1f} MB first, {samples[-1][1]:.1f} MB last, {highest:.1f} MB highest")
    print(
        f"Second half: {growth:+.1f} MB by its trend, mean {mean:.1f} MB (limit {limit:.1f} MB); plot: {PLOT}"
    )
    return growth <= limit


async def _judge_usage(gateway: Gateway, database: Path) -> bool:
    rows = await asyncio.to_thread(read_rows, database)
    recorded = Counter(row.usage for row in rows if row.usage.known)
    reported = Counter(answer.usage for answer in gateway.counted if answer.usage)
    incomplete = sum(row.incomplete for row in rows)
    # The gateway may have sent the usage when the turn was being cancelled: then the row says it has none.
    unseen = reported - recorded
    print(f"Usage: {len(rows):,} rows with {_tokens(recorded):,} tokens, {incomplete:,} without usage")
    print(f"Gateway: {len(gateway.counted):,} answers with {_tokens(reported):,} tokens, ", end="")
    print(f"of which {_tokens(unseen):,} in {unseen.total():,} answers to cancelled turns")
    return not recorded - reported and unseen.total() <= incomplete


def _tokens(usages: Counter[Usage]) -> int:
    return sum((usage.total_tokens or 0) * count for usage, count in usages.items())


def _slope(samples: list[tuple[int, float]]) -> float:
    """Return the slope of the least-squares line."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def _draw(samples: list[tuple[int, float]], width: int = 800, height: int = 320) -> str:
    """Return the samples as a line in an SVG image, with the memory from 0."""
    left, bottom, top = 60, 40, 20
    last, highest = samples[-1][0], max(memory for _, memory in samples) * 1.1

    def place(turns: float, memory: float) -> str:
        x = left + (width - left - 20) * turns / last
        y = height - bottom - (height - bottom - top) * memory / highest
        return f"{x:.1f},{y:.1f}"

    ticks = "".join(
        f'<text x="{left - 8}" y="{place(0, value).partition(",")[2]}" text-anchor="end">{value}</text>'
        f'<path d="M{place(0, value)} L{place(last, value)}" stroke="#ddd"/>'
        for value in range(0, int(highest), 20)
    )
    line = " ".join(place(*sample) for sample in samples)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>{ticks}'
        f'<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="2"/>'
        f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">turns (of {last:,})</text>'
        f'<text x="{left}" y="14">resident memory of the server in MB</text></svg>\n'
    )


if __name__ == "__main__":
    sys.exit(not asyncio.run(soak()))
