"""The cache with two generations."""

from __future__ import annotations

from tollbridge.tokens.tokenizers import LruCache


def test_values_that_are_used_stay_and_others_are_dropped() -> None:
    cache: LruCache[int, str] = LruCache(10)
    cache.put(-1, "kept")
    for number in range(100):
        cache.put(number, "new")
        assert cache.get(-1) == "kept"
    assert cache.get(0) is None
    assert cache.get(99) == "new"


def test_it_never_holds_more_than_two_generations() -> None:
    cache: LruCache[int, str] = LruCache(1000, weigh=lambda _key, _value: 100)
    for number in range(10_000):
        cache.put(number, "x")
    assert sum(cache.get(number) is not None for number in range(10_000)) <= 20


def test_it_can_be_emptied() -> None:
    cache: LruCache[int, str] = LruCache(10)
    cache.put(1, "one")
    cache.clear()
    assert cache.get(1) is None


def test_a_value_that_is_used_again_keeps_its_weight() -> None:
    cache: LruCache[int, str] = LruCache(10, weigh=lambda _key, _value: 6)
    cache.put(1, "one")
    cache.put(2, "two")  # moves 1 to the older generation
    assert cache.get(1) == "one"  # moves 1 to the newer generation, and 2 to the older
    cache.put(3, "three")
    assert cache.get(2) is None


def test_the_newer_generation_has_what_was_put_or_used_last() -> None:
    cache: LruCache[int, str] = LruCache(2)
    cache.put(1, "one")
    cache.put(2, "two")
    cache.put(3, "three")  # moves 1 and 2 to the older generation
    assert cache.recent == {3: "three"}
    assert cache.get(1) == "one"
    assert cache.recent == {3: "three", 1: "one"}
