from __future__ import annotations

import msgspec
import pytest

from tollbridge.core.profile import OF_MODELS, STANDARD, Profile


def test_the_profile_of_a_model_is_the_servers_with_its_own_fields() -> None:
    server = Profile(system="system", leave_out=("metadata",), models={"small": {"images": False}})
    assert server.of("large") == server
    small = server.of("small")
    assert (small.system, small.images, small.leave_out) == ("system", False, ("metadata",))


def test_what_either_leaves_out_is_left_out() -> None:
    server = Profile(leave_out=("metadata", "store"), models={"m": {"leave_out": ["temperature", "store"]}})
    assert server.of("m").leave_out == ("metadata", "store", "temperature")


def test_a_field_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="system"):
        STANDARD.learned({"system": "emperor"})
    with pytest.raises(msgspec.ValidationError, match="colour"):
        STANDARD.learned({"colour": "red"})


def test_what_depends_on_models_are_fields_of_a_profile() -> None:
    assert set(Profile.__struct_fields__) >= OF_MODELS
