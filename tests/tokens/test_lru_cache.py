"""A cache of two generations."""

from __future__ import annotations

from tollbridge.tokens.tokenizers import LruCache


def test_what_is_asked_for_stays_and_the_rest_goes() -> None:
    recent: LruCache[int, str] = LruCache(10)
    recent.put(-1, "kept")
    for number in range(100):
        recent.put(number, "new")
        assert recent.get(-1) == "kept"
    assert recent.get(0) is None
    assert recent.get(99) == "new"


def test_it_never_holds_more_than_two_generations() -> None:
    recent: LruCache[int, str] = LruCache(1000)
    for number in range(10_000):
        recent.put(number, "x", weight=100)
    assert sum(recent.get(number) is not None for number in range(10_000)) <= 20


def test_it_can_be_emptied() -> None:
    recent: LruCache[int, str] = LruCache(10)
    recent.put(1, "one")
    recent.clear()
    assert recent.get(1) is None


def test_what_was_asked_for_again_keeps_its_weight() -> None:
    recent: LruCache[int, str] = LruCache(10)
    recent.put(1, "one", weight=6)
    recent.put(2, "two", weight=6)  # one is old now
    assert recent.get(1) == "one"  # and young again: two is old
    recent.put(3, "three", weight=6)
    assert recent.get(2) is None
