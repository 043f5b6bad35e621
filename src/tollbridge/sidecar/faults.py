"""Any failure as the answer an editor gets: one function, one table."""

from __future__ import annotations

import msgspec

from tollbridge.core.errors import BridgeError, RequestError
from tollbridge.editors import jsonrpc
from tollbridge.editors.jsonrpc import Fault
from tollbridge.editors.vscode.parameters import NotText

# The bridge could not be crossed; `data.kind` says why.
BRIDGE_FAILED = -32001

CODES: dict[type[BridgeError], int] = {RequestError: jsonrpc.INVALID_PARAMS}

CANCELLED = Fault(jsonrpc.REQUEST_CANCELLED, "The request was cancelled.", {"kind": "cancelled"})


def encode_fault(error: BaseException, lesson: int | None = None) -> Fault:
    """A failure nobody foresaw gives its name and no more: its message might hold what was asked."""
    if isinstance(error, BridgeError):
        from tollbridge.editors.vscode.encode import encode_error

        sentence, facts = encode_error(error)
        if lesson is not None:
            facts["lesson"] = lesson
        return Fault(CODES.get(type(error), BRIDGE_FAILED), sentence, facts)
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return Fault(
            jsonrpc.INVALID_PARAMS, f"The parameters do not fit: {error}.", {"kind": "invalid_request"}
        )
    if isinstance(error, NotText):
        return Fault(jsonrpc.PARSE_ERROR, "The parameters are not UTF-8.", {"kind": "invalid_request"})
    name = type(error).__name__
    return Fault(
        jsonrpc.INTERNAL_ERROR,
        f"Tollbridge failed ({name}); its log has the details.",
        {"kind": "internal", "code": name},
    )
