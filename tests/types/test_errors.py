"""The exception classes: every kind has a class, and errors can be compared and copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import get_args

import pytest

from tollbridge.types import errors
from tollbridge.types.errors import BridgeError, ContextTooLong, Kind, NetworkFailed, RateLimited, TimedOut


def tree(root: type[BridgeError] = BridgeError) -> Iterator[type[BridgeError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


CLASSES = [cls for cls in tree() if cls.__module__ == errors.__name__]


def test_every_kind_has_a_class() -> None:
    assert {cls.kind for cls in CLASSES} == set(get_args(Kind))


def test_the_module_docstring_lists_every_class() -> None:
    assert errors.__doc__ is not None
    assert [cls.__name__ for cls in CLASSES if cls.__name__ not in errors.__doc__] == []


def test_only_errors_that_can_pass_are_transient() -> None:
    assert {cls.__name__ for cls in CLASSES if cls.transient} == {
        *("RateLimited", "Overloaded", "ServerFailed"),
        *("ConnectionBroken", "NetworkFailed", "TimedOut", "Disconnected"),
    }


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_keeps_its_fields_when_copied_or_pickled(cls: type[BridgeError]) -> None:
    error = cls("No.", status=400, code="c", request_id="r", retry_after=1.5)
    for twin in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is cls
        assert str(twin) == twin.message == "No."
        assert (twin.status, twin.code, twin.request_id, twin.retry_after) == (400, "c", "r", 1.5)
        assert twin == error
        assert hash(twin) == hash(error)


def test_errors_are_equal_only_if_all_fields_are() -> None:
    assert RateLimited("No.", retry_after=1) != RateLimited("No.", retry_after=2)
    assert NetworkFailed("No.") != TimedOut("No.")
    assert BridgeError("No.") != Exception("No.")


def test_the_token_numbers_are_part_of_the_comparison() -> None:
    error = ContextTooLong("Too long.", tokens=9031, limit=2048)
    assert error == pickle.loads(pickle.dumps(error))
    assert error != ContextTooLong("Too long.", tokens=1, limit=2048)
    assert error != ContextTooLong("Too long.")
