"""How far estimates are from the truth, over whole conversations with a tokenizer nobody told us of.

python -m bench.tokens.simulate [claude2] [qwen36] [o200k] [llama4] [deepseek]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from bench.targets import at_most, leave
from bench.tokens.conversations import Step, steps
from bench.tokens.corpus import corpus
from bench.tokens.providers import Provider
from bench.tokens.schemes import FirstDesign, Ours, PlainTokenizer, Scheme
from bench.tokens.truths import truth
from tollbridge.tokens.records import percentile
from tollbridge.types.usage import Usage

SEEDS = 3
# Conversations before this one are those in which a scheme gets to know the model.
WARM = 3


class Trial(msgspec.Struct, frozen=True):
    """A hidden tokenizer, its provider's rules, the name our side sees, and what it must not know."""

    truth: str
    rules: str
    model: str
    without: frozenset[str]


TRIALS = {
    trial.truth: trial
    for trial in (
        Trial("claude2", "anthropic", "anthropic/claude-hidden", frozenset({"claude2"})),
        Trial("qwen36", "other", "hidden/model", frozenset({"qwen36", "qwen3"})),
        Trial("o200k", "openai", "openai/gpt-5", frozenset()),
        Trial("llama4", "other", "hidden/other-model", frozenset({"llama4", "o200k", "llama3"})),
        Trial("deepseek", "other", "deepseek/deepseek-v3.2", frozenset()),
    )
}


class Error(msgspec.Struct, frozen=True):
    step: Step
    first: bool
    share: float


class Trouble(msgspec.Struct, frozen=True):
    """How reports go wrong: nonsense, reasoning kept secret, cached tokens left out of the input."""

    nonsense: float = 0.0
    secret: float = 0.0
    cached_apart: bool = False

    def report(self, usage: Usage, known: int, chance: random.Random) -> Usage:
        told, output, reasoning = usage.input_tokens or 0, usage.output_tokens, usage.reasoning_tokens
        if chance.random() < self.nonsense:
            return Usage(chance.choice((0, 1, told // 7, told * 9, 1_000_000)), output)
        if chance.random() < self.secret:
            reasoning = None
        if self.cached_apart and known:
            return Usage(told - known, output, cached_tokens=known, reasoning_tokens=reasoning)
        return Usage(told, output, reasoning_tokens=reasoning)


NONE = Trouble()
HARD = Trouble(nonsense=0.05, secret=0.4, cached_apart=True)


def run(trial: Trial, make: Callable[[], Scheme], seeds: int = SEEDS, trouble: Trouble = NONE) -> list[Error]:
    errors: list[Error] = []
    texts = corpus()
    provider = Provider(truth(trial.truth), trial.rules)
    for seed in range(seeds):
        scheme = make()
        first = True
        chance, cached = random.Random(seed), dict[int, int]()
        for step in steps(trial.model, texts, seed):
            actual = provider.input_tokens(step.request)
            estimate = scheme.estimate(step.request)
            errors.append(Error(step, first, (estimate - actual) / actual))
            output = provider.answered(step.answer, step.reasoning)
            usage = Usage(actual, output, reasoning_tokens=step.reasoning)
            scheme.learn(step, trouble.report(usage, cached.get(step.conversation, 0), chance), estimate)
            appended = step.happening in ("new", "append")
            cached[step.conversation] = actual * 9 // 10 if appended else 0
            first = False
    return errors


P95, BIAS, UNDER = "warm 95th", "warm bias", "warm, under by > 1 %"
COLUMNS: dict[str, Callable[[Error], bool]] = {
    "first ever": lambda error: error.first,
    "cold": lambda error: error.step.conversation < WARM,
    "warm": lambda error: error.step.conversation >= WARM,
    "turn 1": lambda error: error.step.conversation >= WARM and error.step.turn == 1,
    "turn 2": lambda error: error.step.conversation >= WARM and error.step.turn == 2,
    "turns 3-9": lambda error: error.step.conversation >= WARM and 3 <= error.step.turn <= 9,
    "turns 10+": lambda error: error.step.conversation >= WARM and error.step.turn >= 10,
    "edit": lambda error: error.step.happening == "edit",
    "compaction": lambda error: error.step.happening == "compact",
    "new tools": lambda error: error.step.happening == "tools",
}


# What the scheme that never heard of the tokenizer is held to, in %. Too low is the dangerous side.
# What the targets are for: a tokenizer that is not public, as it is shipped and as if nobody had met it.
UNHEARD, SHIPPED = "ours, this tokenizer unheard of", "ours"
JUDGED = {("claude2", UNHEARD), ("claude2", SHIPPED)}
TARGETS = {"first ever": 20.0, "warm": 1.0, "edit": 2.5, "compaction": 2.5, P95: 3.0, UNDER: 5.0}


def mean(errors: list[Error], which: Callable[[Error], bool]) -> float:
    found = [abs(error.share) for error in errors if which(error)]
    return sum(found) / len(found) if found else float("nan")


def figures(errors: list[Error]) -> dict[str, float]:
    """Every column, in %."""
    warm = [error.share for error in errors if error.step.conversation >= WARM]
    shares = {
        **{name: mean(errors, which) for name, which in COLUMNS.items()},
        P95: percentile([abs(share) for share in warm], 0.95),
        BIAS: sum(warm) / len(warm),
        UNDER: sum(share < -0.01 for share in warm) / len(warm),
    }
    return {name: 100 * share for name, share in shares.items()}


def main(names: Sequence[str] = ()) -> list[str]:
    """The targets that were missed."""
    console = Console(width=160)
    missed: list[str] = []
    for name in names or list(TRIALS):
        trial = TRIALS[name]
        table = Table(title=f"hidden truth {name}, {trial.rules} rules: mean error in % of the prompt")
        for column in ("scheme", *COLUMNS, P95, BIAS, UNDER):
            table.add_column(column, justify="left" if column == "scheme" else "right")
        schemes: dict[str, Callable[[], Scheme]] = {
            "first design": FirstDesign,
            "plain o200k": PlainTokenizer,
            UNHEARD: lambda trial=trial: Ours(trial.without),  # type: ignore[misc]
            SHIPPED: Ours,
            "ours, reports going wrong": Ours,
        }
        for label, make in schemes.items():
            found = figures(run(trial, make, trouble=HARD if "wrong" in label else NONE))
            table.add_row(label, *(f"{found[name]:{'+' if name == BIAS else ''}.2f}" for name in found))
            if (trial.truth, label) in JUDGED:
                for name, target in TARGETS.items():
                    missed += at_most(f"{trial.truth}, {label}, {name}", found[name], target, " %")
        console.print(table)
    return missed


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
