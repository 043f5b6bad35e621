"""The rows of a store as structs, and their encoding as columns, by field name and for every store.

Money is stored as integers of `COST_UNIT`, so that a database can add it up exactly; prices, which are never
added up, as JSON with decimal text. See docs/decisions/usage-rows.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

import msgspec

from tollbridge.tokens.prompt_cache import CacheReport, SentPrompt
from tollbridge.types.events import CostSource, Usage
from tollbridge.types.models import Prices
from tollbridge.types.quirks import Evidence, Lesson

Outcome = Literal["completed", "failed", "cancelled", "interrupted", "running"]

# Costs are stored as integers of this unit (US dollars): sums are exact, in SQL too.
COST_UNIT = Decimal("1e-12")
# Higher costs (US dollars) do not fit into a 64-bit integer of this unit. They are errors of a price list.
_COST_LIMIT = 9_000_000
# A higher reservation (US dollars) is an error of a price list too, and could overflow a sum.
_RESERVATION_LIMIT = Decimal(100_000)
# Characters of a model's name, an account's name, a URL or an id.
_TEXT_LIMIT = 500
# Errors by which a gateway refuses a request before it answers. The provider charges nothing for them,
# so missing usage is not incomplete usage.
REFUSALS = frozenset(
    {
        "authentication",
        "permission",
        "not_found",
        "rate_limited",
        "context_too_long",
        "invalid_request",
        "overloaded",
        "network",
    }
)


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt: a request as it was sent once. A retry or a repair is another attempt of the same turn.

    Attributes:
        key: Identifies the attempt. `None` in rows of the first release, which had one row per request.
        turn: The same for all attempts of a turn.
        attempt: The number of the attempt in its turn, from 1.
        started: When it started, in seconds since the epoch.
        outcome: `running` until the attempt ends, and `interrupted` if its process died before.
        usage: What the gateway reported.
        incomplete: Whether the gateway may have counted tokens that are not in `usage`.
        duration: Seconds from the start to the end.
        first: Seconds from the start to the first event.
        error: The kind of the error by which it failed.
        initiator: The program that sent the request through the local server.
        conversation: The conversation of the request, if the caller says which.
        provider: The provider that answered, if the gateway says which.
        generation_id: The id under which the gateway can be asked for the cost.
        prices: The prices at the time of the attempt, if they were known.
        cost: The cost at these prices, in US dollars; `None` if it is not known.
        billed: What the gateway says it charged, in US dollars; `None` if it does not say.
        cost_source: Where `billed` or, without it, `cost` comes from.
    """

    key: str | None = None
    turn: str | None = None
    attempt: int = 1
    started: float
    model: str
    account: str = ""
    base_url: str = ""
    outcome: Outcome
    usage: Usage = Usage()
    incomplete: bool = False
    duration: float | None = None
    first: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    response_id: str | None = None
    initiator: str | None = None
    conversation: str | None = None
    provider: str | None = None
    generation_id: str | None = None
    prices: Prices | None = None
    cost: Decimal | None = None
    billed: Decimal | None = None
    cost_source: CostSource | None = None

    @property
    def charge(self) -> Decimal | None:
        """What the attempt costs in US dollars: what the gateway charged, or else the computed cost."""
        return self.cost if self.billed is None else self.billed


def is_incomplete(usage: Usage | None, outcome: Outcome, error: str | None, first: float | None) -> bool:
    """Return whether the gateway may have counted tokens for an attempt that are not in its usage."""
    if usage is not None and usage.known:
        return False
    return not (outcome == "failed" and error in REFUSALS and first is None)


# A field of `UsageRow` is a column of the same name; `usage` is a column for each of its fields.
USAGE_COLUMNS = tuple(
    column
    for field in UsageRow.__struct_fields__
    for column in (Usage.__struct_fields__ if field == "usage" else (field,))
)


def encode_row(row: UsageRow) -> list[Any]:
    """Return the values of `USAGE_COLUMNS`."""
    values: list[Any] = []
    for value in msgspec.structs.astuple(row):
        match value:
            case str():
                values.append(encode_text(value))
            case Usage():
                values += msgspec.structs.astuple(value)
            case Prices():
                values.append(_encode_prices(value))
            case Decimal():
                units = int((value / COST_UNIT).to_integral_value())
                values.append(None if value >= _COST_LIMIT else units)
            case _:
                values.append(value)
    return values


def _encode_prices(prices: Prices) -> str | None:
    """Return the prices as JSON, without tiers: a row has the prices of its prompt."""
    fields = {name: value for name, value in msgspec.structs.asdict(prices).items() if value is not None}
    del fields["tiers"]
    return msgspec.json.encode(fields).decode() if len(fields) > 1 else None


def encode_reservation(cost: Decimal) -> int:
    """Return a cost that is not known exactly, rounded up."""
    return int((min(cost, _RESERVATION_LIMIT) / COST_UNIT).to_integral_value(ROUND_CEILING))


def encode_text(text: str | None) -> str | None:
    """Limit the length of a text from outside, and replace lone surrogates, which databases do not accept."""
    return None if text is None else text[:_TEXT_LIMIT].encode("utf-8", "replace").decode()


# The number of a lesson is that of its row.
LESSON_COLUMNS = tuple(name for name in Lesson.__struct_fields__ if name != "number")
# What identifies a lesson: see `Lesson.key`.
LESSON_KEY = ("base_url", "model", "conversation", "feature", "subject")


def encode_lesson(lesson: Lesson) -> list[Any]:
    """Return the values of `LESSON_COLUMNS`."""
    fields = msgspec.structs.asdict(lesson)
    for name in ("value", "evidence"):
        fields[name] = msgspec.json.encode(fields[name]).decode()
    return [fields[name] for name in LESSON_COLUMNS]


def decode_lesson(values: Sequence[Any]) -> Lesson | None:
    """Return a lesson from the values of `LESSON_COLUMNS` and its number; `None` if they are not valid."""
    fields = dict(zip((*LESSON_COLUMNS, "number"), values, strict=True))
    try:
        fields["value"] = msgspec.json.decode(fields["value"])
        fields["evidence"] = msgspec.json.decode(fields["evidence"], type=Evidence)
        return msgspec.convert(fields, Lesson)
    except (msgspec.MsgspecError, TypeError):
        return None


class Scope(msgspec.Struct, frozen=True):
    """Where prompts can share a cache: one account at one gateway, and the conversation, if it has an id."""

    base_url: str
    account: str
    conversation: str | None = None

    @classmethod
    def of(cls, row: UsageRow) -> Scope:
        return cls(row.base_url, row.account, row.conversation)


class StoredReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one turn. The fields are those of `explain --json`, which adds those of the report."""

    turn: str
    started: float
    model: str
    conversation: str | None = None
    response_id: str | None = None
    report: CacheReport


class CacheEntry(msgspec.Struct, frozen=True):
    """What is stored of one turn.

    `replaced` is the turn whose prompt is the beginning of this one, and is not needed any more.
    """

    scope: Scope
    prompt: SentPrompt
    report: StoredReport
    replaced: str | None = None


encode_prompt = msgspec.msgpack.Encoder().encode
encode_report = msgspec.json.Encoder().encode


def decode_prompts(values: Iterable[bytes]) -> Iterator[SentPrompt]:
    """Yield the prompts, without those that another version wrote."""
    for data in values:
        with suppress(msgspec.MsgspecError):
            yield msgspec.msgpack.decode(data, type=SentPrompt)


def decode_reports(values: Iterable[str]) -> Iterator[StoredReport]:
    """Yield the reports, without those that another version wrote."""
    for data in values:
        with suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(data, type=StoredReport)
