"""The flight recorder: one file for each turn, and the way to play it again."""

from tollbridge.recorder.folder import Recorder
from tollbridge.recorder.tape import Tape

__all__ = ["Recorder", "Tape"]
