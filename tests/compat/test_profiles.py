from __future__ import annotations

import msgspec
import pytest

from tollbridge.compat.profiles import SERVER_QUIRKS, Profile, apply_findings
from tollbridge.types.quirks import Quirks


def test_the_quirks_of_a_model_extend_those_of_its_server() -> None:
    server = Profile(Quirks(system="system", without=frozenset({"store"})), {"small": {"images": False}})
    assert server.quirks_for("large") == server.quirks
    assert server.quirks_for("small") == Quirks(system="system", images=False, without=frozenset({"store"}))


def test_a_field_is_omitted_if_the_server_or_the_model_requires_it() -> None:
    server = Profile(Quirks(without=frozenset({"store"})), {"m": {"without": ["temperature", "store"]}})
    assert server.quirks_for("m").without == {"store", "temperature"}


def test_findings_are_split_between_the_server_and_the_model() -> None:
    findings = Quirks(calls=False, files=False, without=frozenset({"store", "top_p"}), tools_as="nested")
    profile = Profile.from_findings("m", findings)
    assert profile.quirks_for("m") == findings
    assert profile.quirks_for("other") == Quirks(calls=False, without=frozenset({"store"}), tools_as="nested")


def test_an_invalid_field_is_rejected() -> None:
    with pytest.raises(msgspec.ValidationError, match="system"):
        apply_findings(Quirks(), {"system": "emperor"})
    with pytest.raises(msgspec.ValidationError, match="colour"):
        apply_findings(Quirks(), {"colour": "red"})


def test_the_server_quirks_are_fields_of_quirks() -> None:
    assert set(Quirks.__struct_fields__) >= SERVER_QUIRKS
