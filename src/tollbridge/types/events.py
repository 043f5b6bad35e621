"""The events of an answer, the same for every protocol, and the usage and the cost that they report.

An answer is any number of deltas, tool calls, files, sources and data, then at most one `Finished`, then any
number of `Failed`. Failures come last, so that everything received before them is kept. In usage and cost,
unknown is `None`; zero is a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeVar

import msgspec

from tollbridge.types.errors import BridgeError, ContentFiltered, InvalidRequest, ServerFailed, most_severe
from tollbridge.types.quirks import ReasoningShape

_Amount = TypeVar("_Amount", int, Decimal, "Usage")


class Usage(msgspec.Struct, frozen=True):
    """The tokens of one or more requests.

    Cached tokens and cache writes are part of the input tokens; reasoning tokens are part of the output
    tokens. Cached tokens were read from the provider's prompt cache, cache writes were stored in it.

    Attributes:
        long_cache_write_tokens: The cache writes with the longer of the provider's lifetimes (Anthropic: 1
            hour, OpenAI: 12 hours), part of `cache_write_tokens`.
        images: The number of generated images.
        web_searches: The number of web searches that the provider ran.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    long_cache_write_tokens: int | None = None
    images: int | None = None
    web_searches: int | None = None

    @property
    def known(self) -> bool:
        """Whether any tokens were counted. Servers that do not count report 0 for everything."""
        return bool(self.input_tokens or self.output_tokens or self.total_tokens)

    def to_dict(self) -> dict[str, int | None]:
        """Return the counts by name, ready for JSON. Unknown counts are `None`."""
        return msgspec.structs.asdict(self)

    @property
    def _total(self) -> int | None:
        """The total, computed if only input and output were reported."""
        if self.total_tokens is not None or self.input_tokens is None or self.output_tokens is None:
            return self.total_tokens
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        counts = other.to_dict()
        sums = {name: add_known(count, counts[name]) for name, count in self.to_dict().items()}
        return Usage(**{**sums, "total_tokens": add_known(self._total, other._total)})


# The largest integer that every JSON parser and database represents exactly.
MAX_COUNT = 2**53


def token_count(value: object) -> int | None:
    """Convert a reported count to `int`. Return `None` if it is not a number, negative or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < MAX_COUNT else None


def add_known(left: _Amount | None, right: _Amount | None) -> _Amount | None:
    """Add two amounts, of which one can be unknown."""
    if left is None:
        return right
    return left if right is None else left + right


# Longer numbers, as text, are not read.
_DIGIT_LIMIT = 40


def parse_amount(value: object) -> Decimal | None:
    """Convert a reported amount of money to `Decimal`. Return `None` if it is not a number or negative."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        digits = str(value)
        amount = Decimal(digits) if len(digits) <= _DIGIT_LIMIT else None
    except (InvalidOperation, ValueError):
        return None
    return amount if amount is not None and amount.is_finite() and amount >= 0 else None


# Where the cost of a request comes from. Billed: the gateway's metadata in the stream, the market price there
# (the gateway debited nothing, as with the user's own provider key), `usage.cost`, a response header, or a
# later question to the gateway. Computed: the prices of the gateway's model list, or of `genai-prices`.
CostSource = Literal["gateway", "market", "usage", "header", "generation", "list", "genai-prices"]


class Billing(msgspec.Struct, frozen=True):
    """What the gateway says about the bill of one request.

    Attributes:
        cost: What it charges, in US dollars.
        source: Where the cost was reported.
        provider: The provider that answered, after any fallbacks.
        generation_id: The id under which the gateway can be asked for the cost.
        surcharge: The part of the cost that is not for tokens, but for a feature of the account.
    """

    cost: Decimal | None = None
    source: CostSource | None = None
    provider: str | None = None
    generation_id: str | None = None
    surcharge: Decimal | None = None

    def __or__(self, later: Billing) -> Billing:
        """Return both reports together. Where both have a value, the later report counts."""
        has_cost = later.cost is not None
        return Billing(
            later.cost if has_cost else self.cost,
            later.source if has_cost else self.source,
            later.provider or self.provider,
            later.generation_id or self.generation_id,
            later.surcharge if has_cost else self.surcharge,
        )


class Cost(msgspec.Struct, frozen=True):
    """The cost of a turn in US dollars, with all its attempts. Unknown is `None`, never 0.

    Attributes:
        computed: The reported usage at the prices of the model.
        billed: What the gateway says it charges.
        charge: The billed cost, or else the computed one.
        source: Where `charge` comes from.
        difference: A sentence about a difference of more than 1 % between billed and computed.
    """

    computed: Decimal | None = None
    billed: Decimal | None = None
    charge: Decimal | None = None
    source: CostSource | None = None
    difference: str | None = None

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            add_known(self.computed, other.computed),
            add_known(self.billed, other.billed),
            add_known(self.charge, other.charge),
            other.source or self.source,
            other.difference or self.difference,
        )


FinishReason = Literal[
    "stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other", "unknown"
]

# Longer names of tools and ids from a gateway are truncated (characters). Providers allow names of 64; the
# ids of LiteLLM have more than 400.
NAME_LIMIT = 256
ID_LIMIT = 4_096


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta", gc=False):
    """A piece of the answer's text.

    `replaces` is the number of preceding characters to discard: a backend restarted a step of the answer.
    """

    text: str
    replaces: int = 0


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta", gc=False):
    """A piece of reasoning. `id` is the gateway's id of the reasoning block; `replaces` as in `TextDelta`."""

    text: str
    id: str | None = None
    replaces: int = 0


class Corrected(msgspec.Struct, frozen=True, tag="corrected"):
    """A correction of the last `replaces` characters of the text or of the reasoning.

    It adds no content. It is for code that stores the answer; text that is already displayed can stay.
    """

    text: str
    replaces: int
    of: Literal["text", "reasoning"] = "text"
    id: str | None = None


class ReasoningEnded(msgspec.Struct, frozen=True, tag="reasoning_ended"):
    """The end of a reasoning block.

    `metadata` (a signature, encrypted content) must be sent back together with the reasoning. `shape` is the
    field that held the text, if it was not the summary: a server can ignore reasoning in another field.
    """

    id: str | None = None
    metadata: Mapping[str, Any] | None = None
    shape: ReasoningShape | None = None


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A complete tool call. `input` is the parsed arguments, or their text if that is not valid JSON.

    The caller runs a call only if it is `offered`. Calls that the gateway ran itself, that were already
    answered or denied, or whose arguments are invalid are not offered.
    """

    call_id: str
    name: str
    input: Any
    offered: bool = True
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _truncate(self, "call_id", ID_LIMIT)
        _truncate(self, "name", NAME_LIMIT)


class File(msgspec.Struct, frozen=True, tag="file"):
    """A file generated by the model: its bytes, or a URL, which Tollbridge never fetches."""

    mime: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None


class Source(msgspec.Struct, frozen=True, tag="source", omit_defaults=True):
    """A source cited by the model: a web page (`url`) or a document."""

    kind: Literal["url", "document"]
    id: str | None = None
    url: str | None = None
    title: str | None = None
    mime: str | None = None
    filename: str | None = None


class Data(msgspec.Struct, frozen=True, tag="data"):
    """An application-defined value in the stream."""

    name: str
    value: Any
    id: str | None = None


class CacheDiagnosis(msgspec.Struct, frozen=True):
    """A provider's own reason why a prompt was not read from its cache, as it names it: `tools_changed`…"""

    reason: str
    missed_tokens: int | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The gateway's end of the answer.

    Attributes:
        reason: Why the answer ended, or `None` if the gateway did not report it.
        ended: How the stream ended.
        usage: The tokens billed for all steps of the turn.
        context: The usage of the last step, if it differs: the tokens now in the context window.
        invalid: The ids of calls that the backend rejected as invalid and that have no result.
        billing: What the gateway says about the bill, if anything.
        cache: Why the prompt was not read from the cache, if the provider says so.
    """

    reason: FinishReason | None
    ended: Literal["finish", "incomplete", "abort"] = "finish"
    usage: Usage | None = None
    context: Usage | None = None
    response_id: str | None = None
    model: str | None = None
    invalid: tuple[str, ...] = ()
    billing: Billing | None = None
    cache: CacheDiagnosis | None = None

    def __post_init__(self) -> None:
        _truncate(self, "response_id", ID_LIMIT)
        _truncate(self, "model", ID_LIMIT)


def _truncate(event: msgspec.Struct, field: str, limit: int) -> None:
    value = getattr(event, field)
    if value is not None and len(value) > limit:
        msgspec.structs.force_setattr(event, field, value[:limit])


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The failure of an answer. `error.usage` has the tokens used before it, if they were reported."""

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
    """Split the events of one read into the events before the first failure, and the error to raise."""
    errors = [event.error for event in events if isinstance(event, Failed)]
    error = most_severe(errors) if errors else None
    if error is None:
        return events, None
    error.usage = next((cause.usage for cause in errors if cause.usage is not None), None)
    first = next(index for index, event in enumerate(events) if isinstance(event, Failed))
    return events[:first], error


# Why an answer is incomplete: a warning if there is some output, an error if there is none. The finish reason
# is more specific than the ending and is looked up first.
REASON_SENTENCES: dict[FinishReason | None, str] = {
    "content-filter": "The gateway's content filter stopped the answer.",
    "length": "The answer was truncated (output limit reached).",
}
ENDING_SENTENCES = {
    "abort": "The gateway ended the answer early.",
    "incomplete": "The answer is incomplete; the gateway gave no reason.",
}


def incomplete_reason(finished: Finished, limit: int | None = None) -> str | None:
    """Return a sentence that says why the answer is or may be incomplete, or `None` if it is complete.

    Args:
        finished: The end of the answer.
        limit: The `max_output_tokens` of the request. Some servers report an answer that was cut at the limit
            as complete.
    """
    reason = REASON_SENTENCES.get(finished.reason) or ENDING_SENTENCES.get(finished.ended)
    usage = finished.context or finished.usage
    if reason is None and limit is not None and usage is not None and usage.output_tokens == limit:
        return f"The answer may be truncated: it has exactly {limit:,} tokens, the output limit."
    return reason


def empty_answer_error(finished: Finished, limit: int | None = None) -> BridgeError | None:
    """Return the error for an answer that ended early and without any output, or `None` for other endings."""
    reason = incomplete_reason(finished)
    if reason is None:
        return None
    if finished.reason == "content-filter":
        return ContentFiltered(f"{reason} The answer is empty. Rephrase the prompt.")
    if finished.reason == "length":
        advice = "Use a model with a larger output limit"
        if limit is not None:
            advice = f"Increase max_output_tokens ({limit:,})"
        return InvalidRequest(f"{reason} No output was produced. {advice}.")
    return ServerFailed(f"{reason} The answer is empty. Try again.")
