"""The paths of files: from an environment variable, or in a platform directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs
import pytest
from platformdirs.windows import Windows

from tollbridge.config import schema

VARIABLES = {
    "TOLLBRIDGE_CONFIG": schema.config_file,
    "TOLLBRIDGE_CACHE_DIR": schema.cache_folder,
    "TOLLBRIDGE_CATALOGUE_DIR": schema.catalog_folder,
    "TOLLBRIDGE_DATA_DIR": schema.data_folder,
}


@pytest.mark.parametrize(("variable", "find"), VARIABLES.items())
def test_an_environment_variable_overrides_a_path(
    variable: str, find: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    assert find({variable: str(tmp_path)}) == tmp_path
    assert find({variable: ""}) == find({})


@pytest.mark.parametrize("find", [schema.cache_folder, schema.data_folder])
def test_on_windows_paths_contain_the_name_tollbridge_once(
    find: Callable[[Mapping[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda _: "C:\\Users\\me\\AppData\\Local")
    assert str(find({})).count("tollbridge") == 1
