"""Explain how much of a prompt was read from the provider's prompt cache, and why not more.

`explain` compares a request with the previous one of its conversation: their chains (`cache_chain.py`), times
and providers, and the tokens that the gateway reported for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from tollbridge.tokens.cache_chain import (
    CacheRules,
    Difference,
    Kind,
    PromptChain,
    find_difference,
    rules_for,
)
from tollbridge.types.events import CacheDiagnosis
from tollbridge.types.models import Prices
from tollbridge.types.usage import Usage

# A prompt has missed the cache if at least this share of the expected tokens, and at least this many of them,
# were not read from it. Providers round down to blocks, usually of 128 tokens.
_MISSED_SHARE, _MISSED_TOKENS = 0.1, 256
# The kinds of a gateway's own reasons, and its sentences where our chain has no better one.
_DIAGNOSES: dict[str, tuple[Kind, str]] = {
    "model_changed": ("model", "The model changed."),
    "system_changed": ("system", "The system text changed."),
    "tools_changed": ("tools", "The tools changed."),
    "messages_changed": ("messages", "The messages changed."),
    "input_changed": ("messages", "The messages changed."),
    "prompt_cache_key_changed": ("option", "The option `prompt_cache_key` changed."),
    "text_format_changed": ("option", "The output format changed."),
    "reasoning_effort_changed": ("option", "The reasoning effort changed."),
    "verbosity_changed": ("option", "The verbosity changed."),
    "service_tier_changed": ("option", "The service tier changed."),
    "context_compacted": ("cleared", "The gateway compacted the conversation."),
}


class SentPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was answered: its chain, and what the gateway reported.

    Attributes:
        turn: The id of the turn.
        started: When it was sent, in seconds since the epoch.
        provider: The provider that answered, if the gateway says which.
        response_id: The gateway's id of the response.
        usage: The reported tokens of the prompt.
    """

    turn: str
    started: float
    chain: PromptChain
    usage: Usage = Usage()
    provider: str | None = None
    response_id: str | None = None


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt cache did for one request.

    Attributes:
        missed: Whether much less was read from the cache than expected.
        kind: The kind of the reason.
        reason: The reason as a sentence.
        expected: The tokens that the cache should have provided; `None` if that is not known.
        actual: The tokens that the gateway reported as read from the cache.
        cost: What the miss cost, in US dollars; `None` if it is not known or nothing was missed.
        source: Who determined the reason.
    """

    missed: bool
    kind: Kind
    reason: str
    expected: int | None = None
    actual: int | None = None
    cost: Decimal | None = None
    source: Literal["gateway", "tollbridge"] = "tollbridge"

    @property
    def sentence(self) -> str:
        """The report as text: the figures and the reason."""
        if not self.missed:
            return self.reason
        cost = "" if self.cost is None else f", which cost ${self.cost:.4f}"
        return (
            f"{self.actual or 0:,} of about {self.expected or 0:,} expected tokens were read from the prompt "
            f"cache{cost}. {self.reason}"
        )


def choose_previous(
    current: PromptChain, candidates: Sequence[SentPrompt], *, same_conversation: bool
) -> SentPrompt | None:
    """Return the prompt that this one continues: the most similar one, and the newest of equal ones.

    Args:
        current: The chain of the new prompt.
        candidates: Earlier prompts.
        same_conversation: Whether the caller says that they belong to the same conversation. Otherwise they
            must have a message in common.
    """
    scored = []
    for prompt in candidates:
        shared = _shared_length(prompt.chain, current)
        # Editors send other requests in a conversation, such as for its title, with no tools or others.
        if shared or (same_conversation and current.tools and prompt.chain.tools == current.tools):
            difference = find_difference(prompt.chain, current)
            kept = current.length if difference is None else difference.kept
            scored.append((shared + kept, prompt.started, prompt))
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def _shared_length(previous: PromptChain, current: PromptChain) -> int:
    """Return the length of the messages that are in both prompts, at any place."""
    known = {link.digest for link in previous.messages}
    return sum(link.length for link in current.messages if link.digest in known)


def explain(
    current: SentPrompt,
    previous: SentPrompt | None,
    prices: Prices | None = None,
    diagnosis: CacheDiagnosis | None = None,
) -> CacheReport:
    """Explain how much of a prompt was read from the cache.

    Args:
        current: The prompt.
        previous: The previous prompt of the conversation.
        prices: The prices of the model, for the cost of a miss.
        diagnosis: The gateway's own explanation, if it gave one. It takes precedence.
    """
    actual = current.usage.cached_tokens
    if actual is None:
        reason = "The gateway does not report how many tokens were read from the prompt cache."
        return CacheReport(missed=False, kind="unreported", reason=reason)
    if previous is None or previous.usage.input_tokens is None:
        reason = "There is no earlier request of this conversation to compare with."
        return CacheReport(missed=False, kind="first", reason=reason, actual=actual)
    rules = rules_for(previous.chain.model)
    expected, report = _expect(previous, current, rules)
    if report is not None:
        return msgspec.structs.replace(report, actual=actual)
    missed_tokens = expected - actual
    if missed_tokens < max(_MISSED_TOKENS, _MISSED_SHARE * expected):
        reason = f"The prompt cache was used: {actual:,} of about {expected:,} expected tokens."
        return CacheReport(missed=False, kind="hit", reason=reason, expected=expected, actual=actual)
    kind, reason, source = _find_reason(previous, current, rules, diagnosis)
    return CacheReport(
        missed=True,
        kind=kind,
        reason=reason,
        expected=expected,
        actual=actual,
        cost=_cost_of_miss(current.usage, missed_tokens, prices),
        source=source,
    )


def _expect(previous: SentPrompt, current: SentPrompt, rules: CacheRules) -> tuple[int, CacheReport | None]:
    """Return the tokens that the cache should provide, and the report if that is nothing."""
    usage = previous.usage
    before = usage.input_tokens or 0
    if before < rules.minimum:
        reason = (
            f"The previous prompt had {before:,} tokens; this model's provider caches prompts "
            f"of {rules.minimum:,} tokens or more."
        )
        return 0, CacheReport(missed=False, kind="minimum", reason=reason, expected=0)
    stored = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
    if rules.explicit and not stored:
        reason = "The previous request stored nothing in the prompt cache: this model caches only on request."
        return 0, CacheReport(missed=False, kind="not_requested", reason=reason, expected=0)
    if not rules.explicit and not usage.cache_write_tokens:
        stored = before
    return min(stored, before, current.usage.input_tokens or before), None


def _find_reason(
    previous: SentPrompt, current: SentPrompt, rules: CacheRules, diagnosis: CacheDiagnosis | None
) -> tuple[Kind, str, Literal["gateway", "tollbridge"]]:
    difference = find_difference(previous.chain, current.chain)
    if diagnosis is not None and (named := _DIAGNOSES.get(diagnosis.reason)) is not None:
        kind, reason = named
        # OpenAI's input contains the system text.
        same_kinds = {kind, "system"} if diagnosis.reason == "input_changed" else {kind}
        if difference is not None and difference.kind in same_kinds:
            kind, reason = difference.kind, difference.sentence
        return kind, reason, "gateway"
    kind, reason = _compare(previous, current, rules, difference)
    return kind, reason, "tollbridge"


def _compare(
    previous: SentPrompt, current: SentPrompt, rules: CacheRules, difference: Difference | None
) -> tuple[Kind, str]:
    if difference is not None and difference.kind == "model":
        return difference.kind, difference.sentence
    if previous.provider and current.provider and previous.provider != current.provider:
        names = f'from "{previous.provider}" to "{current.provider}"'
        return "provider", f"The gateway switched the provider {names}; each has its own cache."
    actual = current.usage.cached_tokens or 0
    before = previous.usage.input_tokens or 0
    kept = before if difference is None else round(before * difference.kept / max(previous.chain.length, 1))
    lifetime = previous.chain.lifetime or rules.lifetime
    gap = current.started - previous.started
    if gap > lifetime and actual <= kept / 2:
        return "expired", (
            f"The last request was {_duration(gap)} ago; the provider keeps prompts for about "
            f"{_duration(lifetime)}."
        )
    if difference is not None:
        sentence = difference.sentence
        if not rules.explicit and kept >= rules.minimum and actual < kept / 2:
            sentence += f" It explains only a part: about {kept:,} tokens precede the difference."
        return difference.kind, sentence
    is_longer = len(current.chain.messages) > len(previous.chain.messages)
    if is_longer and (current.usage.input_tokens or 0) < (1 - _MISSED_SHARE) * before:
        return "cleared", "The gateway removed earlier content of the conversation (context management)."
    return "unknown", (
        "The reason is not known: the prompt begins with the previous one, which was sent "
        f"{_duration(gap)} ago. The provider may have removed it early, or another of its servers answered."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _cost_of_miss(usage: Usage, missed: int, prices: Prices | None) -> Decimal | None:
    """Return the difference to the cost of the same request with the missed tokens read from the cache."""
    if prices is None or prices.cache_read is None:
        return None
    written = usage.cache_write_tokens
    hit = msgspec.structs.replace(
        usage,
        cached_tokens=(usage.cached_tokens or 0) + missed,
        cache_write_tokens=None if written is None else max(0, written - missed),
    )
    actual_cost, hit_cost = prices.cost(usage), prices.cost(hit)
    return None if actual_cost is None or hit_cost is None else actual_cost - hit_cost
