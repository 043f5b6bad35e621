"""Repair a rejected request: find what the server does not accept, and how to send the request without it.

Servers have no common error codes for these errors, so most rules match the text of the message. A rule only
applies to a request that contains what the rule would change. An error that no rule applies to is reported
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from tollbridge.compat.profiles import REFUSED_LIMIT
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
    digest,
    unbind,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks, SystemAs

# The kinds of errors that the content of a request can cause; keys, limits and overload are not among them.
REPAIRABLE_KINDS = frozenset({"invalid_request", "not_found", "server"})


class Repair(msgspec.Struct, frozen=True):
    """What is known about the model after an error, and a sentence for each change to the request."""

    learned: LearnedQuirks
    changes: tuple[str, ...]


def find_repair(error: BridgeError, request: ChatRequest, learned: LearnedQuirks) -> Repair | None:
    """Find a way to send a rejected request again. All rules that match the error are applied at once.

    Args:
        error: The error that the gateway returned.
        request: The request as it was sent.
        learned: What was known about the model before.

    Returns:
        The repair, or `None` if no rule matches or all matching rules were applied before.
    """
    if error.kind not in REPAIRABLE_KINDS:
        return None
    fields = refused_fields(error, request)
    if fields and _names_a_parameter(error):
        return _omit_fields(fields, learned)
    return _apply_rules(error, request, learned) or _omit_fields(fields, learned)


def _apply_rules(error: BridgeError, request: ChatRequest, learned: LearnedQuirks) -> Repair | None:
    changes: list[str] = []
    for rule in REPAIR_RULES:
        if rule.matches(error) and rule.applies(request):
            changed = rule.apply(request, learned)
            if changed != learned:
                learned = changed
                changes.append(rule.change_note)
    return Repair(learned, tuple(changes)) if changes else None


def _omit_fields(fields: list[str], learned: LearnedQuirks) -> Repair | None:
    new = [field for field in fields if field not in learned.quirks.without]
    if not new:
        return None
    quirks = msgspec.structs.replace(learned.quirks, without=learned.quirks.without.union(new))
    return Repair(msgspec.structs.replace(learned, quirks=quirks), describe_omissions(new))


# --- Request fields that a server does not accept ---

PARAMETER_CODES = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter", "invalid_parameter"}
)
_REJECTION = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|not (?:supported|permitted|allowed|accepted)"
    r"|not available|only supported|only the default|does(?:n't| not) (?:support|accept|allow)|is invalid"
    r"|extra (?:inputs|fields|parameters)|additional propert|invalid (?:value|parameter|argument)",
    re.IGNORECASE,
)

# The optional fields of a request body, each with a test whether a request has it. The model, the messages,
# the tools and the output format are not optional.
OPTIONAL_FIELDS: Mapping[str, Callable[[ChatRequest], bool]] = {
    "temperature": lambda request: request.temperature is not None,
    "top_p": lambda request: request.top_p is not None,
    "max_output_tokens": lambda request: request.max_output_tokens is not None,
    "reasoning": lambda request: bool(request.reasoning_effort or request.reasoning_summary),
    "include": lambda request: bool(
        request.reasons
        or request.reasoning_effort
        or request.reasoning_summary
        or _has_extra(request, "include")
    ),
    "metadata": lambda request: bool(request.metadata),
    "parallel_tool_calls": lambda request: request.parallel_tool_calls is not None,
    "tool_choice": lambda request: request.tool_choice is not None,
    "store": lambda _request: True,
    "stream_options": lambda _request: True,  # of Chat Completions
}
# Other names of these fields, in errors that a gateway forwards from a provider.
FIELD_ALIASES: Mapping[str, str] = {
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
    """Return the optional fields of a request that an error is about.

    The error's `param` takes precedence over the field names in its message.
    """
    if error.code not in PARAMETER_CODES and not _REJECTION.search(error.message):
        return []
    names = {**{name: name for name in (*OPTIONAL_FIELDS, *(request.extra or {}))}, **FIELD_ALIASES}
    param = re.split(r"[\[.]", error.param or "")[0] if error.param not in names else error.param
    if param in names:
        fields = [names[param]]
    else:
        fields = list(dict.fromkeys(names[name] for name in names if _mentions(error.message, name)))
    return [field for field in fields if _has_field(request, field)]


def _names_a_parameter(error: BridgeError) -> bool:
    """Tell the parameter `reasoning` from the input item of that name, by the words of the error."""
    if error.code in PARAMETER_CODES:
        return True
    return re.search(r"\b(?:parameter|argument)s?\b", error.message, re.I) is not None


def omitted_fields(request: ChatRequest, quirks: Quirks) -> list[str]:
    """Return the fields of a request that are not sent because of the quirks.

    Fields that Tollbridge sets itself are not included: their omission is of no interest to users.
    """
    omitted = quirks.without - {"store", "stream_options"}
    return sorted(field for field in omitted if _has_field(request, field))


def describe_omissions(fields: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each field that is not sent."""
    return tuple(f"Removed {field}: not supported by this server." for field in fields)


def _mentions(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", message, re.IGNORECASE) is not None


def _has_field(request: ChatRequest, name: str) -> bool:
    return OPTIONAL_FIELDS[name](request) if name in OPTIONAL_FIELDS else _has_extra(request, name)


def _has_extra(request: ChatRequest, name: str) -> bool:
    return name in (request.extra or {})


# --- Repair rules ---

# Changes to the reasoning, files or tool calls of the rejected request, and not to those of later requests.
Action = Literal["drop reasoning", "drop files", "calls as text"]
RequestTest = Callable[[ChatRequest], bool]
QuirksChange = Callable[[Quirks], Quirks]


class RepairRule(msgspec.Struct, frozen=True, kw_only=True):
    """An error that is known, and the change that avoids it.

    Attributes:
        change_note: A sentence for the user about the change.
        pattern: Matches the message of the error.
        codes: Error codes that match without the pattern.
        applies: Whether a request contains what the rule changes.
        change: The change to the quirks, for all later requests.
        actions: Changes that only concern items of the rejected request.
    """

    change_note: str
    pattern: re.Pattern[str]
    applies: RequestTest
    codes: frozenset[str] = frozenset()
    change: QuirksChange | None = None
    actions: frozenset[Action] = frozenset()

    def matches(self, error: BridgeError) -> bool:
        return error.code in self.codes or self.pattern.search(error.message) is not None

    def apply(self, request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
        """Return what is known after the rule is applied to a rejected request."""
        if self.change is not None:
            learned = msgspec.structs.replace(learned, quirks=self.change(learned.quirks))
        if "drop reasoning" in self.actions:
            metadata = [part.metadata for part in _parts(request) if isinstance(part, ThinkingPart)]
            proofs = [unbind(part_metadata)[1] for part_metadata in metadata]
            digests = {digest(proof) for proof in proofs if proof}
            learned = msgspec.structs.replace(learned, refused=_add_bounded(learned.refused, digests))
        if "drop files" in self.actions:
            fingerprints = {fingerprint(part.data) for part in _data_parts(request)}
            learned = msgspec.structs.replace(learned, refused=_add_bounded(learned.refused, fingerprints))
        if "calls as text" in self.actions:
            calls = {part.call_id for part in _parts(request) if isinstance(part, ToolCallPart)}
            learned = msgspec.structs.replace(
                learned, calls_as_text=_add_bounded(learned.calls_as_text, calls)
            )
        return learned


def _add_bounded(items: frozenset[str], new: set[str]) -> frozenset[str]:
    """Add all new items, and drop earlier ones if there would be more than `REFUSED_LIMIT`."""
    room = max(0, REFUSED_LIMIT - len(new))
    return frozenset(new).union(list(items - new)[:room])


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


def _parts(request: ChatRequest) -> list[Part]:
    return [part for message in request.messages for part in message.parts]


def _has(*kinds: type[Part]) -> RequestTest:
    return lambda request: any(isinstance(part, kinds) for part in _parts(request))


def _data_parts(request: ChatRequest) -> list[DataPart]:
    results = [part for part in _parts(request) if isinstance(part, ToolResultPart)]
    parts = [*_parts(request), *(part for result in results for part in result.parts)]
    return [part for part in parts if isinstance(part, DataPart)]


def _has_images(request: ChatRequest) -> bool:
    return any(part.mime.startswith("image/") for part in _data_parts(request))


def _has_files(request: ChatRequest) -> bool:
    return any(not part.mime.startswith("image/") for part in _data_parts(request))


def _has_rich_results(request: ChatRequest) -> bool:
    results = (part for part in _parts(request) if isinstance(part, ToolResultPart))
    return any(isinstance(part, DataPart) for result in results for part in result.parts)


def _has_system(request: ChatRequest) -> bool:
    return any(message.role is Role.SYSTEM for message in request.messages)


def _always(_request: ChatRequest) -> bool:
    return True


def _set(**fields: object) -> QuirksChange:
    return lambda quirks: msgspec.structs.replace(quirks, **fields)


# The role to try next if the server rejects the role of the system prompt.
NEXT_SYSTEM_ROLE: Mapping[SystemAs, SystemAs] = {
    "developer": "system",
    "instructions": "system",
    "system": "user",
    "user": "user",
}


def _change_system_role(quirks: Quirks) -> Quirks:
    return msgspec.structs.replace(quirks, system=NEXT_SYSTEM_ROLE[quirks.system])


_NOT_ACCEPTED = (
    r"(?:not (?:supported|allowed|permitted|valid|accepted)|unsupported|unknown|unexpected|invalid"
    r"|unrecogni[sz]ed)"
)

# Errors about one file, which say nothing about other files of its type.
_FILES = r"(?:image|file|document|pdf|media)"
_UNREADABLE = (
    r"(?:could not|cannot|unable to) (?:be )?(?:process|read|decode|download)|corrupt|format|media.?type|mime"
    r"|base64|too (?:large|big|many)|dimension|pixels?|exceeds|is empty"
)


def _unsupported_type(names: str) -> re.Pattern[str]:
    """Match errors that reject a content type as a whole, and not because one file is unreadable."""
    rejection = rf"{_NOT_ACCEPTED}|not available|disabled|does(?:n't| not) (?:support|see|accept)"
    statement = rf"(?:(?:{names})\b.{{0,60}}(?:{rejection})|(?:{rejection}).{{0,60}}\b(?:{names}))"
    return re.compile(rf"\A(?!.*(?:{_UNREADABLE})).*{statement}", re.IGNORECASE | re.DOTALL)


REPAIR_RULES: tuple[RepairRule, ...] = (
    RepairRule(
        change_note="Removed reasoning that the gateway could not verify.",
        codes=frozenset({"invalid_encrypted_content"}),
        pattern=_any_of(r"encrypted content .{0,60}could not be (?:verified|decrypted|parsed)"),
        applies=_has(ThinkingPart),
        actions=frozenset({"drop reasoning"}),
    ),
    RepairRule(
        # Models that sign reasoning require it before each call. Without it, the calls are sent as text.
        change_note="Removed reasoning with a rejected signature; the calls it led to were sent as text.",
        codes=frozenset({"invalid_signature"}),
        pattern=_any_of(
            r"invalid.{0,20}signature.{0,40}(?:thinking|reasoning)",
            r"(?:thinking|reasoning).{0,60}(?:cannot be modified|invalid signature)",
            r"(?:corrupted|invalid) thought.?signature|thought.?signature is not valid",
        ),
        applies=_has(ThinkingPart),
        actions=frozenset({"drop reasoning", "calls as text"}),
    ),
    RepairRule(
        change_note="Sent reasoning without its IDs: the server does not store items.",
        codes=frozenset({"item_not_found"}),
        pattern=_any_of(r"items? (?:with id )?\S{0,80} ?not found", r"items are not persisted when"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    RepairRule(
        change_note="Sent reasoning without its IDs: duplicate IDs.",
        codes=frozenset({"duplicate_item"}),
        pattern=_any_of(r"duplicate items? (?:found )?with id"),
        applies=_has(ThinkingPart),
        change=_set(reasoning_ids=False),
    ),
    RepairRule(
        change_note="Sent earlier tool calls as text: they lack the model's signature.",
        pattern=_any_of(
            r"missing (?:a )?`?thought.?signature",
            r"expected `?(?:thinking|redacted_thinking)`?.{0,60}found",
            r"must start with a thinking block",
            r"function_call.{0,80}without its required .?reasoning",
            r"signature: field required",
        ),
        applies=_has(ToolCallPart),
        actions=frozenset({"calls as text"}),
    ),
    RepairRule(
        change_note="Removed reasoning: the server requires the following item.",
        pattern=_any_of(r"reasoning.{0,80}without its required following item"),
        applies=_has(ThinkingPart),
        actions=frozenset({"drop reasoning"}),
    ),
    RepairRule(
        change_note="Sent reasoning in the field that this server reads.",
        pattern=_any_of(
            r"item\['content'\] is (?:not an array|empty)", r"reasoning.{0,60}content.{0,20}required"
        ),
        applies=_has(ThinkingPart),
        change=_set(reasoning_as="content"),
    ),
    RepairRule(
        change_note="Removed reasoning: not accepted by this server.",
        pattern=_any_of(
            rf"{_NOT_ACCEPTED}.{{0,60}}['\"`]reasoning['\"`]", rf"reasoning items?.{{0,40}}{_NOT_ACCEPTED}"
        ),
        applies=_has(ThinkingPart),
        change=_set(reasoning=False),
    ),
    RepairRule(
        change_note="Sent tool calls and their results as text: not accepted by this server.",
        codes=frozenset({"no_tool_call_found", "no_tool_output_found"}),
        pattern=_any_of(
            r"no tool (?:call|output) found",
            r"tool_(?:use|call)_id.{0,60}(?:not found|without|unexpected)|unexpected.{0,10}tool_use_id",
            r"role.{0,4}tool.{0,40}must (?:be a response|follow)",
            rf"{_NOT_ACCEPTED}.{{0,60}}function_call|function_call(?:_output)?['\"`]?.{{0,40}}{_NOT_ACCEPTED}",
            r"^input: invalid input",
        ),
        applies=_has(ToolCallPart),
        change=_set(calls=False),
    ),
    RepairRule(
        change_note="Sent the system prompt in another role.",
        pattern=_any_of(
            rf"developer.{{0,60}}{_NOT_ACCEPTED}|{_NOT_ACCEPTED}.{{0,60}}developer",
            r"role.{0,80}(?:must be|one of|expected).{0,80}\bsystem\b",
            rf"(?:system|instructions).{{0,20}}(?:role|messages?)?.{{0,20}}{_NOT_ACCEPTED}",
            rf"{_NOT_ACCEPTED} (?:message )?role:? .{{0,4}}system",
        ),
        applies=_has_system,
        change=_change_system_role,
    ),
    RepairRule(
        change_note="Removed images and files: this server accepts only text.",
        pattern=_any_of(
            r"content.{0,60}(?:must be|expected|should be).{0,20}\bstring\b",
            r"invalid type: (?:sequence|array|list).{0,20}expected a string",
            r"(?:array|list) content.{0,40}" + _NOT_ACCEPTED,
        ),
        applies=lambda request: bool(_data_parts(request)),
        change=_set(images=False, files=False, rich_results=False),
    ),
    RepairRule(
        change_note="Sent text as a list: required by this server.",
        pattern=_any_of(
            r"content.{0,60}(?:must be|expected|should be).{0,20}(?:array|list)\b",
            r"invalid type: string.{0,60}expected a (?:sequence|array|list)",
        ),
        applies=_always,
        change=_set(text_as="array"),
    ),
    RepairRule(
        change_note="Sent images of tool results in a separate message.",
        pattern=_any_of(r"\boutput\b.{0,80}(?:must be|expected|should be).{0,20}\bstring\b"),
        applies=_has_rich_results,
        change=_set(rich_results=False),
    ),
    RepairRule(
        # An unreadable image says nothing about the next one: only these images are left out from now on.
        change_note="Removed images and files that the gateway could not read.",
        pattern=_any_of(rf"{_FILES}.{{0,80}}(?:{_UNREADABLE})", rf"(?:{_UNREADABLE}).{{0,80}}{_FILES}"),
        applies=lambda request: bool(_data_parts(request)),
        actions=frozenset({"drop files"}),
    ),
    RepairRule(
        change_note="Removed images: not accepted by this model.",
        pattern=_unsupported_type(r"input_image|image_url|images?|vision|multimodal"),
        applies=_has_images,
        change=_set(images=False),
    ),
    RepairRule(
        change_note="Removed files: not accepted by this model.",
        pattern=_unsupported_type(r"input_file|file_data|files?|documents?|pdf"),
        applies=_has_files,
        change=_set(files=False),
    ),
)
