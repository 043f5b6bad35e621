"""Gateway URLs: the known protocols and hosts, and the checks on a URL."""

from __future__ import annotations

import re
from typing import Literal

# The protocols of a gateway.
Backend = Literal["openresponses", "ai-sdk", "chat-completions", "anthropic-messages"]
BACKENDS: tuple[Backend, ...] = ("openresponses", "ai-sdk", "chat-completions", "anthropic-messages")

# How a key is sent where the protocol leaves a choice.
Auth = Literal["x-api-key", "bearer"]

VERCEL_HOST = "ai-gateway.vercel.sh"
VERCEL_URL = f"https://{VERCEL_HOST}/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"

USERINFO_ERROR = (
    "A gateway's URL must not contain a user name or a password. "
    "Remove it; set the key with TOLLBRIDGE_API_KEY or `tollbridge login`."
)
# A scheme and a host, without user name and password.
_WITHOUT_USERINFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\\]+(?:[/?#]|$)")


def has_userinfo(url: str) -> bool:
    """Return whether a URL contains a user name or password. A malformed URL with an `@` counts as one."""
    return "@" in url and not _WITHOUT_USERINFO.match(url)


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is a loopback address of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    import ipaddress  # not at the top: the start of the sidecar does not need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
