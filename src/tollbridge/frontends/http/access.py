"""Who may use the local server: programs of this computer, and others only with the token.

A web page must not be able to spend the user's money. A browser sends `Origin` with every request of a page
to another origin, and the name in the address bar as `Host`: with DNS rebinding that name is the attacker's,
although it resolves to 127.0.0.1. So both headers are checked.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

# Names of this computer. A server that listens on another address also accepts that address.
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessDenied(msgspec.Struct, frozen=True):
    """Why a request is refused: the HTTP status and a sentence for the user."""

    status: int
    message: str


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the server requires of every request.

    Attributes:
        hosts: The names that the `Host` header may have, in addition to the names of this computer.
        token: The token that every request must send as its API key; `None` on loopback without a token.
    """

    hosts: frozenset[str] = frozenset()
    token: str | None = None

    def check(self, headers: Mapping[str, str], remote: str | None) -> AccessDenied | None:
        """Return why a request is refused, or `None` if it is allowed.

        Args:
            headers: The request headers; the lookup ignores case.
            remote: The address of the caller.
        """
        host = _host_name(f"//{headers.get('Host', '')}")
        if host not in _LOOPBACK_NAMES and host not in self.hosts:
            return AccessDenied(403, f"This server does not answer to the host name {host[:80]!r}.")
        origin = headers.get("Origin")
        if origin is not None and not self._is_own_origin(origin, headers):
            return AccessDenied(403, f"Requests from web pages of {origin[:80]} are not allowed.")
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return AccessDenied(403, "Requests from other web pages are not allowed.")
        if self.token is not None:
            return self._check_token(headers)
        if remote not in _LOOPBACK_NAMES:
            return AccessDenied(401, "Without a token, this server answers programs of this computer only.")
        return None

    def _is_own_origin(self, origin: str, headers: Mapping[str, str]) -> bool:
        return origin == f"http://{headers.get('Host', '')}"

    def _check_token(self, headers: Mapping[str, str]) -> AccessDenied | None:
        sent = read_token(headers)
        if sent is not None and hmac.compare_digest(sent.encode(), (self.token or "").encode()):
            return None
        return AccessDenied(401, "The token is missing or wrong. Send it as the API key.")


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key of a request, as the three protocols send it."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or headers.get("api-key")


def _host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
