"""A folder of recordings, bounded: when it is full the oldest go."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from tollbridge.core.messages import ChatRequest
from tollbridge.core.models import Capabilities
from tollbridge.healing import Learned
from tollbridge.recorder.file import RecordingFile
from tollbridge.recorder.reading import is_recording
from tollbridge.recorder.tape import Tape, Told

log = logging.getLogger(__name__)

# What a folder holds at most; the newest recording is always kept.
FILE_LIMIT = 500
SIZE_LIMIT = 512 * 1024 * 1024
# The names that are given to recordings. The folder is the person's, and other files in it are theirs.
_OURS = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")


class Recorder:
    """Makes a tape for each turn. A folder that cannot be written is said in the log; the turns go on."""

    def __init__(self, folder: Path, *, redacted: bool = False) -> None:
        self._folder = folder
        self._redacted = redacted

    def tape(
        self,
        request: ChatRequest,
        *,
        said: object = None,
        keys: tuple[str, ...] = (),
        learned: Learned | None = None,
        abilities: Capabilities | None = None,
    ) -> Tape:
        """`keys` are hidden wherever they turn up; one that is sent with the request need not be named. With
        what was `learned` of the server, and the model's `abilities`, the request can be put anew later."""
        file = RecordingFile(self._folder)
        told = Told(said, learned, abilities)
        return Tape(request, file, self._ended, told, redacted=self._redacted, keys=keys)

    def _ended(self, file: RecordingFile) -> None:
        if file.failed:
            return
        try:
            self._trim()
        except OSError as error:
            log.warning("old recordings could not be removed from %s: %s", self._folder, error.strerror)

    def _trim(self) -> None:
        ours = [path for path in self._folder.iterdir() if _OURS.fullmatch(path.name)]
        files = sorted(ours, key=lambda path: path.stat().st_mtime_ns, reverse=True)
        size = 0
        for place, path in enumerate(files):
            size += path.stat().st_size
            if place and (place >= FILE_LIMIT or size > SIZE_LIMIT) and is_recording(path):
                path.unlink(missing_ok=True)
