from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.compat.profiles import (
    UnreadableProfile,
    apply_findings,
    find_quirks,
    known_quirks,
    load_profile,
    profile_file,
    profile_folder,
    save_profile,
)
from tollbridge.types.quirks import Quirks

URL = "http://127.0.0.1:4000/v1"
FOUND = Quirks(
    system="system",
    calls=False,
    images=False,
    without=frozenset({"temperature", "store"}),
    input_tokens=False,
)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = save_profile(URL, "m", FOUND, ["Seen\nby us"], tmp_path)
    assert path.parent == tmp_path
    kept = load_profile(URL + "/", tmp_path)
    assert kept is not None
    assert kept.of("m") == FOUND
    assert path.read_text().startswith("# Seen by us\nbase_url = ")


def test_what_a_model_does_not_take_another_may(tmp_path: Path) -> None:
    save_profile(URL, "blind", FOUND, folder=tmp_path)
    save_profile(URL, "seeing", Quirks(system="system"), folder=tmp_path)
    kept = load_profile(URL, tmp_path)
    assert kept is not None
    assert [kept.of(model).images for model in ("blind", "seeing", "other")] == [False, True, True]
    assert kept.of("blind").without == {"temperature"}  # the second time, `store` was taken


def test_two_base_urls_never_share_a_file(tmp_path: Path) -> None:
    assert profile_file("http://a/v1", tmp_path) != profile_file("https://a/v1", tmp_path)
    assert profile_file("http://a/v1", tmp_path) == profile_file("http://a/v1/", tmp_path)
    assert profile_file("http://../../v1", tmp_path).parent == tmp_path


@given(model=st.text(min_size=1, max_size=40))
def test_a_model_may_be_called_anything(model: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    save_profile(URL, model, FOUND, folder=folder)
    kept = load_profile(URL, folder)
    assert kept is not None
    assert kept.of(model).images is False


def test_what_the_server_refuses_is_refused_to_all_its_models(tmp_path: Path) -> None:
    save_profile(URL, "m", FOUND, folder=tmp_path)
    kept = load_profile(URL, tmp_path)
    assert kept is not None
    other = kept.of("other")
    assert other == Quirks(
        system="system", calls=False, without=frozenset({"store"}), input_tokens=False
    )  # and images are worth a try


def test_what_was_measured_wins_over_what_is_known(tmp_path: Path) -> None:
    url = "http://localhost:11434/v1"
    known = find_quirks(url, "m", tmp_path)
    assert known is not None
    assert known.without == {"include"}
    save_profile(url, "m", Quirks(), folder=tmp_path)
    assert find_quirks(url, "m", tmp_path) == Quirks()


def test_what_was_measured_with_one_model_leaves_what_is_known_of_the_others(tmp_path: Path) -> None:
    url = "http://localhost:8000/v1"
    assert find_quirks(url, "m", tmp_path, owners={"vllm"}) == known_quirks("vLLM")
    save_profile(url, "m", Quirks(system="instructions", input_tokens=True), folder=tmp_path)
    assert find_quirks(url, "m", tmp_path, owners={"vllm"}) == Quirks(system="instructions")
    assert find_quirks(url, "other", tmp_path, owners={"vllm"}) == Quirks(
        system="instructions", input_tokens=True, reasoning=False, without=frozenset({"include"})
    )


def test_what_a_person_writes_for_all_models_wins_over_what_is_known(tmp_path: Path) -> None:
    url = "http://localhost:8000/v1"
    profile_file(url, tmp_path).write_text("reasoning = true\n[models.m]\nimages = false\n")
    found = find_quirks(url, "m", tmp_path, owners={"vllm"})
    assert found == apply_findings(known_quirks("vLLM"), {"reasoning": True, "images": False})


def test_of_a_server_nobody_knows_there_is_no_profile(tmp_path: Path) -> None:
    assert find_quirks("https://example.com/v1", "m", tmp_path) is None


@pytest.mark.parametrize(
    "text",
    ["system = 'emperor'", "colour = 'red'", "nonsense", "[models.m]\nimages = 3", "\xff", "models = 1"],
)
def test_a_file_that_makes_no_sense_is_named(text: str, tmp_path: Path) -> None:
    path = profile_file(URL, tmp_path)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableProfile) as caught:
        load_profile(URL, tmp_path)
    assert str(path) in caught.value.message
    save_profile(URL, "m", FOUND, folder=tmp_path)  # doctor writes it anew
    assert load_profile(URL, tmp_path) is not None


def test_a_folder_in_its_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    profile_file(URL, tmp_path).mkdir()
    with pytest.raises(UnreadableProfile, match="cannot be read"):
        load_profile(URL, tmp_path)


def test_the_folder_is_where_the_environment_says(tmp_path: Path) -> None:
    assert profile_folder({"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) == tmp_path / "profiles"
    assert profile_folder({}).name == "profiles"
