"""Errors without the key that they may quote."""

from __future__ import annotations

from tollbridge.core.errors import BridgeError


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
