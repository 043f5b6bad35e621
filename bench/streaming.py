"""From socket to part: ours beside `openai`, a bare socket read and msgspec alone, in one interleaved run.

The server has one core and the client under measurement another, so that neither waits for the other's turn.
Every figure is the median over the rounds.

How much a read brings depends on who runs when. On a machine with other work to do, the bare read finds
many events waiting and is several times cheaper for it, a read being some 9 µs whatever it brings. Then the
ratio says nothing of us: it is shown, and not judged.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.clients import CLIENTS
from bench.targets import at_least, at_most, leave

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
# Targets: the most CPU beside a bare read (of at most so many events), and the least of openai's.
MOST_OF_FLOOR, FLOOR_EVENTS = 2.0, 5.0
LEAST_OF_OPENAI = 25.0
NAMES = {
    "ours": "tollbridge, socket to part",
    "openai": "openai, async create(stream=True)",
    "socket": "bare socket read (floor)",
    "decode": "msgspec decode only (floor)",
}
FIELDS = ("cpu_us", "events_s", "events_read", "first_ms", "rss_mb")


def main() -> list[str]:
    """The targets that were missed."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    server = subprocess.Popen([sys.executable, "-m", "bench.server"], stdout=subprocess.PIPE, text=True)
    try:
        _pin(server.pid, cores[:1])
        port, count = map(int, (server.stdout.readline() if server.stdout else "").split())
        runs = [name for _ in range(ROUNDS) for name in CLIENTS]
        results = [_run(name, port, count, cores[1:2]) for name in track(runs, "Streaming", transient=True)]
    finally:
        server.kill()
        server.wait()
    return show(results, count)


def _run(name: str, port: int, count: int, cores: Sequence[int]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.clients", name, f"http://127.0.0.1:{port}/v1", str(time.time())]
    client = subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE, text=True)
    _pin(client.pid, cores)
    out, _ = client.communicate(timeout=300)
    result: dict[str, Any] = json.loads(out)
    return result


def _pin(pid: int, cores: Sequence[int]) -> None:
    if cores:
        os.sched_setaffinity(pid, cores)


def show(results: list[dict[str, Any]], count: int) -> list[str]:
    """The table, the two ratios that count, and which of them are not what they should be."""
    table = Table(title=f"{count:,} events of an OpenResponses stream, median of {ROUNDS} rounds")
    headings = ("CPU µs/event", "events/s", "events a read", "start to first event, ms", "peak memory, MB")
    for heading in ("client", *headings):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    cost = {}
    for name, title in NAMES.items():
        cost[name] = _median(results, name, "cpu_us") or 0.0
        cells = [_median(results, name, field) for field in FIELDS]
        texts = ["–" if cell is None else f"{cell:,.2f}" if cell < 100 else f"{cell:,.0f}" for cell in cells]
        table.add_row(title, *texts)
    console = Console()
    console.print(table)
    floor, openai = cost["ours"] / cost["socket"], cost["openai"] / cost["ours"]
    at_once = _median(results, "socket", "events_read") or 0.0
    judged = at_once <= FLOOR_EVENTS
    why = "" if judged else f"; not judged: the bare read got {at_once:.1f} events at once"
    console.print(f"ours / bare socket read: {floor:.2f} (at most {MOST_OF_FLOOR:g}{why})")
    console.print(f"openai / ours: {openai:.1f} (at least {LEAST_OF_OPENAI:g})")
    missed = at_most("ours / bare socket read", floor, MOST_OF_FLOOR) if judged else []
    return [*missed, *at_least("openai / ours", openai, LEAST_OF_OPENAI)]


def _median(results: list[dict[str, Any]], name: str, field: str) -> float | None:
    found = [result[field] for result in results if result["client"] == name and result[field] is not None]
    return statistics.median(found) if found else None


if __name__ == "__main__":
    leave(main())
