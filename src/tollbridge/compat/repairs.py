"""From a refusal to a cure: everything that is known to help, in one go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from tollbridge.compat.profiles import REFUSED_LIMIT, LearnedQuirks
from tollbridge.types.errors import BridgeError
from tollbridge.types.media import fingerprint
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Part,
    Role,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import Quirks, SystemAs
from tollbridge.types.reasoning import digest, unbind

# SECTION Parameters a server does not take: which of those that were sent a refusal is about.

CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "invalid_parameter"})
_REFUSED = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|not (?:supported|permitted|allowed|accepted)"
    r"|not available|only supported|only the default|does(?:n't| not) (?:support|accept|allow)|is invalid"
    r"|extra (?:inputs|fields|parameters)|additional propert|invalid (?:value|parameter|argument)",
    re.IGNORECASE,
)

# The fields of the body a turn can do without, and whether a request has them. Not among them: the model, the
# conversation, its tools, and the form the answer must have.
FIELDS: Mapping[str, Callable[[ChatRequest], bool]] = {
    "temperature": lambda request: request.temperature is not None,
    "top_p": lambda request: request.top_p is not None,
    "max_output_tokens": lambda request: request.max_output_tokens is not None,
    "reasoning": lambda request: bool(request.reasoning_effort or request.reasoning_summary),
    "include": lambda request: bool(
        request.reasons or request.reasoning_effort or request.reasoning_summary or _extra(request, "include")
    ),
    "metadata": lambda request: bool(request.metadata),
    "parallel_tool_calls": lambda request: request.parallel_tool_calls is not None,
    "tool_choice": lambda request: request.tool_choice is not None,
    "store": lambda _request: True,
}
# Other names for them, in refusals that come from behind the gateway.
ALIASES: Mapping[str, str] = {
    "topP": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "maxOutputTokens": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "reasoningEffort": "reasoning",
    "reasoning.effort": "reasoning",
    "reasoning.summary": "reasoning",
    "thinking": "reasoning",
    "reasoning.encrypted_content": "include",
    "encrypted content": "include",
    "toolChoice": "tool_choice",
}


def refused_fields(error: BridgeError, request: ChatRequest) -> list[str]:
    """The fields to leave out. A field the refusal names outright is meant before any that its words hold."""
    if error.code not in CODES and not _REFUSED.search(error.message):
        return []
    known = {**{name: name for name in (*FIELDS, *(request.extra or {}))}, **ALIASES}
    named = re.split(r"[\[.]", error.param or "")[0] if error.param not in known else error.param
    if named in known:
        found = [known[named]]
    else:
        found = list(dict.fromkeys(known[name] for name in known if _says(error.message, name)))
    return [name for name in found if _has_field(request, name)]


def calls_it_a_parameter(error: BridgeError) -> bool:
    """`reasoning` is a parameter and a kind of item: which is meant shows in the words around it."""
    return error.code in CODES or re.search(r"\b(?:parameter|argument)s?\b", error.message, re.I) is not None


def omitted_fields(request: ChatRequest, quirks: Quirks) -> list[str]:
    """The fields of a request that its server is known not to take; ours (`store`) are not worth a word."""
    return sorted(field for field in quirks.without if field != "store" and _has_field(request, field))


def describe_omissions(fields: Iterable[str]) -> tuple[str, ...]:
    """The same for a person, a sentence each."""
    return tuple(f"Sent without {field}: the server does not take it." for field in fields)


def _says(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", message, re.IGNORECASE) is not None


def _has_field(request: ChatRequest, name: str) -> bool:
    return FIELDS[name](request) if name in FIELDS else _extra(request, name)


def _extra(request: ChatRequest, name: str) -> bool:
    return name in (request.extra or {})


# SECTION The refusals that are known, and what cures each: by code, by the field they name, or by their words.
#
# Servers have no common codes for these, so most lines match words. A line applies only to a request that has
# what it would take away; a refusal that no line applies to is told as it is.

# What a remedy does besides changing quirks: turns the very proofs, files or calls of this history down.
REFUSE_PROOFS, REFUSE_FILES, SPEAK_CALLS = "refuse proofs", "refuse files", "speak calls"

Applies = Callable[[ChatRequest], bool]
Change = Callable[[Quirks], Quirks]


class RepairRule(msgspec.Struct, frozen=True, kw_only=True):
    says: str
    words: re.Pattern[str]
    applies: Applies
    codes: frozenset[str] = frozenset()
    change: Change | None = None
    marks: frozenset[str] = frozenset()


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


def _parts(request: ChatRequest) -> list[Part]:
    return [part for message in request.messages for part in message.parts]


def _has(*kinds: type[Part]) -> Applies:
    return lambda request: any(isinstance(part, kinds) for part in _parts(request))


def data_of(request: ChatRequest) -> list[DataPart]:
    results = [part for part in _parts(request) if isinstance(part, ToolResultPart)]
    found = [*_parts(request), *(each for result in results for each in result.parts)]
    return [part for part in found if isinstance(part, DataPart)]


def _has_images(request: ChatRequest) -> bool:
    return any(part.mime.startswith("image/") for part in data_of(request))


def _has_files(request: ChatRequest) -> bool:
    return any(not part.mime.startswith("image/") for part in data_of(request))


def _has_rich_results(request: ChatRequest) -> bool:
    results = (part for part in _parts(request) if isinstance(part, ToolResultPart))
    return any(isinstance(each, DataPart) for result in results for each in result.parts)


def _has_system(request: ChatRequest) -> bool:
    return any(message.role is Role.SYSTEM for message in request.messages)


def _always(_request: ChatRequest) -> bool:
    return True


def _set(**fields: object) -> Change:
    return lambda quirks: msgspec.structs.replace(quirks, **fields)


# What the system prompt becomes when the server does not know what it is.
NEXT_SYSTEM: Mapping[SystemAs, SystemAs] = {
    "developer": "system",
    "instructions": "system",
    "system": "user",
    "user": "user",
}


def _next_system(quirks: Quirks) -> Quirks:
    return msgspec.structs.replace(quirks, system=NEXT_SYSTEM[quirks.system])


_NO = (
    r"(?:not (?:supported|allowed|permitted|valid|accepted)|unsupported|unknown|unexpected|invalid"
    r"|unrecogni[sz]ed)"
)

# A fault of one file, and not of its kind.
_FILES = r"(?:image|file|document|pdf|media)"
_UNREADABLE = (
    r"(?:could not|cannot|unable to) (?:be )?(?:process|read|decode|download)|corrupt|format|media.?type|mime"
    r"|base64|too (?:large|big|many)|dimension|pixels?|exceeds|is empty"
)


def _of_kind(names: str) -> re.Pattern[str]:
    """That a kind of content is not taken at all: said of the kind, and of nothing that is wrong with one."""
    refused = rf"{_NO}|not available|disabled|does(?:n't| not) (?:support|see|accept)"
    named = rf"(?:(?:{names})\b.{{0,60}}(?:{refused})|(?:{refused}).{{0,60}}\b(?:{names}))"
    return re.compile(rf"\A(?!.*(?:{_UNREADABLE})).*{named}", re.IGNORECASE | re.DOTALL)


REPAIR_RULES: tuple[RepairRule, ...] = (
    RepairRule(
        says="Reasoning that the gateway could not verify was left out.",
        codes=frozenset({"invalid_encrypted_content"}),
        words=_words(r"encrypted content .{0,60}could not be (?:verified|decrypted|parsed)"),
        applies=_has(ThinkingPart),
        marks=frozenset({REFUSE_PROOFS}),
    ),
    RepairRule(
        # Models that sign their thoughts want one before each call, so calls whose thought goes go with it.
        says="Reasoning whose signature was refused was left out, and the calls it led to were sent as text.",
        codes=frozenset({"invalid_signature"}),
        words=_words(
            r"invalid.{0,20}signature.{0,40}(?:thinking|reasoning)",
            r"(?:thinking|reasoning).{0,60}(?:cannot be modified|invalid signature)",
            r"(?:corrupted|invalid) thought.?signature|thought.?signature is not valid",
        ),
        applies=_has(ThinkingPart),
        marks=frozenset({REFUSE_PROOFS, SPEAK_CALLS}),
    ),
    RepairRule(
        says="Reasoning was sent without its ids: the server keeps no items.",
        codes=frozenset({"item_not_found"}),
        words=_words(r"items? (?:with id )?\S{0,80} ?not found", r"items are not persisted when"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    RepairRule(
        says="Reasoning was sent without its ids: two of them were one.",
        codes=frozenset({"duplicate_item"}),
        words=_words(r"duplicate items? (?:found )?with id"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    RepairRule(
        says="Earlier tool calls were sent as text: they lack the model's signature.",
        words=_words(
            r"missing (?:a )?`?thought.?signature",
            r"expected `?(?:thinking|redacted_thinking)`?.{0,60}found",
            r"must start with a thinking block",
            r"function_call.{0,80}without its required .?reasoning",
            r"signature: field required",
        ),
        applies=_has(ToolCallPart),
        marks=frozenset({SPEAK_CALLS}),
    ),
    RepairRule(
        says="Reasoning was left out: the server wants what followed it.",
        words=_words(r"reasoning.{0,80}without its required following item"),
        applies=_has(ThinkingPart),
        marks=frozenset({REFUSE_PROOFS}),
    ),
    RepairRule(
        says="Reasoning was sent in the field the server reads it from.",
        words=_words(
            r"item\['content'\] is (?:not an array|empty)", r"reasoning.{0,60}content.{0,20}required"
        ),
        applies=_has(ThinkingPart),
        change=_set(reasoning_as="content"),
    ),
    RepairRule(
        says="Reasoning was left out: the server takes none back.",
        words=_words(rf"{_NO}.{{0,60}}['\"`]reasoning['\"`]", rf"reasoning items?.{{0,40}}{_NO}"),
        applies=_has(ThinkingPart),
        change=_set(reasoning=False),
    ),
    RepairRule(
        says="Tool calls and their results were sent as text: the server takes none back.",
        codes=frozenset({"no_tool_call_found", "no_tool_output_found"}),
        words=_words(
            r"no tool (?:call|output) found",
            r"tool_(?:use|call)_id.{0,60}(?:not found|without|unexpected)|unexpected.{0,10}tool_use_id",
            r"role.{0,4}tool.{0,40}must (?:be a response|follow)",
            rf"{_NO}.{{0,60}}function_call|function_call(?:_output)?['\"`]?.{{0,40}}{_NO}",
            r"^input: invalid input",
        ),
        applies=_has(ToolCallPart),
        change=_set(calls=False),
    ),
    RepairRule(
        says="The system prompt was sent in another role.",
        words=_words(
            rf"developer.{{0,60}}{_NO}|{_NO}.{{0,60}}developer",
            r"role.{0,80}(?:must be|one of|expected).{0,80}\bsystem\b",
            rf"(?:system|instructions).{{0,20}}(?:role|messages?)?.{{0,20}}{_NO}",
            rf"{_NO} (?:message )?role:? .{{0,4}}system",
        ),
        applies=_has_system,
        change=_next_system,
    ),
    RepairRule(
        says="Images and files were left out: the server takes text alone.",
        words=_words(
            r"content.{0,60}(?:must be|expected|should be).{0,20}\bstring\b",
            r"invalid type: (?:sequence|array|list).{0,20}expected a string",
            r"(?:array|list) content.{0,40}" + _NO,
        ),
        applies=lambda request: bool(data_of(request)),
        change=_set(images=False, files=False, rich_results=False),
    ),
    RepairRule(
        says="Text was sent in a list: the server wants it so.",
        words=_words(
            r"content.{0,60}(?:must be|expected|should be).{0,20}(?:array|list)\b",
            r"invalid type: string.{0,60}expected a (?:sequence|array|list)",
        ),
        applies=_always,
        change=_set(text_as="array"),
    ),
    RepairRule(
        says="Images of tool results were sent after them.",
        words=_words(r"\boutput\b.{0,80}(?:must be|expected|should be).{0,20}\bstring\b"),
        applies=_has_rich_results,
        change=_set(rich_results=False),
    ),
    RepairRule(
        # One picture that cannot be read says nothing of the next: these very ones are left out from now on.
        says="Images and files that the gateway could not read were left out.",
        words=_words(rf"{_FILES}.{{0,80}}(?:{_UNREADABLE})", rf"(?:{_UNREADABLE}).{{0,80}}{_FILES}"),
        applies=lambda request: bool(data_of(request)),
        marks=frozenset({REFUSE_FILES}),
    ),
    RepairRule(
        says="Images were left out: the model takes none.",
        words=_of_kind(r"input_image|image_url|images?|vision|multimodal"),
        applies=_has_images,
        change=_set(images=False),
    ),
    RepairRule(
        says="Files were left out: the model takes none.",
        words=_of_kind(r"input_file|file_data|files?|documents?|pdf"),
        applies=_has_files,
        change=_set(files=False),
    ),
)


# SECTION From a refusal to a cure: everything that is known to help, in one go.

# Refusals of the request itself; keys, limits and overload are none of its fault.
REPAIRABLE = frozenset({"invalid_request", "not_found", "server"})


class Repair(msgspec.Struct, frozen=True):
    """What is known from now on, and a sentence for each thing that is done differently."""

    learned: LearnedQuirks
    changes: tuple[str, ...]


def find_repair(error: BridgeError, request: ChatRequest, learned: LearnedQuirks) -> Repair | None:
    """`request` is the one that was refused. `None` where nothing is known to help, or it was all tried."""
    if error.kind not in REPAIRABLE:
        return None
    fields = refused_fields(error, request)
    if fields and calls_it_a_parameter(error):
        return _without(fields, learned)
    return _remedied(error, request, learned) or _without(fields, learned)


def _remedied(error: BridgeError, request: ChatRequest, learned: LearnedQuirks) -> Repair | None:
    found = learned
    changes: list[str] = []
    for remedy in REPAIR_RULES:
        if _fits(remedy, error) and remedy.applies(request):
            changed = _apply(remedy, request, found)
            if changed != found:
                found = changed
                changes.append(remedy.says)
    return Repair(found, tuple(changes)) if changes else None


def _without(fields: list[str], learned: LearnedQuirks) -> Repair | None:
    new = [field for field in fields if field not in learned.quirks.without]
    if not new:
        return None
    quirks = msgspec.structs.replace(learned.quirks, without=learned.quirks.without.union(new))
    return Repair(msgspec.structs.replace(learned, quirks=quirks), describe_omissions(new))


def _fits(remedy: RepairRule, error: BridgeError) -> bool:
    if error.code in remedy.codes:
        return True
    return remedy.words.search(error.message) is not None


def _apply(remedy: RepairRule, request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
    if remedy.change is not None:
        learned = msgspec.structs.replace(learned, quirks=remedy.change(learned.quirks))
    parts = [part for message in request.messages for part in message.parts]
    if REFUSE_PROOFS in remedy.marks:
        thoughts = [unbind(part.metadata)[1] for part in parts if isinstance(part, ThinkingPart)]
        proofs = {digest(proof) for proof in thoughts if proof}
        learned = msgspec.structs.replace(learned, refused=_bounded(learned.refused, proofs))
    if REFUSE_FILES in remedy.marks:
        files = {fingerprint(part.data) for part in data_of(request)}
        learned = msgspec.structs.replace(learned, refused=_bounded(learned.refused, files))
    if SPEAK_CALLS in remedy.marks:
        calls = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
        learned = msgspec.structs.replace(learned, spoken=_bounded(learned.spoken, calls))
    return learned


def _bounded(known: frozenset[str], new: set[str]) -> frozenset[str]:
    """All of the new ones, and as many of those before as there is room for."""
    room = max(0, REFUSED_LIMIT - len(new))
    return frozenset(new).union(list(known - new)[:room])
