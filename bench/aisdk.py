"""AI SDK streams: CPU time per chunk of our decoders and of the SDK's readers on Node, interleaved.

Every reader gets the same bytes from memory: once with one chunk per read, as on an idle network, and once
with 16 KiB per read, as on a busy one. Each reader runs in its own process, warms up, and reports the median
of its passes; the table shows the median over the processes.

    UI stream     the SDK's `parseJsonEventStream` with its chunk schema, which its chat client uses, and
                  that client as a whole, `readUIMessageStream`
    full stream   the SDK's `streamText`, from a model's parts to `fullStream`. The SDK has no reader for this
                  stream as JSON, so `JSON.parse` of each line is measured as well.
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

from bench.targets import at_least, exit_if_missed
from tollbridge.protocols.ai_sdk.stream import FullDecoder, UiDecoder

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
PASSES = 6  # over the stream in one process; the first warms up and is not counted
READ = 16 * 1024
SDK_TARGET = 5.0  # the SDK's CPU time divided by ours, at least
TEXT, REASONING, CALLS, ARGUMENTS = 8_000, 2_000, 3, 1_000
WORDS = ("The", " bridge", " stands", " between", " an", " editor", " and", " a", " gateway", ",", "\n")

READERS: dict[str, tuple[str, ...]] = {
    "ui": ("ours", "sdk", "sdk-message"),
    "full": ("ours", "sdk", "parse"),
}
NAMES = {
    ("ui", "ours"): "tollbridge, UI stream to events",
    ("ui", "sdk"): "ai 7, parseJsonEventStream",
    ("ui", "sdk-message"): "ai 7, readUIMessageStream",
    ("full", "ours"): "tollbridge, full stream to events",
    ("full", "sdk"): "ai 7, streamText().fullStream",
    ("full", "parse"): "Node, JSON.parse per line",
}


def chunks(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a long answer: reasoning, text, and three tool calls with streamed arguments."""
    text_field, call_id_field, arguments_field = (
        ("delta", "toolCallId", "inputTextDelta") if kind == "ui" else ("text", "id", "delta")
    )
    yield {"type": "start"}
    yield {"type": "start-step"} if kind == "ui" else {"type": "start-step", "request": {}, "warnings": []}
    for block, name, count in (("r", "reasoning", REASONING), ("0", "text", TEXT)):
        yield {"type": f"{name}-start", "id": block}
        for number in range(count):
            yield {"type": f"{name}-delta", "id": block, text_field: WORDS[number % len(WORDS)]}
        yield {"type": f"{name}-end", "id": block}
    for number in range(CALLS):
        call_id = f"call_{number}"
        arguments = {"path": f"file{number}.py", "lines": list(range(ARGUMENTS))}
        text = json.dumps(arguments)
        yield {"type": "tool-input-start", call_id_field: call_id, "toolName": "edit"}
        for start in range(0, len(text), 5):
            delta = text[start : start + 5]
            yield {"type": "tool-input-delta", call_id_field: call_id, arguments_field: delta}
        final = "tool-input-available" if kind == "ui" else "tool-call"
        yield {"type": final, "toolCallId": call_id, "toolName": "edit", "input": arguments}
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
    """Decode the stream several times in this process, and print the CPU time per chunk as JSON."""
    body = path.read_bytes()
    chunk_frames = frames(kind)
    pieces = [body[start : start + read] for start in range(0, len(body), read)] if read else chunk_frames
    costs = []
    for _ in range(PASSES):
        decoder = UiDecoder() if kind == "ui" else FullDecoder()
        started = time.process_time()
        events = sum(len(decoder.feed(piece)) for piece in pieces) + len(decoder.close())
        costs.append(time.process_time() - started)
    print(json.dumps({"cpu_us": statistics.median(costs[1:]) / len(chunk_frames) * 1e6, "events": events}))


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    packages = installed(Path(__file__).parents[1] / "tests" / "interop" / "aisdk")
    # In the directory of the packages, so that Node resolves the imports.
    reader = shutil.copy(Path(__file__).with_name("aisdk_reader.mjs"), packages)
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: Path(folder, kind) for kind in READERS}
        counts = {}
        for kind, path in paths.items():
            chunk_frames = frames(kind)
            path.write_bytes(b"".join(chunk_frames))
            counts[kind] = len(chunk_frames)
        runs = [
            (kind, name, read)
            for _ in range(ROUNDS)
            for kind, names in READERS.items()
            for name in names
            for read in (0, READ)
        ]
        costs: dict[tuple[str, str, int], list[float]] = {}
        for kind, name, read in track(runs, "Reading", transient=True):
            ours = [sys.executable, "-m", "bench.aisdk", kind, str(paths[kind]), str(read)]
            theirs = [str(NODE), str(reader), kind, name, str(paths[kind]), str(read)]
            result = subprocess.run(
                ours if name == "ours" else theirs, capture_output=True, text=True, timeout=300, check=True
            )
            costs.setdefault((kind, name, read), []).append(json.loads(result.stdout)["cpu_us"])
    return show({run: statistics.median(values) for run, values in costs.items()}, counts)


def show(cost: dict[tuple[str, str, int], float], counts: dict[str, int]) -> list[str]:
    """Print the results and return the missed targets."""
    table = Table(title=f"CPU µs per chunk, median of {ROUNDS} processes")
    for heading in ("reader", "one chunk per read", "16 KiB per read"):
        table.add_column(heading, justify="left" if heading == "reader" else "right")
    for (kind, name), title in NAMES.items():
        table.add_row(title, *(f"{cost[kind, name, read]:,.2f}" for read in (0, READ)))
    console = Console()
    console.print(table)
    missed: list[str] = []
    for kind, count in counts.items():
        ratios = [cost[kind, "sdk", read] / cost[kind, "ours", read] for read in (0, READ)]
        chunk_ratio, block_ratio = (f"{ratio:.1f}" for ratio in ratios)
        comparison = f"AI SDK / tollbridge: {chunk_ratio} and {block_ratio} (target: at least {SDK_TARGET:g})"
        console.print(f"{kind}: {count:,} chunks; {comparison}")
        missed += at_least(f"{kind}: AI SDK / tollbridge", min(ratios), SDK_TARGET)
    return missed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        exit_if_missed(main())
