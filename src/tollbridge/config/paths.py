"""The paths of Tollbridge's files: chosen by an environment variable, or a platform directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs import PlatformDirs


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the settings file: `TOLLBRIDGE_CONFIG`, or `config.toml` in the configuration directory."""
    return _path_from(environment, "TOLLBRIDGE_CONFIG") or _platform_dirs().user_config_path / "config.toml"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for downloaded data: `TOLLBRIDGE_CACHE_DIR`, or the cache directory."""
    return _path_from(environment, "TOLLBRIDGE_CACHE_DIR") or _platform_dirs().user_cache_path


def catalog_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for cached model lists: `TOLLBRIDGE_CATALOGUE_DIR`, or `catalogue` in the cache."""
    return _path_from(environment, "TOLLBRIDGE_CATALOGUE_DIR") or cache_folder(environment) / "catalogue"


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for measured and learned data: `TOLLBRIDGE_DATA_DIR`, or the data directory."""
    return _path_from(environment, "TOLLBRIDGE_DATA_DIR") or _platform_dirs().user_data_path


def database_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the SQLite database in the data folder."""
    return data_folder(environment) / "tollbridge.db"


def _path_from(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable)
    return Path(value) if value else None


def _platform_dirs() -> PlatformDirs:
    # Imported here to save start-up time: if every path comes from the environment, it is not needed.
    from platformdirs import PlatformDirs

    return PlatformDirs("tollbridge", appauthor=False)
