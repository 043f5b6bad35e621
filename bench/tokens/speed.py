"""The speed of counting, compared with tiktoken on the same kinds of text, interleaved in one run.

    python -m bench.tokens.speed

tiktoken downloads its vocabulary on first use; here it gets the same file from the wheel of another package.
The vocabulary of o200k is loaded in advance (`HybridTokenEstimator.warm`), as the sidecar does.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from bench.targets import at_least, at_most, exit_if_missed
from bench.tokens.conversations import steps
from bench.tokens.corpus import corpus
from bench.tokens.references import o200k
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.types.events import Usage
from tollbridge.types.messages import Message, Role, TextPart, Tool

ROUNDS = 7
# More for the throughput, because every round counts other texts.
THROUGHPUT_ROUNDS = 25
# Targets: our speed divided by that of tiktoken, at least; µs per KB for a model whose vocabulary is bundled,
# and per cached text, at most.
TIKTOKEN_TARGET, KILOBYTE_TARGET, CACHED_TARGET = 2.0, 20.0, 2.0
# The short texts that an editor counts in one agent turn; at most this many ms the first time, and again.
SHORT_TEXTS, COLD_TARGET, AGAIN_TARGET = 2_440, 20.0, 1.0
GPT, CLAUDE = "openai/gpt-5", "anthropic/claude-sonnet-4.5"


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    console = Console(width=120)
    HybridTokenEstimator().warm().join()
    throughput, missed_throughput = _throughput(_unique_texts())
    console.print(throughput)
    console.print(_agent_turn())
    short, missed_short = _short_texts()
    console.print(short)
    cached, missed_cached = _cached()
    console.print(cached)
    return missed_throughput + missed_short + missed_cached


def _unique_texts() -> Iterator[str]:
    """Yield texts, none of them twice."""
    seen: set[str] = set()
    for seed in range(40):
        chunks = [chunk for kind in corpus(seed).values() for chunk in kind if chunk not in seen]
        seen.update(chunks)
        random.Random(seed).shuffle(chunks)
        yield from chunks


def _time(function: Callable[[], object]) -> float:
    """Return the CPU seconds of a call. CPU time depends less on the load of the machine than wall time."""
    started = time.process_time()
    function()
    return time.process_time() - started


def _throughput(texts: Iterator[str]) -> tuple[Table, list[str]]:
    estimator, reference = HybridTokenEstimator(), o200k()
    counts: dict[str, Callable[[str], object]] = {
        "tiktoken, o200k": lambda text: len(reference.encode_ordinary(text)),
        f"tollbridge, {GPT} (exact)": lambda text: estimator.estimate_text(GPT, text),
        f"tollbridge, {CLAUDE} (weighted)": lambda text: estimator.estimate_text(CLAUDE, text),
    }
    speeds: dict[str, list[float]] = {name: [] for name in counts}
    for round_ in range(THROUGHPUT_ROUNDS + 1):
        for name, count in counts.items():
            batch = [next(texts) for _ in range(120)]
            size = sum(len(text.encode()) for text in batch) / 1e6
            speed = size / _time(lambda count=count, batch=batch: [count(text) for text in batch])  # type: ignore[misc]
            if round_:  # the first round is a warm-up
                speeds[name].append(speed)
    columns = ("counter", "MB per CPU second", "µs per KB", "ratio to tiktoken")
    table = Table(*columns, title="Counting text for the first time")
    base = statistics.median(speeds["tiktoken, o200k"])
    missed: list[str] = []
    for name, values in speeds.items():
        speed = statistics.median(values)
        table.add_row(name, f"{speed:.1f}", f"{1000 / speed:.1f}", f"{speed / base:.2f}")
        if name.startswith("tollbridge"):
            missed += at_least(f"{name} / tiktoken", speed / base, TIKTOKEN_TARGET)
        if "exact" in name:
            missed += at_most(name, 1000 / speed, KILOBYTE_TARGET, " µs per KB")
    return table, missed


def _strings(value: object) -> Iterator[str]:
    """Yield every key and every string, as VS Code counts tool schemas."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value


def _agent_turn() -> Table:
    """Count what an editor counts in one agent turn: every string of the tools, and every message."""
    step = list(steps(GPT, corpus(), seed=1, conversations=1, turns=25))[-1]
    texts = [text for tool in step.request.tools for text in _strings(_plain(tool))]
    messages = step.request.messages
    message_texts = [
        "\n".join(part.text for part in message.parts if isinstance(part, TextPart)) for message in messages
    ]
    reference = o200k()
    title = f"One agent turn: {len(texts)} strings and {len(messages)} messages"
    table = Table("counter", "CPU ms", title=title)
    all_texts = [*texts, *message_texts]
    times = [_time(lambda: [len(reference.encode_ordinary(text)) for text in all_texts]) for _ in range(5)]
    table.add_row("tiktoken, without a cache", f"{1000 * statistics.median(times):.2f}")
    for model in (GPT, CLAUDE):
        estimator = HybridTokenEstimator()
        estimator.estimate_text(model, "warm")

        def count_all(estimator: HybridTokenEstimator = estimator, model: str = model) -> None:
            for text in texts:
                estimator.estimate_text(model, text)
            for message in messages:
                estimator.estimate_message(model, message)

        table.add_row(f"tollbridge, {model}, first time", f"{1000 * _time(count_all):.2f}")
        table.add_row(
            f"tollbridge, {model}, second time",
            f"{1000 * statistics.median(_time(count_all) for _ in range(5)):.2f}",
        )
        estimator.calibrate(model, messages, Usage(estimator.estimate_conversation(model, messages).tokens))
        table.add_row(f"tollbridge, {model}, after learning", f"{1000 * _time(count_all):.2f}")
    return table


def _short_texts() -> tuple[Table, list[str]]:
    """Count the strings of tool schemas, for the first time and again."""
    strings = {
        text
        for step in steps(GPT, corpus(), seed=1, conversations=40, turns=1)
        for tool in step.request.tools
        for text in _strings(_plain(tool))
    }
    texts = sorted(strings)[:SHORT_TEXTS]
    table = Table("model", "first time, CPU ms", "again", title=f"{len(texts):,} short texts")
    missed: list[str] = []
    for model in (GPT, CLAUDE):
        cold: list[float] = []
        again: list[float] = []
        for _ in range(ROUNDS):
            estimator = HybridTokenEstimator()
            estimator.estimate_text(model, "warm")
            for times in (cold, again):
                times.append(_time(lambda: [estimator.estimate_text(model, text) for text in texts]))  # noqa: B023
        first, second = 1000 * min(cold), 1000 * min(again)
        table.add_row(model, f"{first:.1f}", f"{second:.2f}")
        missed += at_most(f"{model}, short texts for the first time", first, COLD_TARGET, " ms")
        missed += at_most(f"{model}, short texts again", second, AGAIN_TARGET, " ms")
    return table, missed


def _plain(tool: Tool) -> object:
    return json.loads(json.dumps({"name": tool.name, "description": tool.description, "x": tool.parameters}))


def _cached() -> tuple[Table, list[str]]:
    missed: list[str] = []
    table = Table("counted", "CPU µs", title="Counting the same again")
    estimator, times = HybridTokenEstimator(), 20_000
    message = Message(Role.USER, (TextPart("Read the file and tell me what it does. " * 20),))
    for model in (GPT, CLAUDE):
        for text in ("path", "The absolute path of the file to read. " * 10):
            copies = [(text + " ").strip() for _ in range(times)]  # new objects, as a decoder creates them
            estimator.estimate_text(model, text)
            spent = _time(lambda: [estimator.estimate_text(model, copy) for copy in copies])  # noqa: B023
            label = f"{model}, a text of {len(text)} characters"
            table.add_row(label, f"{1e6 * spent / times:.2f}")
            missed += at_most(f"{label}, counted again", 1e6 * spent / times, CACHED_TARGET, " µs")
        spent = _time(lambda: [estimator.estimate_message(model, message) for _ in range(times // 10)])  # noqa: B023
        table.add_row(f"{model}, a message", f"{1e6 * spent / (times // 10):.2f}")
    return table, missed


if __name__ == "__main__":
    exit_if_missed(main())
