"""Where things are kept: where the person says, or in the system's places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs
import pytest
from platformdirs.windows import Windows

from tollbridge.config import paths as places

VARIABLES = {
    "TOLLBRIDGE_CONFIG": places.config_file,
    "TOLLBRIDGE_CACHE_DIR": places.cache_folder,
    "TOLLBRIDGE_CATALOGUE_DIR": places.catalog_folder,
    "TOLLBRIDGE_DATA_DIR": places.data_folder,
}


@pytest.mark.parametrize(("variable", "find"), VARIABLES.items())
def test_a_place_is_the_one_that_was_chosen(
    variable: str, find: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    assert find({variable: str(tmp_path)}) == tmp_path
    assert find({variable: ""}) == find({})


@pytest.mark.parametrize("find", [places.cache_folder, places.data_folder])
def test_on_windows_no_place_has_a_second_folder_of_our_name(
    find: Callable[[Mapping[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda _: "C:\\Users\\me\\AppData\\Local")
    assert str(find({})).count("tollbridge") == 1
