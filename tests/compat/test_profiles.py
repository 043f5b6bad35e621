from __future__ import annotations

import msgspec
import pytest

from tollbridge.compat.profiles import OF_SERVERS, Profile, apply_findings
from tollbridge.types.quirks import Quirks


def test_the_quirks_of_a_model_are_the_servers_with_its_own() -> None:
    server = Profile(Quirks(system="system", without=frozenset({"store"})), {"small": {"images": False}})
    assert server.of("large") == server.quirks
    assert server.of("small") == Quirks(system="system", images=False, without=frozenset({"store"}))


def test_what_either_leaves_out_is_left_out() -> None:
    server = Profile(Quirks(without=frozenset({"store"})), {"m": {"without": ["temperature", "store"]}})
    assert server.of("m").without == {"store", "temperature"}


def test_what_was_measured_is_shared_out_and_together_is_whole() -> None:
    found = Quirks(calls=False, files=False, without=frozenset({"store", "top_p"}), tools_as="nested")
    profile = Profile.measured("m", found)
    assert profile.of("m") == found
    assert profile.of("other") == Quirks(calls=False, without=frozenset({"store"}), tools_as="nested")


def test_a_field_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="system"):
        apply_findings(Quirks(), {"system": "emperor"})
    with pytest.raises(msgspec.ValidationError, match="colour"):
        apply_findings(Quirks(), {"colour": "red"})


def test_what_depends_on_servers_are_quirks() -> None:
    assert set(Quirks.__struct_fields__) >= OF_SERVERS
