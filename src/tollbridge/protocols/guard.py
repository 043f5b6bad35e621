"""Guards for decoders: an unexpected exception becomes the failure of one event, or of one response.

Decoders handle all input without raising. The guards limit the effect of a defect in them: it must not cost
the user the rest of an answer. Each guard logs its first exception, without the message, which can contain a
part of the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import PurePath
from typing import TypeVar

from tollbridge.protocols.sse import UnknownNames
from tollbridge.types.errors import BridgeError, StreamError

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

UNDECODABLE = "The gateway's answer could not be decoded."


def log_defect(part: str, error: Exception) -> None:
    """Log an exception that only a defect can cause: its class and its place in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "unknown"
    if trace is not None:
        code = trace.tb_frame.f_code
        place = f"{'/'.join(PurePath(code.co_filename).parts[-2:])}:{trace.tb_lineno}, {code.co_name}"
    log.warning("%s could not be processed: %s at %s. Please report this.", part, type(error).__name__, place)


class EventGuard:
    """Skips the events of one stream that cannot be decoded, counts them, and logs the first.

    Args:
        counts: Where the events are counted.
    """

    def __init__(self, counts: UnknownNames) -> None:
        self._counts = counts
        self._logged = False

    def skip(self, name: object, error: Exception) -> None:
        """Count an event with this type."""
        self._counts.record(f"{name} (not decoded)" if isinstance(name, str) else "not decoded")
        if not self._logged:
            self._logged = True
            log_defect("An event of the gateway's answer", error)


def decode_body(decode: Callable[[bytes], _Result], data: bytes) -> _Result:
    """Decode a complete response body.

    Raises:
        BridgeError: The error that `decode` raised, or a `StreamError` in place of any other exception.
    """
    try:
        return decode(data)
    except BridgeError:
        raise
    except Exception as error:  # noqa: BLE001 - the purpose of this module
        log_defect("A response of the gateway", error)
        raise StreamError(UNDECODABLE) from None
