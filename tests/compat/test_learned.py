"""Quirks learned at run time, by gateway and model."""

from __future__ import annotations

from tollbridge.compat.lessons import MODEL_LIMIT, CompatMemory
from tollbridge.types.quirks import LearnedQuirks, Quirks


def test_quirks_are_stored_per_gateway_and_model() -> None:
    memory = CompatMemory()
    learned = LearnedQuirks(Quirks(images=False))
    memory.learn("http://here", "m", learned)
    assert memory.recall("http://here", "m") == learned
    assert memory.recall("http://here", "n") == memory.recall("http://there", "m") == LearnedQuirks()


def test_the_oldest_models_are_dropped() -> None:
    memory = CompatMemory()
    learned = LearnedQuirks(Quirks(images=False))
    for number in range(MODEL_LIMIT + 1):
        memory.learn("http://here", str(number), learned)
    assert memory.recall("http://here", "0") == LearnedQuirks()
    assert memory.recall("http://here", str(MODEL_LIMIT)) == learned


def test_a_profile_provides_the_initial_quirks_if_there_is_one() -> None:
    profiles = {"m": Quirks(files=False)}
    memory = CompatMemory(lambda _url, model: profiles.get(model))
    assert memory.recall("u", "m") == LearnedQuirks(Quirks(files=False))
    assert memory.recall("u", "n") == LearnedQuirks()
    more = LearnedQuirks(Quirks(files=False, images=False))
    memory.learn("u", "m", more)
    assert memory.recall("u", "m") == more


def test_a_new_profile_takes_effect_immediately() -> None:
    profiles: dict[str, Quirks] = {}
    memory = CompatMemory(lambda _url, model: profiles.get(model))
    memory.learn("u", "m", LearnedQuirks(Quirks(images=False)))
    assert memory.recall("u", "m") == LearnedQuirks(Quirks(images=False))
    profiles["m"] = Quirks(system="system")
    assert memory.recall("u", "m") == LearnedQuirks(Quirks(system="system"))
