"""Repair a rejected request: find what the server does not accept, and how to send the request without it.

The `param` of an error comes first, then its `code`. Servers have no common codes for these errors, so most
rules match the text of the message. A rule only applies to a request that contains what the rule would
change. An error that no rule applies to is reported unchanged. Fields that change privacy or the meaning of
the answer (`store`, `tool_choice`, the answer's format, the output limit, and everything the caller added)
are only found if the error clearly calls them unsupported.

A repair is a hypothesis about the server until a request is accepted: see `tollbridge.compat.profiles`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Literal

import msgspec

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
    split_metadata,
)
from tollbridge.types.quirks import (
    Basis,
    Evidence,
    Hypothesis,
    LearnedQuirks,
    Quirks,
    Scope,
    SystemAs,
)

# --- Parameters ---

PARAMETER_CODES = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter", "invalid_parameter"}
)
_REJECTION = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|not (?:supported|permitted|allowed|accepted)"
    r"|not available|only supported|only the default|does(?:n't| not) (?:support|accept|allow)|is invalid"
    r"|extra (?:inputs|fields|parameters)|additional propert|invalid (?:value|parameter|argument)",
    re.IGNORECASE,
)

# The fields that request prompt caching. The answer is the same without them.
_CACHE_FIELDS = ("cache_control", "caching", "prompt_cache_key")


def _requests_caching(field: str, request: ChatRequest) -> bool:
    if _has_extra(request, field):
        return True
    if field == "cache_control" and request.cache_points:
        return True
    return request.cache_prompt and request.quirks is not None and field in request.quirks.cache_fields


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
    **{name: partial(_requests_caching, name) for name in _CACHE_FIELDS},
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


# Fields that change privacy or the meaning of the answer. They are omitted only if the error says clearly
# that the server does not know them, and every turn without them says so.
SENSITIVE_FIELDS: Mapping[str, str] = {
    "store": "Removed store=false: not supported by this server. It may keep prompts and answers.",
    "tool_choice": "Removed tool_choice: not supported by this server. The model may call any tool or none.",
    "max_output_tokens": "Removed max_output_tokens: not supported by this server. Answers can be longer.",
    "text": "Removed text: not supported by this server. The answer may have another format.",
    "response_format": (
        "Removed response_format: not supported by this server. The answer may have another format."
    ),
}
SENSITIVE_NOTES = frozenset(SENSITIVE_FIELDS.values())
# The codes by which a server says that it does not know a parameter at all. With other codes, the server
# knows it and rejects its value: without `store=false`, such a server would keep the prompt.
_UNKNOWN_CODES = frozenset({"unsupported_parameter", "unknown_parameter"})
# Words of errors about a value, or about a combination of fields.
_CONDITION = re.compile(
    r"\b(?:values?|when|while|if|unless|only|requires?|together|combination)\b", re.IGNORECASE
)
# Parameters whose errors are about the content of the request.
_CONTENT_PARAMS = frozenset({"input", "messages", "instructions", "tools", "model", "prompt"})


def refused_fields(error: BridgeError, request: ChatRequest) -> list[str]:
    """Return the optional fields of a request that an error is about.

    The error's `param` takes precedence over the field names in its message. A field that changes privacy or
    meaning is only returned if the error says that the server does not support it.
    """
    if error.code not in PARAMETER_CODES and not _REJECTION.search(error.message):
        return []
    names = _field_names(request)
    error_field = param_field(error, request)
    if error_field is not None:
        fields = [error_field]
    elif re.split(r"[\[.]", error.param or "")[0] in _CONTENT_PARAMS:
        fields = []
    else:
        fields = list(dict.fromkeys(names[name] for name in names if _mentions(error.message, name)))
    return [
        field
        for field in fields
        if has_field(request, field)
        and (field in OPTIONAL_FIELDS.keys() - SENSITIVE_FIELDS or _is_unsupported(field, error, names))
    ]


def _field_names(request: ChatRequest) -> dict[str, str]:
    """Return the names that an error can use for the fields of a request, with the name of the field."""
    return {**{name: name for name in (*OPTIONAL_FIELDS, *(request.extra or {}))}, **FIELD_ALIASES}


def param_field(error: BridgeError, request: ChatRequest) -> str | None:
    """Return the field that the error names as its `param`."""
    names, param = _field_names(request), error.param or ""
    return names.get(param) or names.get(re.split(r"[\[.]", param)[0])


def _is_unsupported(field: str, error: BridgeError, names: Mapping[str, str]) -> bool:
    """Return whether an error says clearly that the server does not support a field."""
    aliases = [name for name in names if names[name] == field]
    if (error.param or "") in aliases and (error.code in _UNKNOWN_CODES or field == "tool_choice"):
        return True
    if _CONDITION.search(error.message):
        return False
    return any(_unsupported_pattern(name).search(error.message) for name in aliases)


@lru_cache(64)
def _unsupported_pattern(name: str) -> re.Pattern[str]:
    """Match sentences that call a parameter unsupported; to mention it is not enough."""
    kind = r"(?:(?:parameter|argument|field|option|key|input)(?:s|\(s\))?|property|properties)"
    name = re.escape(name)
    in_list = rf"[\s:\[('\"`]{{0,6}}(?:[\w.]{{1,40}}['\"`]?, ?['\"`]?){{0,8}}(?:body\.)?{name}(?!\w|\.\w)"
    not_allowed = r"not (?:supported|permitted|allowed|accepted|available|recogni[sz]ed)"
    unknown = r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected)"
    return re.compile(
        rf"\b(?:{unknown}|extra|additional) (?:\w{{1,12}} )?{kind}(?: (?:supplied|provided))?{in_list}"
        rf"|(?:{kind}) (?:are |is )?{not_allowed}(?: at| by this model)?{in_list}"
        rf"|does(?:n't| not) (?:support|accept|allow|recogni[sz]e) (?:the )?(?:{kind})?{in_list}"
        rf"|(?<![\w.]){name}['\"`]?(?: {kind})? is (?:{not_allowed}|{unknown})"
        rf"|(?<![\w.]){name}['\"`]?: (?:extra inputs|{unknown})",
        re.IGNORECASE,
    )


def names_a_parameter(error: BridgeError) -> bool:
    """Tell the parameter `reasoning` from the input item of that name, by the words of the error."""
    if error.code in PARAMETER_CODES:
        return True
    return re.search(r"\b(?:parameter|argument)s?\b", error.message, re.I) is not None


def omitted_fields(request: ChatRequest, quirks: Quirks) -> list[str]:
    """Return the fields of a request that are not sent because of the quirks.

    `stream_options` only asks for the usage of a stream, so its omission is of no interest to users. Nor is
    that of caching which the caller did not ask for.
    """
    own = {field for field in _CACHE_FIELDS if not _has_extra(request, field)}
    omitted = quirks.without - {"stream_options"} - own
    return sorted(field for field in omitted if has_field(request, field))


def describe_omissions(fields: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each field that is not sent."""
    return tuple(
        SENSITIVE_FIELDS.get(field, f"Removed {field}: not supported by this server.") for field in fields
    )


def _mentions(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", message, re.IGNORECASE) is not None


def has_field(request: ChatRequest, name: str) -> bool:
    """Return whether a field of the request body would be sent."""
    if name == "text" and request.output_format is not None:
        return True
    return OPTIONAL_FIELDS[name](request) if name in OPTIONAL_FIELDS else _has_extra(request, name)


def _has_extra(request: ChatRequest, name: str) -> bool:
    return name in (request.extra or {})


# --- Repairs ---

# The kinds of errors that the content of a request can cause; keys, limits and overload are not among them.
REPAIRABLE_KINDS = frozenset({"invalid_request", "not_found", "server"})
# The number of rejected items that are remembered; the oldest are dropped.
REFUSED_LIMIT = 4_096


class Repair(msgspec.Struct, frozen=True):
    """How to send a rejected request again.

    Attributes:
        learned: What the server accepts, if the hypotheses are right.
        changes: A sentence for each change to the request.
        hypotheses: What the error says about the server.
    """

    learned: LearnedQuirks
    changes: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...] = ()


def find_repair(error: BridgeError, request: ChatRequest, learned: LearnedQuirks) -> Repair | None:
    """Find a way to send a rejected request again. All rules that match the error are applied at once.

    The field that the error names as its `param` decides; then rules that match the error's code; then the
    words of the message. There is no repair if no rule matches, or if all were applied before.
    """
    if error.kind not in REPAIRABLE_KINDS:
        return None
    fields = refused_fields(error, request)
    if fields and param_field(error, request) is not None:
        return _omit_fields(error, fields, learned, "parameter")
    by_code = [rule for rule in REPAIR_RULES if error.code in rule.codes]
    if repair := _apply_rules(error, by_code, request, learned, "code"):
        return repair
    basis: Basis = "code" if error.code in PARAMETER_CODES else "words"
    if fields and names_a_parameter(error):
        return _omit_fields(error, fields, learned, basis)
    by_words = [rule for rule in REPAIR_RULES if rule.matches(error.message)]
    return _apply_rules(error, by_words, request, learned, "words") or _omit_fields(
        error, fields, learned, basis
    )


def _apply_rules(
    error: BridgeError,
    rules: Iterable[RepairRule],
    request: ChatRequest,
    learned: LearnedQuirks,
    basis: Basis,
) -> Repair | None:
    changes: list[str] = []
    hypotheses: list[Hypothesis] = []
    for rule in rules:
        changed = rule.apply(request, learned) if rule.applies(request) else learned
        if changed != learned:
            changes.append(rule.change_note)
            hypotheses += _compare(learned, changed, rule.scope, _evidence(error, basis))
            learned = changed
    return Repair(learned, tuple(changes), tuple(hypotheses)) if changes else None


def _omit_fields(
    error: BridgeError, fields: list[str], learned: LearnedQuirks, basis: Basis
) -> Repair | None:
    new = [field for field in fields if field not in learned.quirks.without]
    if not new:
        return None
    quirks = msgspec.structs.replace(learned.quirks, without=learned.quirks.without.union(new))
    changed = msgspec.structs.replace(learned, quirks=quirks)
    hypotheses = _compare(learned, changed, "model", _evidence(error, basis))
    return Repair(changed, describe_omissions(new), tuple(hypotheses))


# --- Hypotheses ---

# Quirks of the form of a request, which depend on the server's software: they hold for all its models.
# They lose no content, so a wrong one does little harm.
_FORM_QUIRKS = frozenset({"system", "text_as", "tools_as"})
# The characters of an error message that evidence contains.
_EVIDENCE_LIMIT = 160
# A quotation, which may be a part of the prompt, and a long run of letters and digits, which may be a key.
_QUOTATION = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^“”]*”")
_TOKEN = re.compile(r"[A-Za-z0-9_\-+/=]{24,}")


def _compare(
    before: LearnedQuirks, after: LearnedQuirks, scope: Scope, evidence: Evidence
) -> list[Hypothesis]:
    """Return a hypothesis for each difference.

    The scope of a single item is its conversation, that of a form quirk the server, and that of anything
    else what the rule says.
    """
    hypotheses = [
        Hypothesis("without", field, None, scope, evidence)
        for field in sorted(after.quirks.without - before.quirks.without)
    ]
    for name in Quirks.__struct_fields__:
        old, new = getattr(before.quirks, name), getattr(after.quirks, name)
        if name != "without" and old != new:
            field_scope: Scope = "server" if name in _FORM_QUIRKS else scope
            hypotheses.append(Hypothesis(name, str(old), new, field_scope, evidence))
    new_items = {name: getattr(after, name) - getattr(before, name) for name in ("refused", "calls_as_text")}
    hypotheses += [
        Hypothesis(name, "", sorted(items), "conversation", evidence)
        for name, items in new_items.items()
        if items
    ]
    return hypotheses


def _evidence(error: BridgeError, basis: Basis) -> Evidence:
    code, param = (value and _TOKEN.sub("…", value[:80]) for value in (error.code, error.param))
    return Evidence(basis, _redact(error.message), error.status, code, param)


def _redact(message: str) -> str:
    """Return the start of an error message without quotations, except names of fields, and without keys."""
    known = {*OPTIONAL_FIELDS, *FIELD_ALIASES, *_KNOWN_WORDS}
    text = _QUOTATION.sub(lambda match: match[0] if match[0][1:-1] in known else "'…'", message)
    text = " ".join(_TOKEN.sub("…", text).split())
    return text if len(text) <= _EVIDENCE_LIMIT else text[: _EVIDENCE_LIMIT - 1] + "…"


# --- Repair rules ---

# Changes to the reasoning, files or tool calls of the rejected request, and not to those of later requests.
Action = Literal["drop reasoning", "drop files", "calls as text"]
RequestTest = Callable[[ChatRequest], bool]
QuirksChange = Callable[[Quirks], Quirks]


class RepairRule(msgspec.Struct, frozen=True, kw_only=True):
    """An error that is known, and the change that avoids it.

    Attributes:
        change_note: A sentence for the user about the change.
        pattern: A regular expression that the message of the error matches. It is compiled on first use.
        codes: Error codes that match without the pattern.
        applies: Whether a request contains what the rule changes.
        change: The change to the quirks.
        actions: Changes that only concern items of the rejected request.
        scope: Where `change` holds: for the model, or only in the conversation if its history, and not the
            model, may be the cause. Changes of a request's form hold for the server.
    """

    change_note: str
    pattern: str
    applies: RequestTest
    codes: frozenset[str] = frozenset()
    change: QuirksChange | None = None
    actions: frozenset[Action] = frozenset()
    scope: Scope = "model"

    def matches(self, message: str) -> bool:
        """Return whether this is the message of the error."""
        return re.search(self.pattern, message, re.IGNORECASE | re.DOTALL) is not None

    def apply(self, request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
        """Return what is known after the rule is applied to a rejected request."""
        if self.change is not None:
            learned = msgspec.structs.replace(learned, quirks=self.change(learned.quirks))
        if "drop reasoning" in self.actions:
            metadata = [part.metadata for part in _parts(request) if isinstance(part, ThinkingPart)]
            proofs = [split_metadata(part_metadata)[1] for part_metadata in metadata]
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


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


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


# Words that error messages quote and that are no part of a prompt.
_KNOWN_WORDS = frozenset(
    "assistant content developer file function_call function_call_output image image_url input input_file "
    "input_image output reasoning signature store summary system text thinking thought_signature tool tools "
    "user".split()
)

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


def _unsupported_type(names: str) -> str:
    """Match errors that reject a content type as a whole, and not because one file is unreadable."""
    rejection = rf"{_NOT_ACCEPTED}|not available|disabled|does(?:n't| not) (?:support|see|accept)"
    statement = rf"(?:(?:{names})\b.{{0,60}}(?:{rejection})|(?:{rejection}).{{0,60}}\b(?:{names}))"
    return rf"\A(?!.*(?:{_UNREADABLE})).*{statement}"


# By field of `Quirks`: whether a request contains what the field is about.
CONTENT_TESTS: Mapping[str, RequestTest] = {
    "images": _has_images,
    "files": _has_files,
    "rich_results": _has_rich_results,
    "calls": _has(ToolCallPart),
    "reasoning": _has(ThinkingPart),
    "reasoning_ids": _has(ThinkingPart),
    "reasoning_as": _has(ThinkingPart),
    "system": _has_system,
    "text_as": _always,
    "tools_as": lambda request: bool(request.tools),
}

REPAIR_RULES: tuple[RepairRule, ...] = (
    RepairRule(
        change_note="Removed reasoning that the gateway could not verify.",
        codes=frozenset({"invalid_encrypted_content"}),
        pattern=r"encrypted content .{0,60}could not be (?:verified|decrypted|parsed)",
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
        pattern=r"duplicate items? (?:found )?with id",
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
        pattern=r"reasoning.{0,80}without its required following item",
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
        # These errors do not say that the server accepts no calls: this history may be the cause.
        change_note="Sent tool calls and their results as text: the gateway rejected this history.",
        codes=frozenset({"no_tool_call_found", "no_tool_output_found"}),
        pattern=_any_of(
            r"no tool (?:call|output) found",
            r"tool_(?:use|call)_id.{0,60}(?:not found|without|unexpected)|unexpected.{0,10}tool_use_id",
            r"role.{0,4}tool.{0,40}must (?:be a response|follow)",
            r"^input: invalid input",
        ),
        applies=_has(ToolCallPart),
        change=_set(calls=False),
        scope="conversation",
    ),
    RepairRule(
        change_note="Sent tool calls and their results as text: not accepted by this server.",
        pattern=_any_of(
            rf"{_NOT_ACCEPTED}.{{0,60}}function_call|function_call(?:_output)?['\"`]?.{{0,40}}{_NOT_ACCEPTED}",
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
        change=lambda quirks: msgspec.structs.replace(quirks, system=NEXT_SYSTEM_ROLE[quirks.system]),
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
        pattern=r"\boutput\b.{0,80}(?:must be|expected|should be).{0,20}\bstring\b",
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
