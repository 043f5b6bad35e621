"""Gateway URLs: the default host, the checks on a URL, and on requests to local servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

VERCEL_HOST = "ai-gateway.vercel.sh"
VERCEL_URL = f"https://{VERCEL_HOST}/v1"

USERINFO_ERROR = (
    "A gateway's URL must not contain a user name or a password. "
    "Remove it; set the key with TOLLBRIDGE_API_KEY or `tollbridge login`."
)


def has_userinfo(url: str) -> bool:
    """Return whether a URL contains a user name or password.

    A malformed URL with an `@` counts as a URL that contains them.
    """
    return "@" in url and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\\]+(?:[/?#]|$)", url)


def hide_userinfo(text: str) -> str:
    """Replace user names and passwords in the URLs of a text, for example of a redirect, with `[hidden]`."""
    return re.sub(r"://[^\s/?#@\"'<>]{1,512}@", "://[hidden]@", text) if "@" in text else text


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is a loopback address of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    import ipaddress  # not at the top: the start of the sidecar does not need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def explain_refusal(headers: Mapping[str, str]) -> str | None:
    """Return why a server on this machine must refuse a request, or `None`: it may come from a web page.

    A web page must not use the servers of the machine that shows it. A browser sends the origin of the page
    with its requests to other origins. With DNS rebinding, the attacker's own name resolves to a loopback
    address, and the request has the same origin, but that name is in its `Host` header.

    Args:
        headers: The request headers, in a mapping that ignores the case of names.
    """
    host = headers.get("Host", "")
    if not is_loopback(_host_name(host)):
        return f'The host "{host[:80]}" is not a name of this computer. Use localhost or 127.0.0.1.'
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f'Requests from web pages of "{origin[:80]}" are not allowed.'
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "Requests from web pages of other sites are not allowed."
    return None


@lru_cache(maxsize=64)
def _host_name(host: str) -> str:
    from urllib.parse import urlsplit  # not at the top, for the same reason

    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
