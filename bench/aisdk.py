"""AI SDK streams: CPU for each chunk, ours beside the SDK's own readers on Node, in one interleaved run.

The same bytes are read from memory by every contender: once with one chunk a read, as a quiet network brings
them, and once in reads of 16 KiB, as a busy one does. Each runs in a process of its own, warms up, and gives
the median of its rounds; the table shows the median over the processes.

    UI stream     the SDK's `parseJsonEventStream` with its chunk schema, which its chat client reads with,
                  and the whole of that client, `readUIMessageStream`
    full stream   the SDK's `streamText`, from a model's parts to `fullStream`; nothing of the SDK reads that
                  as JSON, so a bare `JSON.parse` of each line is shown as well
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from tests.interop.node import installed
from workshop.node import NODE

from bench.targets import at_least, leave
from tollbridge.protocols.ai_sdk.stream import FullDecoder, UiDecoder

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
PASSES = 6  # over the stream in one process; the first warms up and is not counted
READ = 16 * 1024
LEAST_OF_SDK = 5.0  # the target: the SDK's CPU beside ours
TEXT, REASONING, CALLS, ARGUMENTS = 8_000, 2_000, 3, 1_000
WORDS = ("The", " bridge", " stands", " between", " an", " editor", " and", " a", " gateway", ",", "\n")

CONTENDERS: dict[str, tuple[str, ...]] = {
    "ui": ("ours", "sdk", "sdk-message"),
    "full": ("ours", "sdk", "parse"),
}
NAMES = {
    ("ui", "ours"): "tollbridge, UI stream to events",
    ("ui", "sdk"): "ai 7, parseJsonEventStream",
    ("ui", "sdk-message"): "ai 7, readUIMessageStream",
    ("full", "ours"): "tollbridge, full stream to events",
    ("full", "sdk"): "ai 7, streamText().fullStream",
    ("full", "parse"): "Node, JSON.parse of each line",
}


def chunks(kind: str) -> Iterator[dict[str, Any]]:
    """A long answer: reasoning, text, and three calls whose arguments are streamed."""
    said, call_id, piece = (
        ("delta", "toolCallId", "inputTextDelta") if kind == "ui" else ("text", "id", "delta")
    )
    yield {"type": "start"}
    yield {"type": "start-step"} if kind == "ui" else {"type": "start-step", "request": {}, "warnings": []}
    for block, name, count in (("r", "reasoning", REASONING), ("0", "text", TEXT)):
        yield {"type": f"{name}-start", "id": block}
        for number in range(count):
            yield {"type": f"{name}-delta", "id": block, said: WORDS[number % len(WORDS)]}
        yield {"type": f"{name}-end", "id": block}
    for number in range(CALLS):
        called = f"call_{number}"
        given = {"path": f"file{number}.py", "lines": list(range(ARGUMENTS))}
        text = json.dumps(given)
        yield {"type": "tool-input-start", call_id: called, "toolName": "edit"}
        for at in range(0, len(text), 5):
            yield {"type": "tool-input-delta", call_id: called, piece: text[at : at + 5]}
        final = "tool-input-available" if kind == "ui" else "tool-call"
        yield {"type": final, "toolCallId": called, "toolName": "edit", "input": given}
    usage = {"inputTokens": 1200, "outputTokens": TEXT + REASONING, "totalTokens": 1200 + TEXT + REASONING}
    if kind == "full":
        yield {"type": "finish-step", "finishReason": "tool-calls", "usage": usage, "response": {"id": "r"}}
        yield {"type": "finish", "finishReason": "tool-calls", "totalUsage": usage}
    else:
        yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": "tool-calls"}


def frames(kind: str) -> list[bytes]:
    texts = [json.dumps(chunk, separators=(",", ":")).encode() for chunk in chunks(kind)]
    if kind == "full":
        return [text + b"\n" for text in texts]
    return [*(b"data: " + text + b"\n\n" for text in texts), b"data: [DONE]\n\n"]


def measure(kind: str, path: Path, read: int) -> None:
    """Our side of one process: the stream in pieces, through a decoder, several times."""
    body = path.read_bytes()
    made = frames(kind)
    pieces = made if read == 0 else [body[at : at + read] for at in range(0, len(body), read)]
    costs = []
    for _ in range(PASSES):
        decoder = UiDecoder() if kind == "ui" else FullDecoder()
        started = time.process_time()
        said = sum(len(decoder.feed(piece)) for piece in pieces) + len(decoder.close())
        costs.append(time.process_time() - started)
    print(json.dumps({"cpu_us": statistics.median(costs[1:]) / len(made) * 1e6, "said": said}))


def main() -> list[str]:
    """The targets that were missed."""
    packages = installed(Path(__file__).parents[1] / "tests" / "interop" / "aisdk")
    # Beside the packages, where Node finds what it imports.
    reader = shutil.copy(Path(__file__).with_name("aisdk_reader.mjs"), packages)
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: Path(folder, kind) for kind in CONTENDERS}
        counts = {}
        for kind, path in paths.items():
            made = frames(kind)
            path.write_bytes(b"".join(made))
            counts[kind] = len(made)
        runs = [
            (kind, name, read)
            for _ in range(ROUNDS)
            for kind, names in CONTENDERS.items()
            for name in names
            for read in (0, READ)
        ]
        found: dict[tuple[str, str, int], list[float]] = {}
        for kind, name, read in track(runs, "Reading", transient=True):
            ours = [sys.executable, "-m", "bench.aisdk", kind, str(paths[kind]), str(read)]
            theirs = [str(NODE), str(reader), kind, name, str(paths[kind]), str(read)]
            done = subprocess.run(
                ours if name == "ours" else theirs, capture_output=True, text=True, timeout=300, check=True
            )
            found.setdefault((kind, name, read), []).append(json.loads(done.stdout)["cpu_us"])
    return show({run: statistics.median(costs) for run, costs in found.items()}, counts)


def show(cost: dict[tuple[str, str, int], float], counts: dict[str, int]) -> list[str]:
    table = Table(title=f"CPU µs for each chunk, median of {ROUNDS} processes")
    for heading in ("reader", "one chunk a read", "16 KiB a read"):
        table.add_column(heading, justify="left" if heading == "reader" else "right")
    for (kind, name), title in NAMES.items():
        table.add_row(title, *(f"{cost[kind, name, read]:,.2f}" for read in (0, READ)))
    console = Console()
    console.print(table)
    missed: list[str] = []
    for kind, count in counts.items():
        ratios = [cost[kind, "sdk", read] / cost[kind, "ours", read] for read in (0, READ)]
        one, many = (f"{ratio:.1f}" for ratio in ratios)
        took = f"the SDK takes {one} and {many} times our CPU (at least {LEAST_OF_SDK:g})"
        console.print(f"{kind}: {count:,} chunks; {took}")
        missed += at_least(f"{kind}: the SDK / ours", min(ratios), LEAST_OF_SDK)
    return missed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        leave(main())
