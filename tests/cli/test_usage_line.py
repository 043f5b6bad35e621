from __future__ import annotations

from decimal import Decimal

import pytest

from tollbridge.answer import Answer
from tollbridge.cli.screen import usage_line
from tollbridge.types.events import Cost, Usage

# The seconds until the first token, and until the end.
Timing = tuple[float | None, float]
QUICK: Timing = (0.25, 1.25)


def make_answer(usage: Usage | None, timing: Timing, cost: Decimal | None = None) -> Answer:
    answer = Answer()
    answer.usage, answer.cost = usage, Cost(charge=cost)
    answer.first, answer.duration = timing
    return answer


@pytest.mark.parametrize(
    ("usage", "timing", "line"),
    [
        (
            Usage(1500, 101, 1601, 1000, 20),
            QUICK,
            "1,500 in (1,000 cached) · 101 out (20 reasoning) · first token 250 ms · 100 tokens/s",
        ),
        (Usage(31, 11), QUICK, "31 in · 11 out · first token 250 ms · 10 tokens/s"),
        (
            Usage(31, 11, cached_tokens=0),
            QUICK,
            "31 in (0 cached) · 11 out · first token 250 ms · 10 tokens/s",
        ),
        (Usage(total_tokens=42), QUICK, "42 tokens · first token 250 ms · total 1.2 s"),
        (None, QUICK, "first token 250 ms · total 1.2 s"),
        (Usage(0, 0, 0), QUICK, "first token 250 ms · total 1.2 s"),
        (Usage(5, 1), QUICK, "5 in · 1 out · first token 250 ms · total 1.2 s"),
        (
            Usage(5, 20),
            (2.0, 2.01),
            "5 in · 20 out · first token 2.0 s · total 2.0 s",
        ),
        (None, (None, 0.5), "total 500 ms"),
    ],
)
def test_unknown_values_are_omitted(usage: Usage | None, timing: Timing, line: str) -> None:
    assert usage_line(make_answer(usage, timing)) == line


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        ("0", "$0.00"),
        ("0.0123456", "$0.012"),
        ("0.00009876", "$0.000099"),
        ("0.25", "$0.25"),
        ("12.345", "$12.34"),
    ],
)
def test_a_known_cost_is_shown_with_at_least_two_significant_digits(cost: str, text: str) -> None:
    line = usage_line(make_answer(Usage(31, 11), QUICK, Decimal(cost)))
    assert line == f"31 in · 11 out · {text} · first token 250 ms · 10 tokens/s"
