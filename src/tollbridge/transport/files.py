"""Tollbridge's files: their paths, and writing them so that only their owner can read them.

The paths are chosen by an environment variable or are platform directories. Model lists, recordings and the
database contain prompts or habits, so they are private. Windows has no such permissions; there the user's
profile folder protects the files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from platformdirs import PlatformDirs


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the settings file: `TOLLBRIDGE_CONFIG`, or `config.toml` in the configuration directory."""
    return _path_from(environment, "TOLLBRIDGE_CONFIG") or _platform_dirs().user_config_path / "config.toml"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for downloaded data: `TOLLBRIDGE_CACHE_DIR`, or the cache directory."""
    return _path_from(environment, "TOLLBRIDGE_CACHE_DIR") or _platform_dirs().user_cache_path


def catalog_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for cached model lists: `TOLLBRIDGE_CATALOG_DIR`, or `catalog` in the cache."""
    return _path_from(environment, "TOLLBRIDGE_CATALOG_DIR") or cache_folder(environment) / "catalog"


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


_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
# The name of Tollbridge's own folders in the platform's directories. Another folder was chosen by the user,
# who may share it.
_OWN_FOLDER = "tollbridge"


def make_folder(path: Path) -> None:
    """Create a folder for private files, with its parents. Tollbridge's own folders become private.

    Raises:
        OSError: The folder cannot be created.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
    if _OWN_FOLDER in (path.name, path.parent.name):
        make_private(path, _FOLDER_MODE)


def create_file(path: Path) -> BinaryIO:
    """Create a private file and open it for writing.

    Raises:
        OSError: The file exists already or cannot be created.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb")


def make_private(path: Path, mode: int = _FILE_MODE) -> None:
    """Correct the permissions of a file that an earlier version created. A missing file is ignored."""
    with suppress(OSError):  # another user's file, or a file system without permissions
        if stat.S_IMODE(path.stat().st_mode) & ~mode:
            path.chmod(mode)


def replace_file(path: Path, data: bytes) -> None:
    """Write a private file atomically: other processes see the old or the new content.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with create_file(temporary) as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
