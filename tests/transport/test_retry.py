"""When to try again, with the dice fixed."""

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
    """Dice that fall on one share of the range."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


@pytest.mark.parametrize(
    "kind", [RateLimited, Overloaded, ServerFailed, NetworkFailed, TimedOut, Disconnected]
)
def test_what_may_pass_is_tried_again(kind: type[BridgeError]) -> None:
    assert POLICY.wait(kind("No."), 1, random.Random(1)) is not None


@pytest.mark.parametrize(
    "kind",
    [
        *(NotAuthenticated, NotPermitted, NotFound, ContextTooLong, ContentFiltered, InvalidRequest),
        *(RequestError, StreamError),
    ],
)
def test_what_will_not_pass_is_told_at_once(kind: type[BridgeError]) -> None:
    assert POLICY.wait(kind("No."), 1, random.Random(1)) is None


def test_an_empty_purse_does_not_fill_by_asking() -> None:
    assert POLICY.wait(RateLimited("No.", code="insufficient_quota"), 1, random.Random(1)) is None


def test_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(attempts=9, first=1.0, longest=10.0)
    most = [policy.wait(ServerFailed("No."), failed, Always(1.0)) for failed in range(1, 10)]
    assert most == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, None]
    least = [policy.wait(ServerFailed("No."), failed, Always(0.0)) for failed in range(1, 5)]
    assert least == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(("asked", "wait"), [(0.0, 0.0), (3.5, 3.5), (10.0, 10.0), (10.1, None)])
def test_a_wait_that_is_asked_for_is_kept_to_the_second_or_told(asked: float, wait: float | None) -> None:
    assert POLICY.wait(RateLimited("No.", retry_after=asked), 1, random.Random(1)) == wait


def test_attempts_count_the_first() -> None:
    assert RetryPolicy(attempts=1).wait(ServerFailed("No."), 1, random.Random(1)) is None
    assert POLICY.wait(RateLimited("No.", retry_after=0), 4, random.Random(1)) is None


@given(st.integers(1, 50), st.integers())
def test_no_wait_is_longer_than_the_longest(failed: int, seed: int) -> None:
    wait = RetryPolicy(attempts=100).wait(ServerFailed("No."), failed, random.Random(seed))
    assert wait is not None
    assert 0 < wait <= RetryPolicy().longest
