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
    """How the server listens, and for whom."""

    host: str = "127.0.0.1"
    port: int = 0  # any free port
    token: str | None = None  # callers must send it; required if other computers can reach `host`
    usage_only: bool = False  # only the usage page is served, and no request is answered


def check_token(options: ServerOptions) -> None:
    """Raise `RequestError` if other computers can reach the server, and it has no token."""
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
        # The API key, as any protocol or Azure's clients send it.
        sent = read_key(request.headers) or request.headers.get("api-key") or ""
        if hmac.compare_digest(sent.encode("utf-8", "replace"), options.token.encode()):
            return None
        return NotAuthenticated("The token is missing or wrong. Send it as the API key.")
    if not is_loopback(request.remote or ""):
        return NotAuthenticated("Without a token, this server answers programs of this computer only.")
    return None
