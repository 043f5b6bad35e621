"""Streaming from the socket to parts: Tollbridge, `openai`, a bare socket read and msgspec, interleaved.

The server runs on one core and the measured client on another, so that they do not compete. All values are
medians over the rounds.

How many events one read returns depends on the scheduling of both processes. On a busy machine the bare
socket read returns many events at once and is several times cheaper per event, because a read takes about
9 µs whatever it returns. The ratio to it then says nothing about Tollbridge: it is printed, but not compared
with its target.
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
from bench.results import save
from bench.targets import at_least, at_most, exit_if_missed

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
# Our CPU time divided by that of a bare socket read, at most; checked only if such a read returns at most
# this many events.
SOCKET_TARGET, SOCKET_EVENTS_LIMIT = 2.0, 5.0
# The CPU time of openai divided by ours, at least.
OPENAI_TARGET = 25.0
NAMES = {
    "ours": "tollbridge, socket to parts",
    "openai": "openai, async create(stream=True)",
    "socket": "bare socket read (baseline)",
    "decode": "msgspec decode only (baseline)",
}
FIELDS = ("cpu_us", "events_s", "events_read", "first_ms", "rss_mb")


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
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
    """Print the table and the two ratios with targets. Return the missed targets."""
    table = Table(title=f"{count:,} events of an OpenResponses stream, median of {ROUNDS} rounds")
    headings = (
        "CPU µs per event",
        "events per second",
        "events per read",
        "ms from start to first event",
        "peak memory in MB",
    )
    for heading in ("client", *headings):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    cost = {}
    for name, title in NAMES.items():
        cost[name] = _median(results, name, "cpu_us") or 0.0
        cells = [_median(results, name, field) for field in FIELDS]
        texts = ["–" if cell is None else f"{cell:,.2f}" if cell < 100 else f"{cell:,.0f}" for cell in cells]
        table.add_row(title, *texts)
    save("streaming", {"events": count, "rounds": ROUNDS, "cpu_us": cost})
    console = Console()
    console.print(table)
    socket_ratio, openai_ratio = cost["ours"] / cost["socket"], cost["openai"] / cost["ours"]
    events_per_read = _median(results, "socket", "events_read") or 0.0
    comparable = events_per_read <= SOCKET_EVENTS_LIMIT
    note = "" if comparable else f"; not checked: the bare read returned {events_per_read:.1f} events at once"
    console.print(
        f"tollbridge / bare socket read: {socket_ratio:.2f} (target: at most {SOCKET_TARGET:g}{note})"
    )
    console.print(f"openai / tollbridge: {openai_ratio:.1f} (target: at least {OPENAI_TARGET:g})")
    missed = at_most("tollbridge / bare socket read", socket_ratio, SOCKET_TARGET) if comparable else []
    return [*missed, *at_least("openai / tollbridge", openai_ratio, OPENAI_TARGET)]


def _median(results: list[dict[str, Any]], name: str, field: str) -> float | None:
    values = [result[field] for result in results if result["client"] == name and result[field] is not None]
    return statistics.median(values) if values else None


if __name__ == "__main__":
    exit_if_missed(main())
