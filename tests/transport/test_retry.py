"""The retry policy, with fixed random numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import (
    BridgeError,
    ContentFiltered,
    ContextTooLong,
    Disconnected,
    InvalidRequest,
    NetworkFailed,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Overloaded,
    RateLimited,
    RequestError,
    ServerFailed,
    StreamError,
    TimedOut,
)

POLICY = RetryPolicy(attempts=4, first=1.0, longest=10.0)


class Always(random.Random):
    """A random generator that always returns the same share of the range."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


@pytest.mark.parametrize(
    "kind", [RateLimited, Overloaded, ServerFailed, NetworkFailed, TimedOut, Disconnected]
)
def test_transient_errors_are_retried(kind: type[BridgeError]) -> None:
    assert POLICY.wait(kind("No."), 1, random.Random(1)) is not None


@pytest.mark.parametrize(
    "kind",
    [
        *(NotAuthenticated, NotPermitted, NotFound, ContextTooLong, ContentFiltered, InvalidRequest),
        *(RequestError, StreamError),
    ],
)
def test_permanent_errors_are_not_retried(kind: type[BridgeError]) -> None:
    assert POLICY.wait(kind("No."), 1, random.Random(1)) is None


def test_an_exhausted_quota_is_not_retried() -> None:
    assert POLICY.wait(RateLimited("No.", code="insufficient_quota"), 1, random.Random(1)) is None


def test_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=9, first=1.0, longest=10.0)
    longest = [policy.wait(ServerFailed("No."), failed, Always(1.0)) for failed in range(1, 10)]
    assert longest == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, None]
    shortest = [policy.wait(ServerFailed("No."), failed, Always(0.0)) for failed in range(1, 5)]
    assert shortest == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(("seconds", "wait"), [(0.0, 0.0), (3.5, 3.5), (10.0, 10.0), (10.1, None)])
def test_retry_after_is_used_unless_it_is_too_long(seconds: float, wait: float | None) -> None:
    assert POLICY.wait(RateLimited("No.", retry_after=seconds), 1, random.Random(1)) == wait


def test_the_number_of_attempts_includes_the_first() -> None:
    assert RetryPolicy(attempts=1).wait(ServerFailed("No."), 1, random.Random(1)) is None
    assert POLICY.wait(RateLimited("No.", retry_after=0), 4, random.Random(1)) is None


@given(st.integers(1, 50), st.integers())
def test_no_delay_exceeds_the_longest(failed: int, seed: int) -> None:
    wait = RetryPolicy(attempts=100).wait(ServerFailed("No."), failed, random.Random(seed))
    assert wait is not None
    assert 0 < wait <= RetryPolicy().longest
