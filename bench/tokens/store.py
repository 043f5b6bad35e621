"""A store of a hundred thousand requests: its size, and how long a look into it takes.

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

from bench.targets import at_most, leave
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.database import Database
from tollbridge.storage.tables import LedgerTables
from tollbridge.types.messages import Message, Role, TextPart
from tollbridge.types.usage import Usage

REQUESTS = 100_000
MOST_MB, MOST_MICROSECONDS = 50.0, 1000.0  # the targets: all its files, and a look into it
MODEL = "anthropic/claude-sonnet-4.5"


def _said(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


def fill(estimator: HybridTokenEstimator, chance: random.Random) -> tuple[Message, ...]:
    """Conversations of twenty turns; the last of them."""
    messages: tuple[Message, ...] = ()
    for _ in range(REQUESTS):
        if len(messages) > 40 or not messages:
            messages = (_said(Role.SYSTEM, f"System {chance.random()}"),)
        answer = (TextPart(f"Answer {chance.random()}"),)
        asked = (*messages, _said(Role.USER, f"Question {chance.random()}"))
        estimator.calibrate(MODEL, asked, Usage(40 + 14 * len(asked), 9), answer=answer)
        messages = (*asked, Message(Role.ASSISTANT, answer))
    return messages


def _microseconds(act: Callable[[], object]) -> float:
    act()
    spent = []
    for _ in range(51):
        started = time.perf_counter()
        act()
        spent.append(time.perf_counter() - started)
    return 1e6 * statistics.median(spent)


def _prompts(known: tuple[Message, ...], chance: random.Random) -> Iterator[tuple[str, tuple[Message, ...]]]:
    new = _said(Role.USER, f"Next {chance.random()}")
    yield f"a known conversation of {len(known)} messages", (*known, new)
    yield f"one edited at its start, {len(known)} messages", (known[0], new, *known[2:])
    unknown = tuple(_said(Role.USER, f"Other {chance.random()}") for _ in range(200))
    yield "an unknown one of 200 messages", unknown


def main() -> list[str]:
    """The targets that were missed."""
    chance = random.Random(1)
    table = Table("a store of 100,000 requests", "")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        estimator = HybridTokenEstimator(path)
        started = time.process_time()
        known = fill(estimator, chance)
        spent = 1e6 * (time.process_time() - started) / REQUESTS
        table.add_row("recording a request, µs", f"{spent:.0f}")
        size = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e6
        table.add_row("all its files, MB", f"{size:.1f}")
        tables = LedgerTables(Database(path))
        chains = [random.Random(number).randbytes(16) for number in range(40)]
        looked = _microseconds(lambda: tables.prefixes(chains))
        table.add_row("looking up 40 prefixes, µs", f"{looked:.0f}")
        for label, asked in _prompts(known, chance):
            micros = _microseconds(lambda asked=asked: estimator.estimate_conversation(MODEL, asked))  # type: ignore[misc]
            table.add_row(f"estimating {label}, µs", f"{micros:.0f}")
        estimator.close()
    Console(width=120).print(table)
    missed = at_most("all files of the store", size, MOST_MB, " MB")
    return [*missed, *at_most("looking up 40 prefixes", looked, MOST_MICROSECONDS, " µs")]


if __name__ == "__main__":
    leave(main())
