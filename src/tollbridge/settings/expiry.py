"""When a token expires, as it says itself."""

from __future__ import annotations

import base64
import binascii
import time

from tollbridge.core.json import read_json

# A token that expires within this many seconds is not worth sending.
MARGIN = 60.0


def expiry(token: str) -> float | None:
    """When a token expires, in seconds since 1970; `None` where it does not say, or is no JWT."""
    pieces = token.split(".")
    if len(pieces) != 3:
        return None
    try:
        payload = read_json(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    when = payload.get("exp") if isinstance(payload, dict) else None
    return float(when) if isinstance(when, int | float) and not isinstance(when, bool) else None


def is_expired(token: str, now: float | None = None) -> bool:
    when = expiry(token)
    return when is not None and when < (time.time() if now is None else now) + MARGIN
