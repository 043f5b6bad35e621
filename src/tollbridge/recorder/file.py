"""One recording on disk, written while the turn goes on: what a killed process knew is there."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"


class RecordingFile:
    """Made with its first line. What cannot be written is said in the log, once; the turn goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.failed = False
        self.path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{SUFFIX}"

    def write(self, data: bytes) -> None:
        """Whole lines. They outlive the process from here on: the system has them."""
        try:
            if self._file is None and not self.failed:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = _opened(self.path)
            if self._file is not None:
                self._file.write(data)
                self._file.flush()
        except OSError as error:
            self._fail(error)

    def rewrite(self, lines: Iterable[str]) -> None:
        """These lines and no others, in one step."""
        draft = self.path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with _opened(draft) as file:
                file.writelines(line.encode() for line in lines)
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            self._fail(error)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failed:
            log.warning("the turn could not be recorded in %s: %s", self._folder, error.strerror)
        self.failed = True
        self.close()  # which tries to write the rest, and fails again


def _opened(path: Path) -> BinaryIO:
    """For the eyes of its owner: there are prompts in it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
