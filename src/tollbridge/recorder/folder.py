"""A folder of recordings, bounded: when it is full the oldest go."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from pathlib import Path

from tollbridge.core.messages import ChatRequest
from tollbridge.recorder.reading import is_recording
from tollbridge.recorder.tape import Tape

log = logging.getLogger(__name__)

# What a folder holds at most; the newest recording is always kept.
FILE_LIMIT = 500
SIZE_LIMIT = 512 * 1024 * 1024
SUFFIX = ".jsonl"
# The names that are given here. The folder is the person's, and other files in it are theirs.
_OURS = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")


class Recorder:
    """Makes a tape for each turn. A folder that cannot be written is said in the log; the turns go on."""

    def __init__(self, folder: Path, *, redacted: bool = False) -> None:
        self._folder = folder
        self._redacted = redacted
        self.last: Path | None = None

    def tape(self, request: ChatRequest, *, said: object = None, keys: tuple[str, ...] = ()) -> Tape:
        """`keys` are hidden wherever they turn up; one that is sent with the request need not be named."""
        return Tape(request, self._keep, said=said, redacted=self._redacted, keys=keys)

    def _keep(self, lines: list[str]) -> None:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{SUFFIX}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / name
            # For the eyes of its owner: there are prompts in it.
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
            ) as file:
                file.writelines(lines)
            self.last = path
            self._trim()
        except OSError as error:
            log.warning("the turn could not be recorded in %s: %s", self._folder, error.strerror)

    def _trim(self) -> None:
        ours = [path for path in self._folder.iterdir() if _OURS.fullmatch(path.name)]
        files = sorted(ours, key=lambda path: path.stat().st_mtime_ns, reverse=True)
        size = 0
        for place, path in enumerate(files):
            size += path.stat().st_size
            if place and (place >= FILE_LIMIT or size > SIZE_LIMIT) and is_recording(path):
                path.unlink(missing_ok=True)
