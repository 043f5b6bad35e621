"""Answers that stopped before their end: a sentence where something was said, an error where nothing was."""

from __future__ import annotations

from tollbridge.core.errors import BridgeError, ContentFiltered, InvalidRequest, ServerFailed
from tollbridge.core.events import Ending, Finished, FinishReason

# By the reason, which says more than the ending.
REASONS: dict[FinishReason | None, str] = {
    "content-filter": "The gateway's content filter stopped the answer.",
    "length": "The answer was cut at the limit of its length.",
}
ENDINGS: dict[Ending, str] = {
    "abort": "The gateway broke the answer off.",
    "incomplete": "The answer is incomplete; the gateway did not say why.",
}


def shortfall(finished: Finished) -> str | None:
    """Why there is less of an answer than there should be."""
    return REASONS.get(finished.reason) or ENDINGS.get(finished.ended)


def silence(finished: Finished, limit: int | None = None) -> BridgeError | None:
    """The error of an answer that stopped before its first word. `limit` is the length that was asked for."""
    why = shortfall(finished)
    if why is None:
        return None
    if finished.reason == "content-filter":
        return ContentFiltered(f"{why} Nothing was said. Ask in other words.")
    if finished.reason == "length":
        advice = "ask a model that may say more" if limit is None else f"raise max_output_tokens ({limit:,})"
        return InvalidRequest(f"{why} Nothing was said before it: {advice}.")
    return ServerFailed(f"{why} Nothing was said. Ask again.")
