"""The paths of files: from an environment variable, or in a platform directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs
import pytest
from platformdirs.windows import Windows

from tollbridge.transport import files

VARIABLES = {
    "TOLLBRIDGE_CONFIG": files.config_file,
    "TOLLBRIDGE_CACHE_DIR": files.cache_folder,
    "TOLLBRIDGE_CATALOG_DIR": files.catalog_folder,
    "TOLLBRIDGE_DATA_DIR": files.data_folder,
}


@pytest.mark.parametrize(("variable", "find"), VARIABLES.items())
def test_an_environment_variable_overrides_a_path(
    variable: str, find: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    assert find({variable: str(tmp_path)}) == tmp_path
    assert find({variable: ""}) == find({})


@pytest.mark.parametrize("find", [files.cache_folder, files.data_folder])
def test_on_windows_paths_contain_the_name_tollbridge_once(
    find: Callable[[Mapping[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda _: "C:\\Users\\me\\AppData\\Local")
    assert str(find({})).count("tollbridge") == 1
