"""Answers that stopped before their end: a sentence where something was said, an error where nothing was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tollbridge.types.errors import BridgeError, ContentFiltered, InvalidRequest, ServerFailed, most_severe
from tollbridge.types.usage import Usage

# SECTION What a model says to an editor, whatever protocol it came in.
#
# A turn is any number of deltas, calls, files, sources and data, then at most one `Finished`, then any
# `Failed`. Failures come last, so what was said before them is kept.

FinishReason = Literal[
    "stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other", "unknown"
]
Ending = Literal["finish", "incomplete", "error", "abort", "cut"]


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta", gc=False):
    """`replaces` is how many characters of the text before it are void: a backend started a step anew."""

    text: str
    replaces: int = 0


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta", gc=False):
    """`id` names the block of reasoning, where the gateway gave it a name. `replaces` as for text."""

    text: str
    id: str | None = None
    replaces: int = 0


class Corrected(msgspec.Struct, frozen=True, tag="corrected"):
    """What the last characters of the text, or of the reasoning, should have been: `replaces` says how many.

    Nothing new was said. It is for whoever keeps the answer; what cannot be unsaid is left as it was."""

    text: str
    replaces: int
    of: Literal["text", "reasoning"] = "text"
    id: str | None = None


class ReasoningEnded(msgspec.Struct, frozen=True, tag="reasoning_ended"):
    """A block of reasoning is complete; `metadata` is what must go back with it (signature, ciphertext)."""

    id: str | None = None
    metadata: Mapping[str, Any] | None = None


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A complete call. `input` is the parsed arguments, or the text itself where it is not JSON.

    Only an `offered` call is for the editor to run: not one that the gateway ran itself, that was already
    answered or denied, or whose arguments make no sense.
    """

    call_id: str
    name: str
    input: Any
    offered: bool = True
    metadata: Mapping[str, Any] | None = None


class File(msgspec.Struct, frozen=True, tag="file"):
    """A file the model made: its bytes, or a URL that we pass on and never fetch."""

    mime: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None


class Source(msgspec.Struct, frozen=True, tag="source", omit_defaults=True):
    """Something the model cites: a page (`url`) or a document."""

    kind: Literal["url", "document"]
    id: str | None = None
    url: str | None = None
    title: str | None = None
    mime: str | None = None
    filename: str | None = None


class Data(msgspec.Struct, frozen=True, tag="data"):
    """A value of the application's own that travels in the stream."""

    name: str
    value: Any
    id: str | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The gateway says the turn is over. `usage` is what is billed, over all steps of the turn;
    `context` is the usage of the last step where it differs: what now fills the window.
    A `reason` of `None`: it did not say why. `invalid` are the calls that the backend itself found to make no
    sense, and that nobody answered."""

    reason: FinishReason | None
    ended: Literal["finish", "incomplete", "abort"] = "finish"
    usage: Usage | None = None
    context: Usage | None = None
    response_id: str | None = None
    model: str | None = None
    invalid: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """`error.usage` is what the turn cost until then."""

    error: BridgeError


Event = (
    TextDelta
    | ReasoningDelta
    | Corrected
    | ReasoningEnded
    | ToolCall
    | File
    | Source
    | Data
    | Finished
    | Failed
)


def split_failure(events: list[Event]) -> tuple[list[Event], BridgeError | None]:
    """What was said, and what went wrong."""
    errors = [event.error for event in events if isinstance(event, Failed)]
    error = most_severe(errors)
    if error is None:
        return events, None
    error.usage = next((each.usage for each in errors if each.usage is not None), None)
    return events[: next(place for place, event in enumerate(events) if isinstance(event, Failed))], error


# SECTION Answers that stopped before their end: a sentence where something was said, an error where nothing was.

# By the reason, which says more than the ending.
REASON_SENTENCES: dict[FinishReason | None, str] = {
    "content-filter": "The gateway's content filter stopped the answer.",
    "length": "The answer was cut at the limit of its length.",
}
ENDING_SENTENCES: dict[Ending, str] = {
    "abort": "The gateway broke the answer off.",
    "incomplete": "The answer is incomplete; the gateway did not say why.",
}


def incomplete_reason(finished: Finished) -> str | None:
    """Why there is less of an answer than there should be."""
    return REASON_SENTENCES.get(finished.reason) or ENDING_SENTENCES.get(finished.ended)


def empty_answer_error(finished: Finished, limit: int | None = None) -> BridgeError | None:
    """The error of an answer that stopped before its first word. `limit` is the length that was asked for."""
    why = incomplete_reason(finished)
    if why is None:
        return None
    if finished.reason == "content-filter":
        return ContentFiltered(f"{why} Nothing was said. Ask in other words.")
    if finished.reason == "length":
        advice = "ask a model that may say more" if limit is None else f"raise max_output_tokens ({limit:,})"
        return InvalidRequest(f"{why} Nothing was said before it: {advice}.")
    return ServerFailed(f"{why} Nothing was said. Ask again.")
