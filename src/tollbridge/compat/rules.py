"""The repair rules: known errors of servers, and the changes that avoid them.

Servers have no common codes for these errors, so most rules match the text of the message. A rule only
applies to a request that contains what the rule would change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

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
from tollbridge.types.quirks import LearnedQuirks, Scope, SystemAs

# The number of rejected items that are remembered; the oldest are dropped.
REFUSED_LIMIT = 4_096

RequestTest = Callable[[ChatRequest], bool]


def _parts(request: ChatRequest) -> list[Part]:
    return [part for message in request.messages for part in message.parts]


def _result_files(request: ChatRequest) -> list[DataPart]:
    results = [part for part in _parts(request) if isinstance(part, ToolResultPart)]
    return [part for result in results for part in result.parts if isinstance(part, DataPart)]


def _files(request: ChatRequest) -> list[DataPart]:
    return [*(part for part in _parts(request) if isinstance(part, DataPart)), *_result_files(request)]


def _has(kind: type[Part]) -> RequestTest:
    return lambda request: any(isinstance(part, kind) for part in _parts(request))


# By field of `Quirks`: whether a request contains what the field is about.
CONTENT_TESTS: Mapping[str, RequestTest] = {
    "images": lambda request: any(part.mime.startswith("image/") for part in _files(request)),
    "files": lambda request: any(not part.mime.startswith("image/") for part in _files(request)),
    "rich_results": lambda request: bool(_result_files(request)),
    "calls": _has(ToolCallPart),
    "reasoning": _has(ThinkingPart),
    "reasoning_ids": _has(ThinkingPart),
    "reasoning_as": _has(ThinkingPart),
    "system": lambda request: any(message.role is Role.SYSTEM for message in request.messages),
    "text_as": lambda _request: True,
    "tools_as": lambda request: bool(request.tools),
}


class Change(msgspec.Struct, frozen=True):
    """A change to what is known about a server, after it has rejected a request.

    `applies` is whether the request contains what is changed.
    """

    applies: RequestTest
    apply: Callable[[ChatRequest, LearnedQuirks], LearnedQuirks]


def _set(**fields: object) -> Change:
    """Return a change that sets quirks."""

    def apply(_: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
        return msgspec.structs.replace(learned, quirks=msgspec.structs.replace(learned.quirks, **fields))

    return Change(lambda request: any(CONTENT_TESTS[name](request) for name in fields), apply)


# The role to try next if the server rejects the role of the system prompt; otherwise that of the user.
_NEXT_SYSTEM_ROLE: Mapping[SystemAs, SystemAs] = {"developer": "system", "instructions": "system"}


def _use_next_role(request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
    role = _NEXT_SYSTEM_ROLE.get(learned.quirks.system, "user")
    return _set(system=role).apply(request, learned)


# The following change what is sent of the rejected request, and not what is sent of later requests.


def _drop_reasoning(request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
    metadata = [part.metadata for part in _parts(request) if isinstance(part, ThinkingPart)]
    proofs = [split_metadata(part_metadata)[1] for part_metadata in metadata]
    digests = {digest(proof) for proof in proofs if proof}
    return msgspec.structs.replace(learned, refused=_add_bounded(learned.refused, digests))


def _drop_files(request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
    fingerprints = {fingerprint(part.data) for part in _files(request)}
    return msgspec.structs.replace(learned, refused=_add_bounded(learned.refused, fingerprints))


def _send_calls_as_text(request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
    calls = {part.call_id for part in _parts(request) if isinstance(part, ToolCallPart)}
    return msgspec.structs.replace(learned, calls_as_text=_add_bounded(learned.calls_as_text, calls))


def _add_bounded(items: frozenset[str], new: set[str]) -> frozenset[str]:
    """Add all new items, and drop earlier ones if there would be more than `REFUSED_LIMIT`."""
    room = max(0, REFUSED_LIMIT - len(new))
    return frozenset(new).union(list(items - new)[:room])


NEXT_ROLE = Change(CONTENT_TESTS["system"], _use_next_role)
DROP_REASONING = Change(_has(ThinkingPart), _drop_reasoning)
DROP_FILES = Change(lambda request: bool(_files(request)), _drop_files)
CALLS_AS_TEXT = Change(_has(ToolCallPart), _send_calls_as_text)


class RepairRule(msgspec.Struct, frozen=True, kw_only=True):
    """An error that is known, and the changes that avoid it.

    Attributes:
        change_note: A sentence for the user about the change.
        pattern: A regular expression that the message of the error matches. It is compiled on first use.
        codes: Error codes that match without the pattern.
        changes: The changes. The rule applies to a request if the first of them does.
        scope: Where changed quirks hold: for the model, or only in the conversation if its history, and not
            the model, may be the cause. Changes of a request's form hold for the server.
    """

    change_note: str
    pattern: str
    changes: tuple[Change, ...]
    codes: frozenset[str] = frozenset()
    scope: Scope = "model"

    def matches(self, message: str) -> bool:
        """Return whether this is the message of the error."""
        return re.search(self.pattern, message, re.IGNORECASE | re.DOTALL) is not None

    def apply(self, request: ChatRequest, learned: LearnedQuirks) -> LearnedQuirks:
        """Return what is known after a request was rejected with this error."""
        if self.changes[0].applies(request):
            for change in self.changes:
                learned = change.apply(request, learned)
        return learned


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


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


REPAIR_RULES: tuple[RepairRule, ...] = (
    RepairRule(
        change_note="Removed reasoning that the gateway could not verify.",
        codes=frozenset({"invalid_encrypted_content"}),
        pattern=r"encrypted content .{0,60}could not be (?:verified|decrypted|parsed)",
        changes=(DROP_REASONING,),
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
        changes=(DROP_REASONING, CALLS_AS_TEXT),
    ),
    RepairRule(
        change_note="Sent reasoning without its IDs: the server does not store items.",
        codes=frozenset({"item_not_found"}),
        pattern=_any_of(r"items? (?:with id )?\S{0,80} ?not found", r"items are not persisted when"),
        changes=(_set(reasoning_ids=False),),
    ),
    RepairRule(
        change_note="Sent reasoning without its IDs: duplicate IDs.",
        codes=frozenset({"duplicate_item"}),
        pattern=r"duplicate items? (?:found )?with id",
        changes=(_set(reasoning_ids=False),),
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
        changes=(CALLS_AS_TEXT,),
    ),
    RepairRule(
        change_note="Removed reasoning: the server requires the following item.",
        pattern=r"reasoning.{0,80}without its required following item",
        changes=(DROP_REASONING,),
    ),
    RepairRule(
        change_note="Sent reasoning in the field that this server reads.",
        pattern=_any_of(
            r"item\['content'\] is (?:not an array|empty)", r"reasoning.{0,60}content.{0,20}required"
        ),
        changes=(_set(reasoning_as="content"),),
    ),
    RepairRule(
        change_note="Removed reasoning: not accepted by this server.",
        pattern=_any_of(
            rf"{_NOT_ACCEPTED}.{{0,60}}['\"`]reasoning['\"`]", rf"reasoning items?.{{0,40}}{_NOT_ACCEPTED}"
        ),
        changes=(_set(reasoning=False),),
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
        changes=(_set(calls=False),),
        scope="conversation",
    ),
    RepairRule(
        change_note="Sent tool calls and their results as text: not accepted by this server.",
        pattern=_any_of(
            rf"{_NOT_ACCEPTED}.{{0,60}}function_call",
            rf"function_call(?:_output)?['\"`]?.{{0,40}}{_NOT_ACCEPTED}",
        ),
        changes=(_set(calls=False),),
    ),
    RepairRule(
        change_note="Sent the system prompt in another role.",
        pattern=_any_of(
            rf"developer.{{0,60}}{_NOT_ACCEPTED}|{_NOT_ACCEPTED}.{{0,60}}developer",
            r"role.{0,80}(?:must be|one of|expected).{0,80}\bsystem\b",
            rf"(?:system|instructions).{{0,20}}(?:role|messages?)?.{{0,20}}{_NOT_ACCEPTED}",
            rf"{_NOT_ACCEPTED} (?:message )?role:? .{{0,4}}system",
        ),
        changes=(NEXT_ROLE,),
    ),
    RepairRule(
        change_note="Removed images and files: this server accepts only text.",
        pattern=_any_of(
            r"content.{0,60}(?:must be|expected|should be).{0,20}\bstring\b",
            r"invalid type: (?:sequence|array|list).{0,20}expected a string",
            r"(?:array|list) content.{0,40}" + _NOT_ACCEPTED,
        ),
        changes=(_set(images=False, files=False, rich_results=False),),
    ),
    RepairRule(
        change_note="Sent text as a list: required by this server.",
        pattern=_any_of(
            r"content.{0,60}(?:must be|expected|should be).{0,20}(?:array|list)\b",
            r"invalid type: string.{0,60}expected a (?:sequence|array|list)",
        ),
        changes=(_set(text_as="array"),),
    ),
    RepairRule(
        change_note="Sent images of tool results in a separate message.",
        pattern=r"\boutput\b.{0,80}(?:must be|expected|should be).{0,20}\bstring\b",
        changes=(_set(rich_results=False),),
    ),
    RepairRule(
        # An unreadable image says nothing about the next one: only these images are left out from now on.
        change_note="Removed images and files that the gateway could not read.",
        pattern=_any_of(rf"{_FILES}.{{0,80}}(?:{_UNREADABLE})", rf"(?:{_UNREADABLE}).{{0,80}}{_FILES}"),
        changes=(DROP_FILES,),
    ),
    RepairRule(
        change_note="Removed images: not accepted by this model.",
        pattern=_unsupported_type(r"input_image|image_url|images?|vision|multimodal"),
        changes=(_set(images=False),),
    ),
    RepairRule(
        change_note="Removed files: not accepted by this model.",
        pattern=_unsupported_type(r"input_file|file_data|files?|documents?|pdf"),
        changes=(_set(files=False),),
    ),
)
