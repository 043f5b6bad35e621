"""From a refusal to a cure: everything that is known to help, in one go."""

from __future__ import annotations

import msgspec

from tollbridge.core.errors import BridgeError
from tollbridge.core.media import fingerprint
from tollbridge.core.messages import ChatRequest, ThinkingPart, ToolCallPart
from tollbridge.core.reasoning import digest, unbind
from tollbridge.healing.lessons import REFUSED_LIMIT, Learned
from tollbridge.healing.parameters import calls_it_a_parameter, refused_fields, sent_without
from tollbridge.healing.remedies import REFUSE_FILES, REFUSE_PROOFS, REMEDIES, SPEAK_CALLS, Remedy, data_of

# Refusals of the request itself; keys, limits and overload are none of its fault.
CURABLE = frozenset({"invalid_request", "not_found", "server"})


class Cure(msgspec.Struct, frozen=True):
    """What is known from now on, and a sentence for each thing that is done differently."""

    learned: Learned
    changes: tuple[str, ...]


def find_cure(error: BridgeError, request: ChatRequest, learned: Learned) -> Cure | None:
    """`request` is the one that was refused. `None` where nothing is known to help, or it was all tried."""
    if error.kind not in CURABLE:
        return None
    fields = refused_fields(error, request)
    if fields and calls_it_a_parameter(error):
        return _without(fields, learned)
    return _remedied(error, request, learned) or _without(fields, learned)


def _remedied(error: BridgeError, request: ChatRequest, learned: Learned) -> Cure | None:
    found = learned
    changes: list[str] = []
    for remedy in REMEDIES:
        if _fits(remedy, error) and remedy.applies(request):
            changed = _apply(remedy, request, found)
            if changed != found:
                found = changed
                changes.append(remedy.says)
    return Cure(found, tuple(changes)) if changes else None


def _without(fields: list[str], learned: Learned) -> Cure | None:
    new = [field for field in fields if field not in learned.quirks.without]
    if not new:
        return None
    quirks = msgspec.structs.replace(learned.quirks, without=learned.quirks.without.union(new))
    return Cure(msgspec.structs.replace(learned, quirks=quirks), sent_without(new))


def _fits(remedy: Remedy, error: BridgeError) -> bool:
    if error.code in remedy.codes:
        return True
    return remedy.words.search(error.message) is not None


def _apply(remedy: Remedy, request: ChatRequest, learned: Learned) -> Learned:
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
