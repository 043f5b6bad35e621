"""What a step of the examination found: a verdict, a sentence, and what Tollbridge makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tollbridge.core.errors import BridgeError

# `well` is as it should be; `amiss` is not, and `unknown` could not be seen.
Verdict = Literal["well", "amiss", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """`learned` are fields of `Quirks`, also those that are as usual: they were seen to be."""

    verdict: Verdict
    sentence: str
    # What Tollbridge does about it, or what the person can do.
    remedy: str = ""
    learned: Mapping[str, Any] = {}


def well(sentence: str, **learned: Any) -> Finding:
    return Finding("well", sentence, "", learned)


def amiss(sentence: str, remedy: str, **learned: Any) -> Finding:
    return Finding("amiss", sentence, remedy, learned)


def unknown(sentence: str, remedy: str = "") -> Finding:
    return Finding("unknown", sentence, remedy)


def not_seen(error: BridgeError) -> Finding:
    """A failure that says nothing about the question: the way was broken, or the server busy."""
    return unknown(f"Could not be seen: {reason(error)}", "Nothing is assumed; run doctor again to find out.")


def reason(error: BridgeError) -> str:
    """The server's own words, short enough for a list."""
    message = " ".join(error.message.split()) or error.kind
    message = message if len(message) <= 160 else f"{message[:160]}…"
    told = message if message[-1] in ".!?…" else f"{message}."
    return f"{told[:-1]} (HTTP {error.status})." if error.status and str(error.status) not in told else told
