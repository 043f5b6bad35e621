"""Explain how much of a prompt was read from the provider's prompt cache, and why not more.

Providers reuse the beginning of a prompt that they have read before, up to the first difference. A
`PromptChain` has a digest of everything that this depends on, in the order in which providers read it: model,
options, tools, system text, messages. It contains no text: only digests, lengths, roles, and the names of the
model, the options and the tools. `explain` compares a request with the previous one of its conversation:
their chains, times and providers, and the tokens that the gateway reported for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Literal

import msgspec

from tollbridge.policy.caching import CacheRules, rules_for
from tollbridge.tokens.media import media_tokens, text_of
from tollbridge.tokens.prompts import serialize
from tollbridge.types.events import CacheDiagnosis, Usage
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, ToolResultPart
from tollbridge.types.models import ID_LIMIT, Prices

# --- Chains ---

_DIGEST_SIZE = 12
# A chunk of the system text ends at the first line or phrase that ends after 48 characters, or after 200; the
# last one can be shorter. Anyone who can read the digests can check a guess of a text. That is easier for a
# short text, so chunks are not shorter; but a message can be. A salt would be stored beside the digests.
_CHUNK = re.compile(r".{48,200}?(?:[.!?:;,]\s|\n)|.{1,200}", re.DOTALL)
# An image or file counts as this many characters per estimated token.
_CHARACTERS_PER_TOKEN = 4
# Options that do not change how a provider reads the prompt. `prompt_cache_options` contains the id of the
# previous response, and its lifetime is read separately.
_NEUTRAL_OPTIONS = frozenset(
    "cache_control cache_ttl client_metadata diagnostics include max_tokens metadata prompt_cache_options "
    "prompt_cache_retention safety_identifier seed stop store stream stream_options user".split()
)
_NAME_LIMIT = 200  # characters of a name that is kept


class Link(msgspec.Struct, frozen=True, array_like=True):
    """One tool, message, option or chunk of the system text: its name, its digest and its length."""

    name: str
    digest: bytes
    length: int = 0


class PromptChain(msgspec.Struct, frozen=True):
    """What the prompt cache of a provider depends on, as digests.

    Attributes:
        options: Other options that are part of the prompt or select the cache, sorted by name.
        system: The chunks of the system text.
        messages: The messages after the system text. The name of each is its role.
        lifetime: The seconds for which the request asks to cache the prompt, if it does.
    """

    model: str
    effort: str | None = None
    options: tuple[Link, ...] = ()
    tools: tuple[Link, ...] = ()
    system: tuple[Link, ...] = ()
    messages: tuple[Link, ...] = ()
    lifetime: float | None = None

    @property
    def length(self) -> int:
        return _length(self.tools) + _length(self.system) + _length(self.messages)


def make_chain(request: ChatRequest) -> PromptChain:
    """Return the chain of a request as it is sent: after its history was made valid."""
    boundary = next(
        (index for index, message in enumerate(request.messages) if message.role is not Role.SYSTEM),
        len(request.messages),
    )
    system, messages = request.messages[:boundary], request.messages[boundary:]
    return PromptChain(
        model=request.model[:ID_LIMIT],
        effort=request.reasoning_effort and request.reasoning_effort[:_NAME_LIMIT],
        options=tuple(sorted(_make_options(request), key=lambda link: link.name)),
        tools=tuple(_make_link(tool.name, tool) for tool in request.tools),
        system=tuple(_split_system(system)),
        messages=tuple(_make_message_link(request.model, message) for message in messages),
        lifetime=_read_lifetime(request),
    )


def _make_link(name: str, value: object) -> Link:
    content = serialize(value)
    return Link(name[:_NAME_LIMIT], sha256(content).digest()[:_DIGEST_SIZE], len(content))


def _make_message_link(model: str, message: Message) -> Link:
    is_result = any(isinstance(part, ToolResultPart) for part in message.parts)
    link = _make_link("tool result" if is_result else message.role.value, message)
    length = link.length
    for part in message.parts:
        for data in part.parts if isinstance(part, ToolResultPart) else (part,):
            if isinstance(data, DataPart) and text_of(data) is None:
                length += _CHARACTERS_PER_TOKEN * media_tokens(model, data) - len(data.data)
    return link if length == link.length else msgspec.structs.replace(link, length=max(length, 1))


def _make_options(request: ChatRequest) -> Iterator[Link]:
    options: dict[str, object] = {
        "tool_choice": request.tool_choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "output_format": request.output_format,
        "reasoning_summary": request.reasoning_summary,
        # What the server does not accept decides how the same messages are encoded.
        "encoding": request.quirks and msgspec.structs.replace(request.quirks, unproven=frozenset()),
        **{name: value for name, value in (request.extra or {}).items() if name not in _NEUTRAL_OPTIONS},
    }
    for name, value in options.items():
        if value is not None:
            yield _make_link(name, value)


def _split_system(messages: Sequence[Message]) -> Iterator[Link]:
    """Split the system text into chunks that depend on their content, so that a change affects only a few."""
    texts = [getattr(part, "text", None) for message in messages for part in message.parts]
    text = "\n".join(text for text in texts if isinstance(text, str))
    for chunk in _CHUNK.findall(text):
        digest = sha256(chunk.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_SIZE]
        yield Link("", digest, len(chunk))


_LIFETIME = re.compile(r"(\d{1,4})([mh])")


def _read_lifetime(request: ChatRequest) -> float | None:
    """Return the longest lifetime that the request asks for."""
    extra = request.extra or {}
    options = [extra.get("prompt_cache_options"), extra.get("cache_control")]
    options += (request.cache_points or {}).values()
    values = [extra.get("cache_ttl"), extra.get("prompt_cache_retention")]
    values += [option.get("ttl") for option in options if isinstance(option, Mapping)]
    matches = [_LIFETIME.fullmatch(value) for value in values if isinstance(value, str)]
    lifetimes = (int(match[1]) * (3600.0 if match[2] == "h" else 60.0) for match in matches if match)
    return max(lifetimes, default=None)


def _length(links: Sequence[Link]) -> int:
    return sum(link.length for link in links)


# --- The first difference of two chains ---

Kind = Literal[
    "hit",
    "first",
    "unreported",
    "minimum",
    "not_requested",
    "model",
    "provider",
    "expired",
    "option",
    "tools",
    "system",
    "messages",
    "cleared",
    "unknown",
]


class Difference(msgspec.Struct, frozen=True):
    """The first difference of a prompt from the previous one. `kept` is the length of what precedes it."""

    kind: Kind
    sentence: str
    kept: int = 0


def find_difference(previous: PromptChain, current: PromptChain) -> Difference | None:
    """Return the first difference; `None` if one prompt begins with all of the other."""
    if previous.model != current.model:
        return Difference("model", f'The model changed from "{previous.model}" to "{current.model}".')
    if (sentence := _compare_options(previous, current)) is not None:
        # Claude reads tools and system text independently of these options.
        kept = _length(current.tools) + _length(current.system) if rules_for(current.model).explicit else 0
        return Difference("option", sentence, kept)
    index = _count_common(previous.tools, current.tools)
    kept = _length(current.tools[:index])
    if index < max(len(previous.tools), len(current.tools)):
        return Difference("tools", _describe_tools(previous.tools, current.tools, index), kept)
    if (change := _compare_system(previous.system, current.system)) is not None:
        return Difference("system", change[0], kept + change[1])
    kept += _length(current.system)
    index = _count_common(previous.messages, current.messages)
    if index == min(len(previous.messages), len(current.messages)):
        return None
    kept += _length(current.messages[:index])
    return Difference("messages", _describe_messages(previous.messages, current.messages, index), kept)


def is_continuation(previous: PromptChain, current: PromptChain) -> bool:
    """Return whether a prompt begins with all of the previous one."""
    is_shorter = len(current.messages) < len(previous.messages)
    return not is_shorter and find_difference(previous, current) is None


def _count_common(previous: Sequence[Link], current: Sequence[Link]) -> int:
    """Return how many links are the same at the start."""
    pairs = enumerate(zip(previous, current, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(previous), len(current)))


def _compare_options(previous: PromptChain, current: PromptChain) -> str | None:
    if previous.effort != current.effort:
        old, new = (effort or "the default" for effort in (previous.effort, current.effort))
        return f"The reasoning effort changed from {old} to {new}."
    old_links, new_links = ({link.name: link for link in chain.options} for chain in (previous, current))
    changed = [
        name for name in sorted({*old_links, *new_links}) if old_links.get(name) != new_links.get(name)
    ]
    if not changed:
        return None
    name = changed[0]
    if name == "encoding":
        return "The request is encoded differently, because of what was learned about the server."
    action = "was added" if name not in old_links else "was removed" if name not in new_links else "changed"
    return f"The option `{name}` {action}{_and_others(len(changed) - 1)}."


def _describe_tools(previous: Sequence[Link], current: Sequence[Link], index: int) -> str:
    old_names, new_names = [tool.name for tool in previous], [tool.name for tool in current]
    added = [name for name in new_names if name not in old_names]
    removed = [name for name in old_names if name not in new_names]
    old = old_names[index] if index < len(previous) else None
    new = new_names[index] if index < len(current) else None
    if new is not None and new == old:
        tools = {tool.name: tool for tool in previous}
        others = sum(tool.name in tools and tools[tool.name] != tool for tool in current) - 1
        return f'The definition of the tool "{new}" changed{_and_others(others)}.'
    if new in added:
        return f'The tool "{new}" was added{_and_others(len(added) - 1)}.'
    if old in removed:
        return f'The tool "{old}" was removed{_and_others(len(removed) - 1)}.'
    # Both exist in both lists. If the rest of the old list continues with the new tool, the old one moved.
    moved = old if old_names[index + 1 : index + 2] == [new] else new
    if moved is None or moved not in old_names or moved not in new_names:
        return "The list of tools changed."
    return (
        f'The tool "{moved}" moved from position {old_names.index(moved) + 1} '
        f"to {new_names.index(moved) + 1} of {len(current)}."
    )


def _and_others(count: int) -> str:
    return "" if count <= 0 else " (and 1 other)" if count == 1 else f" (and {count:,} others)"


def _compare_system(previous: Sequence[Link], current: Sequence[Link]) -> tuple[str, int] | None:
    """Return a sentence about the changed part of the system text, and the length before it."""
    start = _count_common(previous, current)
    if start == len(previous) == len(current):
        return None
    if not previous or not current:
        return f"The system text was {'removed' if previous else 'added'}.", 0
    # The common end must not overlap the common start.
    limit = min(len(previous), len(current)) - start
    end = min(_count_common(previous[::-1], current[::-1]), limit)
    kept, total = _length(current[:start]), _length(current)
    last = total - _length(current[len(current) - end :])
    if last > kept:
        return f"The system text changed within characters {kept + 1:,} to {last:,} of {total:,}.", kept
    removed = _length(previous[start : len(previous) - end])
    return f"{removed:,} characters of the system text were removed after character {kept:,}.", kept


def _describe_messages(previous: Sequence[Link], current: Sequence[Link], index: int) -> str:
    """Describe the first difference of two lists of messages, which both continue at `index`."""
    number, link = index + 1, current[index]
    if link in previous[index + 1 :]:
        last = index + previous[index + 1 :].index(link) + 1
        if last == number:
            return f"Message {number:,} ({previous[index].name}) was removed."
        return f"Messages {number:,} to {last:,} were removed."
    if previous[index] in current[index + 1 :]:
        last = index + current[index + 1 :].index(previous[index]) + 1
        if last == number:
            return f"Message {number:,} ({link.name}) was inserted."
        return f"Messages {number:,} to {last:,} were inserted."
    return f"Message {number:,} of {len(current):,} ({link.name}) changed."


# --- Explanations ---

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
        started: When it was sent, in seconds since the epoch.
        provider: The provider that answered, if the gateway says which.
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
        same_conversation: Whether the caller says that they belong to the same conversation. Otherwise they
            must have a message in common.
    """
    scored = []
    for prompt in candidates:
        # The length of the messages that are in both prompts, at any place.
        known = {link.digest for link in prompt.chain.messages}
        shared = sum(link.length for link in current.messages if link.digest in known)
        # Editors send other requests in a conversation, such as for its title, with no tools or others.
        if shared or (same_conversation and current.tools and prompt.chain.tools == current.tools):
            difference = find_difference(prompt.chain, current)
            kept = current.length if difference is None else difference.kept
            scored.append((shared + kept, prompt.started, prompt))
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def explain(
    current: SentPrompt,
    previous: SentPrompt | None,
    prices: Prices | None = None,
    diagnosis: CacheDiagnosis | None = None,
) -> CacheReport:
    """Explain how much of a prompt was read from the cache.

    Args:
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
