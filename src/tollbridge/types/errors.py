"""The exceptions of Tollbridge, sorted by who can act on them: the caller, the gateway, the network.

    BridgeError
    ├── RequestError          the request is invalid and was not sent
    ├── BudgetExceeded        the request could exceed a budget and was not sent
    ├── GatewayError          the gateway refused the request or failed
    │   ├── NotAuthenticated      401
    │   ├── NotPermitted          403
    │   ├── NotFound              404
    │   ├── RateLimited           429
    │   ├── ContextTooLong        the prompt does not fit into the context window
    │   ├── ContentFiltered       a content filter refused the prompt or stopped the answer
    │   ├── InvalidRequest        400 and other client errors
    │   ├── Overloaded            503, 529
    │   └── ServerFailed          every other 5xx
    ├── ConnectionBroken      the connection to the gateway failed
    │   ├── NetworkFailed         no connection could be established
    │   ├── TimedOut              a timeout expired
    │   └── Disconnected          the stream ended before its terminal event
    └── StreamError           the response could not be decoded
        └── BrokenCall            only the arguments of tool calls could not be decoded

Cancelling a turn raises asyncio's own `CancelledError`, not one of these.
An error holds its message, kind, status, code, request id and retry delay; never a key or a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tollbridge.types.urls import hide_userinfo

if TYPE_CHECKING:  # at run time it would load msgspec, which `tollbridge --help` does not need
    from tollbridge.types.events import Usage

Kind = Literal[
    "authentication",
    "permission",
    "not_found",
    "rate_limited",
    "budget_exceeded",
    "context_too_long",
    "content_filtered",
    "invalid_request",
    "overloaded",
    "server",
    "network",
    "timeout",
    "disconnected",
    "protocol",
]


# Messages can contain names and values from outside. Longer ones are truncated (characters).
MESSAGE_LIMIT = 2_000


class BridgeError(Exception):
    """Base class of every error that Tollbridge raises.

    Args:
        message: A sentence for the user.
        status: The HTTP status of the response, if there was one.
        code: The gateway's error code, in lower case.
        request_id: The id under which the gateway logged the request.
        retry_after: The number of seconds after which the gateway allows another attempt.
        param: The request field that the gateway named as the cause.

    Attributes:
        kind: The category of the error, for programs.
        transient: Whether the same request may succeed later. An instance can override its class.
        usage: The tokens used before the failure, if the gateway reported them.
        advice: What the user can do, if that is more specific than the advice for the kind.
    """

    kind: ClassVar[Kind] = "protocol"
    transient: bool = False
    advice: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        param: str | None = None,
    ) -> None:
        if len(message) > MESSAGE_LIMIT:
            message = message[:MESSAGE_LIMIT] + "…"
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.param = param
        self.usage: Usage | None = None

    def _values(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("advice", "transient")}

    # Errors compare by value, so that the events of two decodings can be compared.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BridgeError) or type(self) is not type(other):
            return False
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self.message))


class RequestError(BridgeError):
    """Raised before anything is sent, when a request, a setting or an argument is invalid."""

    kind = "invalid_request"


class BudgetExceeded(BridgeError):
    """Raised before anything is sent, when a request could exceed a budget of the user.

    Attributes:
        budget: The setting that refused the request, for example `day` or `accounts.work.month`; `None` if
            the budgets could not be checked.
        limit: The budget in US dollars, or the number of requests for `requests_per_minute`.
        spent: What is spent of it.
        reserved: What is reserved for requests that are running.
        estimate: The most that the refused request can cost.
    """

    kind = "budget_exceeded"

    def __init__(
        self,
        message: str,
        *,
        budget: str | None = None,
        limit: Decimal | None = None,
        spent: Decimal | None = None,
        reserved: Decimal | None = None,
        estimate: Decimal | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.budget = budget
        self.limit = limit
        self.spent = spent
        self.reserved = reserved
        self.estimate = estimate


class GatewayError(BridgeError):
    """Raised when the gateway refuses a request or reports a failure."""

    kind: ClassVar[Kind] = "server"


class NotAuthenticated(GatewayError):
    """Raised when the gateway does not accept the API key, or requires one (401)."""

    kind = "authentication"


class NotPermitted(GatewayError):
    """Raised when the API key does not permit the request (403)."""

    kind = "permission"


class NotFound(GatewayError):
    """Raised when the model or the endpoint does not exist (404)."""

    kind = "not_found"


class RateLimited(GatewayError):
    """Raised when the gateway limits the rate of requests, or a quota is used up (429)."""

    kind = "rate_limited"
    transient = True


class ContextTooLong(GatewayError):
    """Raised when the prompt does not fit into the model's context window.

    Attributes:
        tokens: The size of the prompt, or `None` if the gateway did not report it.
        limit: The largest size the model accepts, or `None` if the gateway did not report it.
        shared: Whether the prompt exceeds the limit only together with the requested output tokens.
    """

    kind = "context_too_long"

    def __init__(
        self,
        message: str,
        *,
        tokens: int | None = None,
        limit: int | None = None,
        shared: bool = False,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.tokens = tokens
        self.limit = limit
        self.shared = shared


class ContentFiltered(GatewayError):
    """Raised when a content filter refuses the prompt or stops the answer."""

    kind = "content_filtered"


class InvalidRequest(GatewayError):
    """Raised when the gateway rejects the request as invalid (400 and other client errors)."""

    kind = "invalid_request"


class Overloaded(GatewayError):
    """Raised when the gateway is overloaded (503, 529)."""

    kind = "overloaded"
    transient = True


class ServerFailed(GatewayError):
    """Raised when the gateway fails for any other reason (5xx)."""

    transient = True


class ConnectionBroken(BridgeError):
    """Raised when the connection to the gateway fails or times out."""

    kind: ClassVar[Kind] = "network"
    transient = True


class NetworkFailed(ConnectionBroken):
    """Raised when no connection can be established."""


class TimedOut(ConnectionBroken):
    """Raised when a timeout expires."""

    kind = "timeout"


class Disconnected(ConnectionBroken):
    """Raised when a stream ends before its terminal event."""

    kind = "disconnected"


class StreamError(BridgeError):
    """Raised when a response cannot be decoded."""


class BrokenCall(StreamError):
    """Raised when the arguments of tool calls are invalid; the rest of the answer is complete.

    A caller that runs tools can pass such a call to its tool and let the tool reject it.

    Attributes:
        calls: The ids of the invalid calls.
    """

    def __init__(self, message: str, *, calls: tuple[str, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.calls = calls


def most_severe(errors: Sequence[BridgeError]) -> BridgeError | None:
    """Return the error to raise for a response that failed in several ways.

    It is the first error other than `BrokenCall`. If there is none, the broken calls are merged into one.
    """
    broken_calls = [error for error in errors if isinstance(error, BrokenCall)]
    if len(broken_calls) < len(errors):
        return next(error for error in errors if not isinstance(error, BrokenCall))
    ids = tuple(id_ for error in broken_calls for id_ in error.calls)
    return BrokenCall(broken_calls[0].message, calls=ids) if broken_calls else None


# Some servers accept any text as a key. A shorter key is redacted only as a whole word: otherwise, a key "a"
# would make every message unreadable, and show by its gaps what the key is.
SHORT_KEY = 8


def hide_key(error: BridgeError, key: str | None) -> None:
    """Replace an API key, and user names and passwords in URLs, in the texts of an error.

    Some gateways quote the key that was sent. A truncated message may end within the key.
    """
    error.message = hide_userinfo(error.message)
    if key:
        # The cause quotes the response and holds the request headers. Its reason is part of the message.
        if error.__cause__ is not None:
            error.__cause__ = error.__context__ = None
        error.message = _redact(error.message, key)
        error.code = error.code and _redact(error.code, key.lower())  # codes are stored in lower case
        error.request_id = error.request_id and _redact(error.request_id, key)
        error.param = error.param and _redact(error.param, key)
    error.args = (error.message,)


def _redact(text: str, key: str) -> str:
    if len(key) < SHORT_KEY:
        return re.sub(rf"(?<![A-Za-z0-9]){re.escape(key)}(?![A-Za-z0-9])", "[key]", text)
    text = text.replace(key, "[key]")
    truncated = text.removesuffix("…")
    for length in range(len(key) - 1, 7, -1):
        if truncated.endswith(key[:length]):
            return f"{truncated[:-length]}[key]…"
    return text
