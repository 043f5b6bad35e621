"""Addresses of gateways, and what none of them may hold."""

from __future__ import annotations

import re

NO_USERINFO = (
    "A gateway's URL must not contain a user name or a password. "
    "Leave it out: a key is set in the environment or with `tollbridge login`."
)
# A scheme and a host, and not a word more before the path.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\\]+(?:[/?#]|$)")


def has_userinfo(url: str) -> bool:
    """Whether someone's name, and so a password, may stand before the host. What is odd is not trusted."""
    return "@" in url and not _PLAIN.match(url)
