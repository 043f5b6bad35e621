"""How fast counting is, beside tiktoken: the same texts, taken in turns, in one run.

    python -m bench.tokens.speed

tiktoken fetches its vocabulary at first use; here it gets the same file out of another package's wheel.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from bench.targets import at_least, at_most, leave
from bench.tokens.conversations import steps
from bench.tokens.corpus import corpus
from bench.tokens.truths import o200k
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.types.messages import Message, Role, TextPart, Tool
from tollbridge.types.usage import Usage

ROUNDS = 7
LEAST_OF_TIKTOKEN, MOST_CACHED = 1.5, 2.0  # the targets: its speed, and µs for a text asked for again
GPT, CLAUDE = "openai/gpt-5", "anthropic/claude-sonnet-4.5"


def main() -> list[str]:
    """The targets that were missed."""
    console = Console(width=120)
    counting, slow = _throughput(_unseen())
    console.print(counting)
    console.print(_agent_turn())
    cached, dear = _cached()
    console.print(cached)
    return slow + dear


def _unseen() -> Iterator[str]:
    """Texts, none of them twice."""
    seen: set[str] = set()
    for seed in range(40):
        chunks = [chunk for kind in corpus(seed).values() for chunk in kind if chunk not in seen]
        seen.update(chunks)
        random.Random(seed).shuffle(chunks)
        yield from chunks


def _time(act: Callable[[], object]) -> float:
    """CPU seconds: the machine may have other things to do."""
    started = time.process_time()
    act()
    return time.process_time() - started


def _throughput(texts: Iterator[str]) -> tuple[Table, list[str]]:
    estimator, other = HybridTokenEstimator(), o200k()
    counts: dict[str, Callable[[str], object]] = {
        "tiktoken, o200k": lambda text: len(other.encode_ordinary(text)),
        f"ours, {GPT} (exact)": lambda text: estimator.estimate_text(GPT, text),
        f"ours, {CLAUDE} (weighted)": lambda text: estimator.estimate_text(CLAUDE, text),
    }
    speeds: dict[str, list[float]] = {name: [] for name in counts}
    for round_ in range(ROUNDS + 1):
        for name, count in counts.items():
            batch = [next(texts) for _ in range(120)]
            size = sum(len(text.encode()) for text in batch) / 1e6
            speed = size / _time(lambda count=count, batch=batch: [count(text) for text in batch])  # type: ignore[misc]
            if round_:  # the first warms the engines
                speeds[name].append(speed)
    table = Table("unseen text", "MB/s", "times tiktoken", title="counting")
    base = statistics.median(speeds["tiktoken, o200k"])
    missed: list[str] = []
    for name, found in speeds.items():
        speed = statistics.median(found)
        table.add_row(name, f"{speed:.1f}", f"{speed / base:.2f}")
        if name.startswith("ours"):
            missed += at_least(f"{name} / tiktoken", speed / base, LEAST_OF_TIKTOKEN)
    return table, missed


def _strings(value: object) -> Iterator[str]:
    """Every key and every string, as the host counts tool schemas."""
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
    """What one turn of an agent asks: every string of its tools, and every message, again and again."""
    step = list(steps(GPT, corpus(), seed=1, talks=1, turns=25))[-1]
    texts = [text for tool in step.request.tools for text in _strings(_plain(tool))]
    messages = step.request.messages
    written = [
        "\n".join(part.text for part in message.parts if isinstance(part, TextPart)) for message in messages
    ]
    other = o200k()
    table = Table("an agent's turn", "ms", title=f"{len(texts)} strings and {len(messages)} messages")
    peer = [
        _time(lambda: [len(other.encode_ordinary(text)) for text in [*texts, *written]]) for _ in range(5)
    ]
    table.add_row("tiktoken, no cache", f"{1000 * statistics.median(peer):.2f}")
    for model in (GPT, CLAUDE):
        estimator = HybridTokenEstimator()
        estimator.estimate_text(model, "warm")

        def ask(estimator: HybridTokenEstimator = estimator, model: str = model) -> None:
            for text in texts:
                estimator.estimate_text(model, text)
            for message in messages:
                estimator.estimate_message(model, message)

        table.add_row(f"ours, {model}, the first time", f"{1000 * _time(ask):.2f}")
        table.add_row(
            f"ours, {model}, again", f"{1000 * statistics.median(_time(ask) for _ in range(5)):.2f}"
        )
        estimator.calibrate(model, messages, Usage(estimator.estimate_conversation(model, messages).tokens))
        table.add_row(f"ours, {model}, after learning", f"{1000 * _time(ask):.2f}")
    return table


def _plain(tool: Tool) -> object:
    return json.loads(json.dumps({"name": tool.name, "description": tool.description, "x": tool.parameters}))


def _cached() -> tuple[Table, list[str]]:
    missed: list[str] = []
    table = Table("a count asked for again", "µs", title="cached")
    estimator, times = HybridTokenEstimator(), 20_000
    message = Message(Role.USER, (TextPart("Read the file and tell me what it does. " * 20),))
    for model in (GPT, CLAUDE):
        for text in ("path", "The absolute path of the file to read. " * 10):
            fresh = [(text + " ").strip() for _ in range(times)]  # other objects, as a decoder makes them
            estimator.estimate_text(model, text)
            spent = _time(lambda: [estimator.estimate_text(model, one) for one in fresh])  # noqa: B023
            label = f"{model}, a text of {len(text)} characters"
            table.add_row(label, f"{1e6 * spent / times:.2f}")
            missed += at_most(f"{label}, asked for again", 1e6 * spent / times, MOST_CACHED, " µs")
        spent = _time(lambda: [estimator.estimate_message(model, message) for _ in range(times // 10)])  # noqa: B023
        table.add_row(f"{model}, a message", f"{1e6 * spent / (times // 10):.2f}")
    return table, missed


if __name__ == "__main__":
    leave(main())
