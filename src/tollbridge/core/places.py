"""Where Tollbridge keeps things on this machine, each in the system's own place for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_NAME = "tollbridge"


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The settings file: `TOLLBRIDGE_CONFIG`, or `config.toml` in the place for settings."""
    chosen = environment.get("TOLLBRIDGE_CONFIG")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_config_path(_NAME, appauthor=False) / "config.toml"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """What can be fetched again: `TOLLBRIDGE_CACHE_DIR`, or the place for caches."""
    chosen = environment.get("TOLLBRIDGE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_cache_path(_NAME)


def catalogue_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The lists of models: `TOLLBRIDGE_CATALOGUE_DIR`, or among what can be fetched again."""
    chosen = environment.get("TOLLBRIDGE_CATALOGUE_DIR")
    return Path(chosen) if chosen else cache_folder(environment) / "catalogue"


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """What was measured and learned: `TOLLBRIDGE_DATA_DIR`, or the place for data."""
    chosen = environment.get("TOLLBRIDGE_DATA_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_data_path(_NAME, appauthor=False)


def database_file(environment: Mapping[str, str] = os.environ) -> Path:
    return data_folder(environment) / "tollbridge.db"
