"""Who may use the local server: a web page must not be able to spend the user's money."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from tollbridge.protocols import read_key
from tollbridge.types.errors import BridgeError, NotAuthenticated, NotPermitted, RequestError
from tollbridge.types.urls import explain_refusal, is_loopback


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the server listens, and for whom.

    Attributes:
        host: The address to listen on.
        port: The port; 0 is any free port.
        token: The token that callers must send; required if `host` is not an address of this computer only.
        usage_only: Whether only the usage page is served, and no request is answered.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    usage_only: bool = False


def check_token(options: ServerOptions) -> None:
    """Check that a server has a token if other computers can reach it.

    Raises:
        RequestError: The address is not loopback and there is no token.
    """
    if options.token is None and not is_loopback(options.host):
        raise RequestError(
            f"Listening on {options.host} needs a token, because other computers can reach it. "
            "Set one with --token or TOLLBRIDGE_SERVE_TOKEN."
        )


def check_access(request: web.Request, options: ServerOptions) -> BridgeError | None:
    """Return why a request is refused; `None` if it is not."""
    headers: Mapping[str, str] = request.headers
    if options.token is not None and not is_loopback(options.host):
        # Other computers know this one by names that it does not know. A web page does not know the token.
        headers = CIMultiDict(headers)
        headers["Host"] = "localhost"
        if headers.get("Origin") == f"http://{request.headers.get('Host', '')}":
            headers["Origin"] = "http://localhost"
    problem = explain_refusal(headers)
    if problem is not None:
        return NotPermitted(problem)
    if request.path in ("/", "/health"):
        return None
    if options.token is not None:
        sent = read_token(request.headers) or ""
        if hmac.compare_digest(sent.encode("utf-8", "replace"), options.token.encode()):
            return None
        return NotAuthenticated("The token is missing or wrong. Send it as the API key.")
    if not is_loopback(request.remote or ""):
        return NotAuthenticated("Without a token, this server answers programs of this computer only.")
    return None


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key of a request, as any protocol or Azure's clients send it."""
    return read_key(headers) or headers.get("api-key")
