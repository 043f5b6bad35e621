"""Repair a rejected request: find what the server does not accept, and how to send the request without it.

The `param` of an error comes first, then its `code`, then the words of its message. An error that no rule
applies to is reported unchanged. A repair is a hypothesis about the server until a request is accepted: see
`tollbridge.compat.lessons`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from tollbridge.compat.fields import (
    FIELD_ALIASES,
    OPTIONAL_FIELDS,
    PARAMETER_CODES,
    describe_omissions,
    names_a_parameter,
    param_field,
    refused_fields,
)
from tollbridge.compat.rules import REPAIR_RULES, RepairRule
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.quirks import Basis, Evidence, Hypothesis, LearnedQuirks, Quirks, Scope

# The kinds of errors that the content of a request can cause; keys, limits and overload are not among them.
REPAIRABLE_KINDS = frozenset({"invalid_request", "not_found", "server"})
# Quirks of the form of a request, which depend on the server's software: they hold for all its models.
# They lose no content, so a wrong one does little harm.
_FORM_QUIRKS = frozenset({"system", "text_as", "tools_as"})
# The characters of an error message that evidence contains.
_EVIDENCE_LIMIT = 160
# A quotation, which may be a part of the prompt, and a long run of letters and digits, which may be a key.
_QUOTATION = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^“”]*”")
_TOKEN = re.compile(r"[A-Za-z0-9_\-+/=]{24,}")
# Words that error messages quote and that are no part of a prompt.
_KNOWN_WORDS = frozenset(
    "assistant content developer file function_call function_call_output image image_url input input_file "
    "input_image output reasoning signature store summary system text thinking thought_signature tool tools "
    "user".split()
)


class Repair(msgspec.Struct, frozen=True):
    """How to send a rejected request again."""

    learned: LearnedQuirks  # what the server accepts, if the hypotheses are right
    changes: tuple[str, ...]  # a sentence for each change to the request
    hypotheses: tuple[Hypothesis, ...] = ()  # what the error says about the server


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
        changed = rule.apply(request, learned)
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
    """Return an error without keys, and the start of its message without quotations except field names."""
    code, param = (value and _TOKEN.sub("…", value[:80]) for value in (error.code, error.param))
    known = {*OPTIONAL_FIELDS, *FIELD_ALIASES, *_KNOWN_WORDS}
    text = _QUOTATION.sub(lambda match: match[0] if match[0][1:-1] in known else "'…'", error.message)
    text = " ".join(_TOKEN.sub("…", text).split())
    text = text if len(text) <= _EVIDENCE_LIMIT else text[: _EVIDENCE_LIMIT - 1] + "…"
    return Evidence(basis, text, error.status, code, param)
