"""The ledger's database with 100,000 requests: its size, and the time of a lookup.

python -m bench.tokens.store
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.targets import at_most, exit_if_missed
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.types.events import Usage
from tollbridge.types.messages import Message, Role, TextPart

REQUESTS = 100_000
# Targets, at most: the size of all files, and the time of a lookup.
SIZE_TARGET_MB, LOOKUP_TARGET_US = 50.0, 1000.0
MODEL = "anthropic/claude-sonnet-4.5"


def _message(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


def fill(estimator: HybridTokenEstimator, rng: random.Random) -> tuple[Message, ...]:
    """Record conversations of twenty turns, and return the last one."""
    messages: tuple[Message, ...] = ()
    for _ in range(REQUESTS):
        if len(messages) > 40 or not messages:
            messages = (_message(Role.SYSTEM, f"System {rng.random()}"),)
        answer = (TextPart(f"Answer {rng.random()}"),)
        prompt = (*messages, _message(Role.USER, f"Question {rng.random()}"))
        estimator.calibrate(MODEL, prompt, Usage(40 + 14 * len(prompt), 9), answer=answer)
        messages = (*prompt, Message(Role.ASSISTANT, answer))
    return messages


def _microseconds(function: Callable[[], object]) -> float:
    """Return the median wall time of 51 calls."""
    function()
    times = []
    for _ in range(51):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def _prompts(known: tuple[Message, ...], rng: random.Random) -> Iterator[tuple[str, tuple[Message, ...]]]:
    new = _message(Role.USER, f"Next {rng.random()}")
    yield f"a known conversation of {len(known)} messages", (*known, new)
    yield f"a conversation of {len(known)} messages, edited at its start", (known[0], new, *known[2:])
    unknown = tuple(_message(Role.USER, f"Other {rng.random()}") for _ in range(200))
    yield "an unknown conversation of 200 messages", unknown


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    rng = random.Random(1)
    table = Table("operation", "", title="A database of 100,000 requests")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = SqliteStore(path)
        estimator = HybridTokenEstimator(store.tokens)
        started = time.process_time()
        known = fill(estimator, rng)
        spent = 1e6 * (time.process_time() - started) / REQUESTS
        table.add_row("record a request, CPU µs", f"{spent:.0f}")
        size = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e6
        table.add_row("size of all files, MB", f"{size:.1f}")
        keys = [random.Random(number).randbytes(16) for number in range(40)]
        lookup = _microseconds(lambda: store.tokens.prefixes(keys))
        table.add_row("look up 40 prefixes, µs", f"{lookup:.0f}")
        for label, prompt in _prompts(known, rng):
            micros = _microseconds(lambda prompt=prompt: estimator.estimate_conversation(MODEL, prompt))  # type: ignore[misc]
            table.add_row(f"estimate {label}, µs", f"{micros:.0f}")
        store.close()
    Console(width=120).print(table)
    missed = at_most("size of all files", size, SIZE_TARGET_MB, " MB")
    return [*missed, *at_most("look up 40 prefixes", lookup, LOOKUP_TARGET_US, " µs")]


if __name__ == "__main__":
    exit_if_missed(main())
