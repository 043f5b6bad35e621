"""Record turns: one file per turn in a folder of limited size.

A recording is written while the turn runs, so that it survives if the process is killed. No key that was sent
is written, even if a model or a server repeats it in pieces. A failure of the recorder ends the recording,
never the turn.
"""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

from tollbridge.recorder.files import RecordingFile
from tollbridge.recorder.limits import LIMITS, RecorderLimits
from tollbridge.recorder.recording import is_recording
from tollbridge.recorder.writer import RecordingWriter
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks

log = logging.getLogger(__name__)

# The names of recordings, and of the files that replace them. Other files in the folder belong to the user
# and are not deleted.
_RECORDING_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.jsonl")
_DRAFT_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.part")


class Recorder:
    """Records turns in a folder, and deletes the oldest recordings if the folder exceeds its limits.

    The folder is created with the first recording. If it cannot be written, a warning is logged and turns
    continue without a recording. With `redacted`, recordings have no message content.
    """

    def __init__(self, folder: Path, *, redacted: bool = False, limits: RecorderLimits = LIMITS) -> None:
        self._folder = folder
        self._redacted = redacted
        self._limits = limits

    def start(
        self,
        request: ChatRequest,
        *,
        editor_request: object = None,
        keys: tuple[str, ...] = (),
        learned: LearnedQuirks | None = None,
        capabilities: Capabilities | None = None,
    ) -> RecordingWriter:
        """Start the recording of one turn. Returns an observer for it.

        Args:
            request: The request of the turn.
            editor_request: The request of the editor, if it has another form.
            keys: Keys to remove from the recording, besides those that are sent with the request.
            learned: What is known about the server. With this and the capabilities of the model, a replay can
                build the same HTTP request again.
            capabilities: The capabilities of the model.
        """
        facts = {
            "request": request,
            "editor_request": editor_request,
            "learned": learned,
            "capabilities": capabilities,
        }
        file = RecordingFile(self._folder)
        return RecordingWriter(facts, file, self._finish, self._limits, redacted=self._redacted, keys=keys)

    def _finish(self, file: RecordingFile) -> None:
        if file.failed:
            return
        try:
            self._delete_old_files()
        except OSError as error:
            log.warning("old recordings could not be deleted from %s: %s", self._folder, error.strerror)

    def _delete_old_files(self) -> None:
        """Delete the oldest recordings beyond the limits, and the drafts of processes that were killed."""
        limits, size = self._limits, 0
        paths = list(self._folder.iterdir())
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
