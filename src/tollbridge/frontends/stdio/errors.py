"""The sidecar's log lines and error responses. Neither ever contains a key or a prompt."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Literal

import msgspec

from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.frontends.stdio.parameters import NotUtf8
from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Fault
from tollbridge.types.errors import BridgeError, GatewayError, RequestError, StreamError

Level = Literal["info", "warning", "error"]

# The JSON-RPC code of a turn that failed; `data.kind` says why.
TURN_FAILED = -32001
CODES: dict[type[BridgeError], int] = {RequestError: jsonrpc.INVALID_PARAMS}
CANCELLED = Fault(jsonrpc.REQUEST_CANCELLED, "The request was cancelled.", {"kind": "cancelled"})

# What is logged of a gateway's error.
_LOGGED_FACTS = ("kind", "status", "code", "requestId")


def log(level: Level, message: str) -> None:
    """Write one line to standard error. Does not block: without a reader, a full pipe loses the line."""
    if sys.stderr is not None and _accepts_line():
        # Line breaks and control characters could forge a log line or control a terminal.
        message = "".join(letter if letter.isprintable() else " " for letter in message)
        line = f"[{level}] {message}".encode("utf-8", "replace")[: LIMITS.log_line_bytes]
        with suppress(OSError):
            sys.stderr.write(line.decode("utf-8", "ignore") + "\n")
            sys.stderr.flush()


def _accepts_line() -> bool:
    import select

    try:
        return bool(select.select([], [sys.stderr.fileno()], [], 0)[1])
    except (OSError, ValueError):  # not a pipe, or a system on which only sockets can be asked
        return True


def log_exception(method: str, error: BaseException) -> None:
    """Log the type and the traceback of an exception, not its message: that may quote the request."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = ", ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    log("error", f"{method}: {type(error).__name__} in {where}")


def redirect_logging() -> None:
    """Send the records of the `tollbridge` loggers to standard error as well."""
    import logging

    class StderrHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level: Level = "error" if record.levelno >= logging.ERROR else "info"
            log("warning" if record.levelno == logging.WARNING else level, record.getMessage())

    logger = logging.getLogger("tollbridge")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [StderrHandler()]


def describe_fault(error: BaseException, fault: Fault) -> str:
    """Describe an error for the log, without the gateway's own message: that may quote the prompt."""
    if not isinstance(error, GatewayError | StreamError):
        return fault.message
    facts = fault.data or {}
    limit = LIMITS.log_fact_characters
    return ", ".join(f"{name} {str(facts[name])[:limit]}" for name in _LOGGED_FACTS if name in facts)


def encode_exception(
    error: BaseException, revision: int | None = None, client_id: str | None = None
) -> Fault:
    """Convert any exception to an error response. Only for the client `vscode` it names commands of VS Code.

    An unexpected exception gives only its type: its message may quote the request. `revision` is that of the
    token counts, where the error may have changed them.
    """
    if isinstance(error, BridgeError):
        from tollbridge.frontends.vscode.errors import ADVICE, VSCODE_ADVICE, encode_error

        message, facts = encode_error(error, VSCODE_ADVICE if client_id == "vscode" else ADVICE)
        if revision is not None:
            facts["countsRevision"] = revision
        return Fault(CODES.get(type(error), TURN_FAILED), message, facts)
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return Fault(jsonrpc.INVALID_PARAMS, f"Invalid parameters: {error}.", {"kind": "invalid_request"})
    if isinstance(error, NotUtf8):
        return Fault(jsonrpc.PARSE_ERROR, "The parameters are not UTF-8.", {"kind": "invalid_request"})
    name = type(error).__name__
    message = f"Internal error in Tollbridge ({name}). See the log for details."
    return Fault(jsonrpc.INTERNAL_ERROR, message, {"kind": "internal", "code": name})
