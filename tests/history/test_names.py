"""Tool names and call ids that every provider accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollbridge.history.names import CallIds, Names, is_valid_name

NAMES = st.text(max_size=80) | st.sampled_from(["a b", "a_b", "a/b", "a" * 70, "a" * 71, ""])


@given(st.lists(NAMES, max_size=12))
def test_any_names_are_mapped_to_distinct_valid_names_and_back(names: list[str]) -> None:
    mapping = Names(names)
    sent = {name: mapping.out(name) for name in names}
    assert all(map(is_valid_name, sent.values()))
    assert len(set(sent.values())) == len(set(names))
    assert all(mapping.back(out) == name for name, out in sent.items())
    assert all(sent[name] == name for name in names if is_valid_name(name))


def test_a_name_is_always_mapped_to_the_same_name() -> None:
    assert Names(["read file"]).out("read file") == Names(["x", "read file", "y"]).out("read file")


def test_an_unknown_name_is_not_changed() -> None:
    assert Names(["read file"]).back("write_file") == "write_file"


@given(st.lists(NAMES, max_size=12))
def test_assigned_ids_are_unique_and_valid(ids: list[str]) -> None:
    call_ids = CallIds(ids)
    assigned = [call_ids.assign(id_) for id_ in ids]
    assert len(set(assigned)) == len(ids)
    assert all(map(is_valid_name, assigned))


def test_the_first_call_keeps_a_valid_id() -> None:
    ids = CallIds(["call_0", "call_0"])
    assert ids.assign("call_0") == "call_0"
    assert ids.assign("call_0") != "call_0"
