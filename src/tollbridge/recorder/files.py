"""The files of recordings: one per turn, in a folder of limited size."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from tollbridge.recorder.recording import is_recording
from tollbridge.transport.files import create_file, make_folder

log = logging.getLogger(__name__)

# The names of recordings, and of the files that replace them. Other files in the folder belong to the user
# and are not deleted.
_RECORDING_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")
_DRAFT_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.part")


class RecorderLimits(msgspec.Struct, frozen=True):
    """The limits of recordings and of their folder, with the reason for each.

    Attributes:
        folder_files: Recordings in a folder: several days of work. The newest is never deleted.
        folder_bytes: Of all recordings in a folder, so that a setting that was forgotten fills no disk.
        recording_bytes: Of all requests, and of all responses, in one recording. The lines are kept in memory
            until the turn ends.
        draft_seconds: A draft that is older than this belonged to a process that was killed: replacing a
            recording takes less than a second.
    """

    folder_files: int = 500
    folder_bytes: int = 512 * 1024 * 1024
    recording_bytes: int = 32 * 1024 * 1024
    draft_seconds: float = 3600.0


LIMITS = RecorderLimits()


def _make_recording_folder(folder: Path) -> None:
    """Create the folder. In a git checkout, a new folder is ignored: recordings contain prompts."""
    is_new = not folder.exists()
    make_folder(folder)
    if is_new and any((parent / ".git").exists() for parent in folder.resolve().parents):
        with suppress(FileExistsError), create_file(folder / ".gitignore") as file:
            file.write(b"*\n")


def delete_old_files(folder: Path, limits: RecorderLimits) -> None:
    """Delete the oldest recordings beyond the limits, and the drafts of processes that were killed."""
    size = 0
    paths = list(folder.iterdir())
    recordings = [path for path in paths if _RECORDING_NAME.fullmatch(path.name)]
    recordings.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for index, path in enumerate(recordings):
        size += path.stat().st_size
        exceeds_limits = index >= limits.folder_files or size > limits.folder_bytes
        if index and exceeds_limits and is_recording(path):
            path.unlink(missing_ok=True)
    oldest = time.time() - limits.draft_seconds
    for path in paths:
        if _DRAFT_NAME.fullmatch(path.name) and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


class RecordingFile:
    """The file of a recording, created with its first line.

    The first error ends the recording and is logged; then `failed` is true.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.failed = False
        self.path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}.jsonl"

    def write(self, data: bytes) -> None:
        """Write complete lines and flush them, so that they survive if the process is killed."""
        try:
            if self._file is None and not self.failed:
                _make_recording_folder(self._folder)
                self._file = create_file(self.path)
            if self._file is not None:
                self._file.write(data)
                self._file.flush()
        except OSError as error:
            self.fail(error)

    def rewrite(self, lines: Iterable[str]) -> None:
        """Replace the content of the file atomically."""
        draft = self.path.with_suffix(".part")
        try:
            _make_recording_folder(self._folder)
            with create_file(draft) as file:
                file.writelines(line.encode() for line in lines)
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            self.fail(error)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the recording and log the first error, without a message that can contain content.

        After an error that is not of the system, the file is deleted: it may not be redacted completely.
        """
        if not self.failed:
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            log.warning("the turn could not be recorded in %s: %s", self._folder, reason)
        self.failed = True
        self.close()  # may fail again, when it writes buffered data
        if not isinstance(error, OSError):
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
