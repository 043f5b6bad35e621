"""How the gateway says no: one exception, and the error body the protocol gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The specification's error types by status; 401, 403 and 503 are not in its table and follow common use.
TYPES: dict[int, str] = {
    400: "invalid_request",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found",
    405: "invalid_request",
    413: "invalid_request",
    415: "invalid_request",
    429: "too_many_requests",
    500: "server_error",
    503: "server_error",
}


class Refused(Exception):
    """A request that gets an error instead of an answer.

    `param` and `code` are always strings: there are clients that hide the message when either is null.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    @property
    def error(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request" if self.status < 500 else "server_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}
