"""Digests of a prompt, in the order in which providers read it, and the first difference of two prompts.

Providers reuse the beginning of a prompt that they have read before, up to the first difference. A
`PromptChain` has a digest of everything that this depends on: model, options, tools, system text, messages.
It contains no text: only digests, lengths, roles, and the names of the model, the options and the tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from tollbridge.tokens.prompts import media_tokens, serialize, text_of
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, ToolResultPart
from tollbridge.types.models import ID_LIMIT

# --- Chains ---

_DIGEST_SIZE = 12
# A chunk of the system text ends at the first line or phrase that ends after 48 characters, or after 200. The
# digests of shorter texts could be guessed.
_CHUNK = re.compile(r".{48,200}?(?:[.!?:;,]\s|\n)|.{1,200}", re.DOTALL)
# The length of a medium is counted as so many characters per token.
_CHARACTERS_PER_TOKEN = 4
# Options that do not change how a provider reads the prompt. `prompt_cache_options` contains the id of the
# previous response, and its lifetime is read separately.
_NEUTRAL_OPTIONS = frozenset(
    {
        "cache_control",
        "cache_ttl",
        "client_metadata",
        "diagnostics",
        "include",
        "max_tokens",
        "metadata",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "seed",
        "stop",
        "store",
        "stream",
        "stream_options",
        "user",
    }
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
        model: The model.
        effort: The reasoning effort.
        options: Other options that are part of the prompt or select the cache, sorted by name.
        tools: The tools, in their order.
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
    return max(
        (int(match[1]) * (3600.0 if match[2] == "h" else 60.0) for match in matches if match), default=None
    )


def _length(links: Sequence[Link]) -> int:
    return sum(link.length for link in links)


# --- What providers document about their caches ---


class CacheRules(msgspec.Struct, frozen=True):
    """How a provider caches prompts.

    Attributes:
        minimum: The shortest prompt that is cached, in tokens.
        lifetime: Seconds without use after which a prompt is removed.
        explicit: Whether prompts are cached only on request.
    """

    minimum: int = 1024
    lifetime: float = 600.0
    explicit: bool = False


# The first pattern found in the model id decides. The default is that of OpenAI's older models, which keep
# prompts for 5 to 10 minutes.
RULES: tuple[tuple[str, CacheRules], ...] = (
    (r"claude.{0,40}(opus-4[.-][5-9]|haiku-4[.-]5)", CacheRules(4096, 300.0, explicit=True)),
    (r"claude.{0,40}(sonnet-4[.-]6|haiku)", CacheRules(2048, 300.0, explicit=True)),
    (r"claude", CacheRules(1024, 300.0, explicit=True)),
    (r"minimax", CacheRules(1024, 300.0, explicit=True)),
    (r"gemini-2", CacheRules(2048, 300.0)),
    (r"gemini", CacheRules(4096, 300.0)),
    (r"deepseek", CacheRules(64, 7200.0)),  # "a few hours to a few days"
    (r"gpt-(5\.([6-9]|\d\d)|[6-9])", CacheRules(1024, 1800.0)),
)
_COMPILED = tuple((re.compile(pattern), rules) for pattern, rules in RULES)
_DEFAULT_RULES = CacheRules()


def rules_for(model: str) -> CacheRules:
    lowered = model[:ID_LIMIT].lower()
    return next((rules for pattern, rules in _COMPILED if pattern.search(lowered)), _DEFAULT_RULES)


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
