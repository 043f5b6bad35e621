"""Refusals that can be cured: what to change in a request, and what to remember for the next one."""

from tollbridge.healing.cures import Cure, find_cure
from tollbridge.healing.lessons import Learned, Lessons, RememberedLessons
from tollbridge.healing.parameters import left_out, sent_without

__all__ = ["Cure", "Learned", "Lessons", "RememberedLessons", "find_cure", "left_out", "sent_without"]
