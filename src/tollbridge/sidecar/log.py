"""Standard error as the sidecar's log: one line a record, its level first. Never a key, never a prompt."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Literal

Level = Literal["info", "warning", "error"]


def log(level: Level, message: str) -> None:
    """Where nobody listens any more, nothing is said."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"[{level}] {message}\n")
            sys.stderr.flush()


def log_failure(what: str, error: BaseException) -> None:
    """Where it happened, and not what was said: an exception's message may quote its input."""
    import traceback

    frames = "".join(traceback.format_tb(error.__traceback__))
    log("error", f"{what}: {type(error).__name__}\n{frames}".rstrip())


def take_over_logging() -> None:
    """What the library says by way of `logging` goes the same way."""
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level: Level = "error" if record.levelno >= logging.ERROR else "info"
            log("warning" if record.levelno == logging.WARNING else level, record.getMessage())

    logger = logging.getLogger("tollbridge")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [Lines()]
