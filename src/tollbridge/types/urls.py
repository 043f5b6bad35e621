"""Addresses of gateways, and what none of them may hold."""

from __future__ import annotations

import re
from typing import Literal

# How a gateway is asked.
Backend = Literal["openresponses", "ai-sdk"]
BACKENDS: tuple[Backend, ...] = ("openresponses", "ai-sdk")

VERCEL_HOST = "ai-gateway.vercel.sh"
VERCEL_URL = f"https://{VERCEL_HOST}/v1"

USERINFO_ERROR = (
    "A gateway's URL must not contain a user name or a password. "
    "Leave it out: a key is set in the environment or with `tollbridge login`."
)
# A scheme and a host, and not a word more before the path.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\\]+(?:[/?#]|$)")


def has_userinfo(url: str) -> bool:
    """Whether someone's name, and so a password, may stand before the host. What is odd is not trusted."""
    return "@" in url and not _PLAIN.match(url)


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine, by its name or its address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    import ipaddress  # not at the top: an editor's start needs none of it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
