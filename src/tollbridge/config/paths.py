"""Where Tollbridge keeps things on this machine, each in the system's own place for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs import PlatformDirs


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The settings file: `TOLLBRIDGE_CONFIG`, or `config.toml` in the place for settings."""
    return _chosen(environment, "TOLLBRIDGE_CONFIG") or _places().user_config_path / "config.toml"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """What can be fetched again: `TOLLBRIDGE_CACHE_DIR`, or the place for caches."""
    return _chosen(environment, "TOLLBRIDGE_CACHE_DIR") or _places().user_cache_path


def catalog_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The lists of models: `TOLLBRIDGE_CATALOGUE_DIR`, or among what can be fetched again."""
    return _chosen(environment, "TOLLBRIDGE_CATALOGUE_DIR") or cache_folder(environment) / "catalogue"


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """What was measured and learned: `TOLLBRIDGE_DATA_DIR`, or the place for data."""
    return _chosen(environment, "TOLLBRIDGE_DATA_DIR") or _places().user_data_path


def database_file(environment: Mapping[str, str] = os.environ) -> Path:
    return data_folder(environment) / "tollbridge.db"


def _chosen(environment: Mapping[str, str], variable: str) -> Path | None:
    chosen = environment.get(variable)
    return Path(chosen) if chosen else None


def _places() -> PlatformDirs:
    # Not at the top: an editor that says where things are never needs it.
    from platformdirs import PlatformDirs

    return PlatformDirs("tollbridge", appauthor=False)
