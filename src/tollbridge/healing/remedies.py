"""The refusals that are known, and what cures each: by code, by the field they name, or by their words.

Servers have no common codes for these, so most lines match words. A line applies only to a request that has
what it would take away; a refusal that no line applies to is told as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Part,
    Role,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.quirks import Quirks, SystemAs

# What a remedy does besides changing quirks: turns the very proofs, files or calls of this history down.
REFUSE_PROOFS, REFUSE_FILES, SPEAK_CALLS = "refuse proofs", "refuse files", "speak calls"

Applies = Callable[[ChatRequest], bool]
Change = Callable[[Quirks], Quirks]


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
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


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        says="Reasoning that the gateway could not verify was left out.",
        codes=frozenset({"invalid_encrypted_content"}),
        words=_words(r"encrypted content .{0,60}could not be (?:verified|decrypted|parsed)"),
        applies=_has(ThinkingPart),
        marks=frozenset({REFUSE_PROOFS}),
    ),
    Remedy(
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
    Remedy(
        says="Reasoning was sent without its ids: the server keeps no items.",
        codes=frozenset({"item_not_found"}),
        words=_words(r"items? (?:with id )?\S{0,80} ?not found", r"items are not persisted when"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    Remedy(
        says="Reasoning was sent without its ids: two of them were one.",
        codes=frozenset({"duplicate_item"}),
        words=_words(r"duplicate items? (?:found )?with id"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    Remedy(
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
    Remedy(
        says="Reasoning was left out: the server wants what followed it.",
        words=_words(r"reasoning.{0,80}without its required following item"),
        applies=_has(ThinkingPart),
        marks=frozenset({REFUSE_PROOFS}),
    ),
    Remedy(
        says="Reasoning was sent in the field the server reads it from.",
        words=_words(
            r"item\['content'\] is (?:not an array|empty)", r"reasoning.{0,60}content.{0,20}required"
        ),
        applies=_has(ThinkingPart),
        change=_set(reasoning_as="content"),
    ),
    Remedy(
        says="Reasoning was left out: the server takes none back.",
        words=_words(rf"{_NO}.{{0,60}}['\"`]reasoning['\"`]", rf"reasoning items?.{{0,40}}{_NO}"),
        applies=_has(ThinkingPart),
        change=_set(reasoning=False),
    ),
    Remedy(
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
    Remedy(
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
    Remedy(
        says="Images and files were left out: the server takes text alone.",
        words=_words(
            r"content.{0,60}(?:must be|expected|should be).{0,20}\bstring\b",
            r"invalid type: (?:sequence|array|list).{0,20}expected a string",
            r"(?:array|list) content.{0,40}" + _NO,
        ),
        applies=lambda request: bool(data_of(request)),
        change=_set(images=False, files=False, rich_results=False),
    ),
    Remedy(
        says="Text was sent in a list: the server wants it so.",
        words=_words(
            r"content.{0,60}(?:must be|expected|should be).{0,20}(?:array|list)\b",
            r"invalid type: string.{0,60}expected a (?:sequence|array|list)",
        ),
        applies=_always,
        change=_set(text_as="array"),
    ),
    Remedy(
        says="Images of tool results were sent after them.",
        words=_words(r"\boutput\b.{0,80}(?:must be|expected|should be).{0,20}\bstring\b"),
        applies=_has_rich_results,
        change=_set(rich_results=False),
    ),
    Remedy(
        # One picture that cannot be read says nothing of the next: these very ones are left out from now on.
        says="Images and files that the gateway could not read were left out.",
        words=_words(rf"{_FILES}.{{0,80}}(?:{_UNREADABLE})", rf"(?:{_UNREADABLE}).{{0,80}}{_FILES}"),
        applies=lambda request: bool(data_of(request)),
        marks=frozenset({REFUSE_FILES}),
    ),
    Remedy(
        says="Images were left out: the model takes none.",
        words=_of_kind(r"input_image|image_url|images?|vision|multimodal"),
        applies=_has_images,
        change=_set(images=False),
    ),
    Remedy(
        says="Files were left out: the model takes none.",
        words=_of_kind(r"input_file|file_data|files?|documents?|pdf"),
        applies=_has_files,
        change=_set(files=False),
    ),
)
