"""Signs of life: a file that a process keeps locked, and that the system lets go of when the process dies.

A process's number would not do: numbers are given again, and mean nothing in another container.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from pathlib import Path
from typing import IO

from tollbridge.store.database import StoreUnusable

# Seconds.
YOUNG = 60.0

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        # Not `lockf`: its locks are of the process, and end when any of its files on the path is closed.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Sign:
    """A name of this process's own, beside a database; alive until taken down, or until the process dies."""

    def __init__(self, database: Path) -> None:
        self.name = uuid.uuid4().hex
        self._path = _path(database, self.name)
        try:
            self._file = self._path.open("wb")
            _lock(self._file)
        except OSError as error:
            raise StoreUnusable(f"{self._path} cannot be written: {error.strerror}") from error

    def take_down(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)


def is_alive(database: Path, name: str) -> bool:
    """Whether the process with this name lives. The file of one that does not is removed."""
    path = _path(database, name)
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to judge
    with file:
        try:
            _lock(file)
        except OSError:
            return True
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return False


def clear(database: Path) -> None:
    """Remove what processes left behind that were killed. A young file may be about to be locked."""
    begins = _path(database, "").name
    with contextlib.suppress(OSError):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(begins) and path.stat().st_mtime < time.time() - YOUNG:
                is_alive(database, path.name.removeprefix(begins))


def _path(database: Path, name: str) -> Path:
    return database.with_name(f"{database.name}-alive-{name}")
