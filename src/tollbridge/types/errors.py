"""What can go wrong, sorted by who can do something about it.

    BridgeError
    ├── RequestError          the caller asked for something that cannot be sent
    ├── GatewayError          the gateway said no
    │   ├── NotAuthenticated      401
    │   ├── NotPermitted          403
    │   ├── NotFound              404
    │   ├── RateLimited           429
    │   ├── ContextTooLong        the prompt does not fit (with the numbers, where given)
    │   ├── ContentFiltered
    │   ├── InvalidRequest        400 and its kin
    │   ├── Overloaded            503, 529
    │   └── ServerFailed          every other 5xx
    ├── ConnectionBroken      the way there is broken
    │   ├── NetworkFailed         no connection could be made
    │   ├── TimedOut
    │   └── Disconnected          the stream stopped before its end
    └── StreamError           the bytes made no sense
        └── BrokenCall            only those of a tool call's arguments did not

A caller who stops a turn cancels its task, and gets asyncio's own `CancelledError`.
An error keeps its message, kind, status, code, request id and how long to wait; never a key or a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict, Unpack

if TYPE_CHECKING:
    from tollbridge.types.usage import Usage


Kind = Literal[
    "authentication",
    "permission",
    "not_found",
    "rate_limited",
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


class Facts(TypedDict, total=False):
    """What an error of any kind may be given besides its message."""

    status: int | None
    code: str | None
    request_id: str | None
    retry_after: float | None
    param: str | None


class BridgeError(Exception):
    """The root: everything Tollbridge raises on purpose."""

    kind: ClassVar[Kind] = "protocol"
    # Whether the same request may succeed later, unchanged. One error may know better than its kind.
    transient: bool = False
    # What the turn cost until then, where the gateway said.
    usage: Usage | None = None
    # What the person can do about it, where the error knows better than its kind.
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
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.param = param  # the field of the request it is about, where the gateway named one

    def _identity(self) -> tuple[object, ...]:
        return type(self), self.message, self.status, self.code, self.request_id, self.retry_after, self.usage

    # Compared by value, so that two decodings of the same bytes can be compared.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, BridgeError) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class RequestError(BridgeError):
    kind = "invalid_request"


class GatewayError(BridgeError):
    kind: ClassVar[Kind] = "server"


class NotAuthenticated(GatewayError):
    kind = "authentication"


class NotPermitted(GatewayError):
    kind = "permission"


class NotFound(GatewayError):
    kind = "not_found"


class RateLimited(GatewayError):
    kind = "rate_limited"
    transient = True


class ContextTooLong(GatewayError):
    """`tokens` is what the prompt came to, `limit` what the model takes; `None` where nobody said.

    `shared`: the limit was passed together with the answer that was asked for; the prompt may be short."""

    kind = "context_too_long"

    def __init__(
        self,
        message: str,
        *,
        tokens: int | None = None,
        limit: int | None = None,
        shared: bool = False,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.tokens = tokens
        self.limit = limit
        self.shared = shared

    def _identity(self) -> tuple[object, ...]:
        return *super()._identity(), self.tokens, self.limit


class ContentFiltered(GatewayError):
    kind = "content_filtered"


class InvalidRequest(GatewayError):
    kind = "invalid_request"


class Overloaded(GatewayError):
    kind = "overloaded"
    transient = True


class ServerFailed(GatewayError):
    kind = "server"
    transient = True


class ConnectionBroken(BridgeError):
    kind: ClassVar[Kind] = "network"
    transient = True


class NetworkFailed(ConnectionBroken):
    kind = "network"


class TimedOut(ConnectionBroken):
    kind = "timeout"


class Disconnected(ConnectionBroken):
    kind = "disconnected"


class StreamError(BridgeError):
    kind = "protocol"


class BrokenCall(StreamError):
    """The model called tools with arguments that make no sense; everything else it said is whole.

    `calls` are their ids. Whoever runs tools can hand such a call on and let the tool refuse it.
    """

    def __init__(self, message: str, *, calls: tuple[str, ...] = (), **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.calls = calls

    def _identity(self) -> tuple[object, ...]:
        return *super()._identity(), self.calls


def most_severe(errors: Sequence[BridgeError]) -> BridgeError | None:
    """The error to tell of several: broken calls are the least of it, and told together."""
    broken = [error for error in errors if isinstance(error, BrokenCall)]
    if len(broken) < len(errors):
        return next(error for error in errors if not isinstance(error, BrokenCall))
    ids = tuple(id_ for error in broken for id_ in error.calls)
    return BrokenCall(broken[0].message, calls=ids) if broken else None


# SECTION Errors without the key that they may quote.


def hide_key(error: BridgeError, key: str | None) -> None:
    """Some gateways quote the key they were given, and a long message may be cut in the middle of it."""
    if not key:
        return
    # What lies below quotes the server's bytes and holds the request's headers. Its reason is in the message.
    if error.__cause__ is not None:
        error.__cause__ = error.__context__ = None
    error.message = _hidden(error.message, key)
    error.args = (error.message,)
    error.code = error.code and _hidden(error.code, key.lower())  # codes are kept in small letters
    error.request_id = error.request_id and _hidden(error.request_id, key)


def _hidden(text: str, key: str) -> str:
    text = text.replace(key, "[key]")
    cut = text.removesuffix("…")
    for length in range(len(key) - 1, 7, -1):
        if cut.endswith(key[:length]):
            return f"{cut[:-length]}[key]…"
    return text
