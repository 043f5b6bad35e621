from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.compat.known_servers import known_quirks
from tollbridge.compat.profiles import (
    UnreadableProfile,
    apply_findings,
    find_quirks,
    load_profile,
    profile_file,
    profile_folder,
    save_profile,
)
from tollbridge.types.quirks import Quirks

URL = "http://127.0.0.1:4000/v1"
FINDINGS = Quirks(
    system="system",
    calls=False,
    images=False,
    without=frozenset({"temperature", "store"}),
    input_tokens=False,
)


def test_a_saved_profile_can_be_loaded(tmp_path: Path) -> None:
    path = save_profile(URL, "m", FINDINGS, ["Seen\nby us"], tmp_path)
    assert path.parent == tmp_path
    profile = load_profile(URL + "/", tmp_path)
    assert profile is not None
    assert profile.quirks_for("m") == FINDINGS
    assert path.read_text().startswith("# Seen by us\nbase_url = ")


def test_quirks_of_one_model_do_not_affect_another(tmp_path: Path) -> None:
    save_profile(URL, "text-only", FINDINGS, folder=tmp_path)
    save_profile(URL, "vision", Quirks(system="system"), folder=tmp_path)
    profile = load_profile(URL, tmp_path)
    assert profile is not None
    images = [profile.quirks_for(model).images for model in ("text-only", "vision", "other")]
    assert images == [False, True, True]
    # The second examination found that the server accepts `store`.
    assert profile.quirks_for("text-only").without == {"temperature"}


def test_two_base_urls_never_share_a_file(tmp_path: Path) -> None:
    assert profile_file("http://a/v1", tmp_path) != profile_file("https://a/v1", tmp_path)
    assert profile_file("http://a/v1", tmp_path) == profile_file("http://a/v1/", tmp_path)
    assert profile_file("http://../../v1", tmp_path).parent == tmp_path


@given(model=st.text(min_size=1, max_size=40))
def test_a_model_may_have_any_name(model: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    save_profile(URL, model, FINDINGS, folder=folder)
    profile = load_profile(URL, folder)
    assert profile is not None
    assert profile.quirks_for(model).images is False


def test_server_quirks_apply_to_all_models(tmp_path: Path) -> None:
    save_profile(URL, "m", FINDINGS, folder=tmp_path)
    profile = load_profile(URL, tmp_path)
    assert profile is not None
    other = profile.quirks_for("other")
    assert other == Quirks(
        system="system", calls=False, without=frozenset({"store"}), input_tokens=False
    )  # images are allowed


def test_a_saved_profile_overrides_the_shipped_one(tmp_path: Path) -> None:
    url = "http://localhost:11434/v1"
    shipped = find_quirks(url, "m", tmp_path)
    assert shipped is not None
    assert shipped.without == {"include"}
    save_profile(url, "m", Quirks(), folder=tmp_path)
    assert find_quirks(url, "m", tmp_path) == Quirks()


def test_findings_for_one_model_do_not_override_the_shipped_profile_of_others(tmp_path: Path) -> None:
    url = "http://localhost:8000/v1"
    assert find_quirks(url, "m", tmp_path, owners={"vllm"}) == known_quirks("vLLM")
    save_profile(url, "m", Quirks(system="instructions", input_tokens=True), folder=tmp_path)
    assert find_quirks(url, "m", tmp_path, owners={"vllm"}) == Quirks(system="instructions")
    assert find_quirks(url, "other", tmp_path, owners={"vllm"}) == Quirks(
        system="instructions", input_tokens=True, reasoning=False, without=frozenset({"include"})
    )


def test_an_edited_profile_overrides_the_shipped_one_for_all_models(tmp_path: Path) -> None:
    url = "http://localhost:8000/v1"
    profile_file(url, tmp_path).write_text("reasoning = true\n[models.m]\nimages = false\n")
    quirks = find_quirks(url, "m", tmp_path, owners={"vllm"})
    assert quirks == apply_findings(known_quirks("vLLM"), {"reasoning": True, "images": False})


def test_an_unknown_server_has_no_profile(tmp_path: Path) -> None:
    assert find_quirks("https://example.com/v1", "m", tmp_path) is None


@pytest.mark.parametrize(
    "text",
    ["system = 'emperor'", "colour = 'red'", "nonsense", "[models.m]\nimages = 3", "\xff", "models = 1"],
)
def test_an_invalid_profile_is_reported_with_its_path(text: str, tmp_path: Path) -> None:
    path = profile_file(URL, tmp_path)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableProfile) as caught:
        load_profile(URL, tmp_path)
    assert str(path) in caught.value.message
    save_profile(URL, "m", FINDINGS, folder=tmp_path)  # doctor overwrites it
    assert load_profile(URL, tmp_path) is not None


def test_a_profile_that_is_a_folder_is_reported(tmp_path: Path) -> None:
    profile_file(URL, tmp_path).mkdir()
    with pytest.raises(UnreadableProfile, match="cannot be read"):
        load_profile(URL, tmp_path)


def test_the_profile_folder_is_in_the_data_directory(tmp_path: Path) -> None:
    assert profile_folder({"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) == tmp_path / "profiles"
    assert profile_folder({}).name == "profiles"
