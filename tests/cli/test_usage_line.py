from __future__ import annotations

from decimal import Decimal

import pytest

from tollbridge.cli.screen import Timing, usage_line
from tollbridge.types.events import Usage

SHORT = Timing(first_token=2.0, total=2.01)
QUICK = Timing(first_token=0.25, total=1.25)


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
            Timing(first_token=2.0, total=2.01),
            "5 in · 20 out · first token 2.0 s · total 2.0 s",
        ),
        (None, Timing(first_token=None, total=0.5), "total 500 ms"),
    ],
)
def test_unknown_values_are_omitted(usage: Usage | None, timing: Timing, line: str) -> None:
    assert usage_line(usage, timing) == line


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
    line = usage_line(Usage(31, 11), QUICK, Decimal(cost))
    assert line == f"31 in · 11 out · {text} · first token 250 ms · 10 tokens/s"
