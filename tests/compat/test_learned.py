"""What is remembered of gateways and models."""

from __future__ import annotations

from tollbridge.compat.profiles import MODEL_LIMIT, CompatMemory, LearnedQuirks
from tollbridge.types.quirks import Quirks


def test_lessons_are_kept_for_one_model_at_one_gateway() -> None:
    lessons = CompatMemory()
    learned = LearnedQuirks(Quirks(images=False))
    lessons.learn("http://here", "m", learned)
    assert lessons.recall("http://here", "m") == learned
    assert lessons.recall("http://here", "n") == lessons.recall("http://there", "m") == LearnedQuirks()


def test_the_oldest_are_forgotten() -> None:
    lessons = CompatMemory()
    learned = LearnedQuirks(Quirks(images=False))
    for number in range(MODEL_LIMIT + 1):
        lessons.learn("http://here", str(number), learned)
    assert lessons.recall("http://here", "0") == LearnedQuirks()
    assert lessons.recall("http://here", str(MODEL_LIMIT)) == learned


def test_a_profile_is_where_learning_begins_and_may_know_nothing() -> None:
    told = {"m": Quirks(files=False)}
    lessons = CompatMemory(lambda _url, model: told.get(model))
    assert lessons.recall("u", "m") == LearnedQuirks(Quirks(files=False))
    assert lessons.recall("u", "n") == LearnedQuirks()
    more = LearnedQuirks(Quirks(files=False, images=False))
    lessons.learn("u", "m", more)
    assert lessons.recall("u", "m") == more


def test_a_profile_that_is_written_meanwhile_counts_at_once() -> None:
    told: dict[str, Quirks] = {}
    lessons = CompatMemory(lambda _url, model: told.get(model))
    lessons.learn("u", "m", LearnedQuirks(Quirks(images=False)))
    assert lessons.recall("u", "m") == LearnedQuirks(Quirks(images=False))
    told["m"] = Quirks(system="system")
    assert lessons.recall("u", "m") == LearnedQuirks(Quirks(system="system"))
