"""A few inputs of the fuzz program. `make fuzz` runs a million."""

from __future__ import annotations

import pytest

from tests.fuzz import Problem, Random, fuzz, make_targets, mutate
from tollbridge.protocols.openresponses.items import MediaEmitter

COUNT = 3_000


def test_no_mutated_recording_raises() -> None:
    done = fuzz(COUNT, seed=2)
    assert sum(done.values()) == COUNT
    assert set(done) == set(make_targets())


def test_an_input_depends_only_on_its_seed_and_number() -> None:
    corpus = make_targets()["openresponses stream"].corpus
    inputs = [[mutate(corpus, Random(f"3:{number}")) for number in range(200)] for _ in range(2)]
    assert inputs[0] == inputs[1]
    assert len(set(inputs[0])) > 100


def test_an_exception_that_a_guard_hides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    monkeypatch.setattr(MediaEmitter, "emit_sources", fail)
    with pytest.raises(Problem, match=r"LookupError.*--first"):
        fuzz(COUNT)
