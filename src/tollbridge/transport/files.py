"""Files that only their owner can read: model lists, recordings and the database contain prompts or habits.

Windows has no such permissions; there the user's profile folder protects the files.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

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
        _restrict(path, _FOLDER_MODE)


def create_file(path: Path) -> BinaryIO:
    """Create a private file and open it for writing.

    Raises:
        OSError: The file exists already or cannot be created.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb")


def make_private(path: Path) -> None:
    """Correct the permissions of a file that an earlier version created. A missing file is ignored."""
    _restrict(path, _FILE_MODE)


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


def _restrict(path: Path, mode: int) -> None:
    with suppress(OSError):  # another user's file, or a file system without permissions
        if stat.S_IMODE(path.stat().st_mode) & ~mode:
            path.chmod(mode)
