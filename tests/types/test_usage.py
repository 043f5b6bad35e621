"""Token usage: unknown is not zero, and nothing is counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.usage import Usage

COUNTS = st.none() | st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (Usage(), False),
        (Usage(0, 0, 0), False),
        (Usage(0, 0, 0, 0, 0), False),
        (Usage(7, 0), True),
        (Usage(None, 7), True),
        (Usage(total_tokens=7), True),
    ],
)
def test_usage_of_only_zeros_is_unknown(usage: Usage, known: bool) -> None:
    assert usage.known is known


def test_adding_an_unknown_count_keeps_the_known_one() -> None:
    assert Usage(3, None, None, 1) + Usage(4, 5, 9) == Usage(7, 5, 9, 1, None)


def test_usage_converts_to_a_dict_with_all_counts() -> None:
    assert Usage(7, 0, None, 1).to_dict() == {
        "input_tokens": 7,
        "output_tokens": 0,
        "total_tokens": None,
        "cached_tokens": 1,
        "reasoning_tokens": None,
        "cache_write_tokens": None,
        "long_cache_write_tokens": None,
        "images": None,
        "web_searches": None,
    }


def test_unknown_stays_unknown() -> None:
    assert Usage() + Usage() == Usage()


def test_a_missing_total_is_computed_before_adding() -> None:
    assert (Usage(3, 4) + Usage(10, 10, 20)).total_tokens == 27


def test_cached_and_reasoning_tokens_are_not_added_to_the_total() -> None:
    assert (Usage(10, 5, 15, 8, 4) + Usage(1, 1, None, 1, 1)).total_tokens == 17


@given(USAGES, USAGES)
def test_the_order_of_adding_does_not_matter(one: Usage, other: Usage) -> None:
    assert one + other == other + one
