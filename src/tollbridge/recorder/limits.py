"""The limits of recordings."""

from __future__ import annotations

import msgspec


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
