"""Which reasoning goes back: the reader's own, with what proves it, in its place; nobody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tollbridge.core.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart
from tollbridge.core.reasoning import CARRIED, digest, is_marker, read_carried, unbind
from tollbridge.core.texts import MAX_TEXT, mended
from tollbridge.history.changes import Changes
from tollbridge.history.restoring import restored, with_metadata
from tollbridge.history.target import Target

FOREIGN = "Reasoning of another model was left out."
STALE = "Reasoning of an earlier question was left out: it has no proof, and the model has answered."
REFUSED = "Reasoning that the gateway refused before was left out."
UNPROVEN = "Reasoning without a proof was left out."
UNWANTED = "Reasoning was left out: the server takes none back."
TWICE = "Reasoning that stood there twice was sent once."


def own_reasoning(messages: Sequence[Message], target: Target, changes: Changes) -> list[Message]:
    """The messages with the thoughts that may be sent. An editor that kept them twice sends them once."""
    known: set[str] = set()
    return [_once(_own(message, target, changes), known, changes) for message in messages]


def current_reasoning(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Thoughts without a proof help a model through the calls of one question, and only then."""
    asked = max((at for at, message in enumerate(messages) if is_question(message)), default=-1)
    found: list[Message] = []
    for at, message in enumerate(messages):
        parts = tuple(part for part in message.parts if at > asked or not _is_plain(part))
        for _ in range(len(message.parts) - len(parts)):
            changes.say("reasoning", STALE)
        if parts:
            found.append(Message(message.role, parts))
    return found


def is_question(message: Message) -> bool:
    """Whether the user speaks, and not only the tools."""
    return message.role is Role.USER and any(isinstance(part, TextPart | DataPart) for part in message.parts)


def _is_plain(part: Part) -> bool:
    return isinstance(part, ThinkingPart) and not unbind(part.metadata)[1]


def _own(message: Message, target: Target, changes: Changes) -> Message:
    kept = _joined([part for part in message.parts if not is_marker(part)])
    data = (part.data for part in message.parts if isinstance(part, DataPart) and part.mime == CARRIED)
    markers = filter(None, map(read_carried, data))
    carried = next((one for one in markers if one.origin == target.origin), None)
    if carried is not None and message.role is Role.ASSISTANT:
        kept = restored(kept, carried)
    calls: dict[str, Mapping[str, Any]] = {}
    parts: list[Part] = []
    for part in kept:
        if not isinstance(part, ThinkingPart):
            parts.append(part)
            continue
        problem = _problem(part, message.role, target)
        bound, proof = unbind(part.metadata)
        if problem is not None:
            changes.say("reasoning", problem)
        elif bound is not None and bound.call is not None:
            calls[bound.call] = proof
        else:
            parts.append(part)
    found = tuple(with_metadata(part, calls) for part in parts)
    return Message(message.role, found, message.name)


def _once(message: Message, known: set[str], changes: Changes) -> Message:
    """Without the thoughts that were told before. No two items may have one id; where a proof names no item,
    only one answer's own thoughts can be told to be one."""
    here: set[str] = set()
    parts: list[Part] = []
    for part in message.parts:
        proof = unbind(part.metadata)[1] if isinstance(part, ThinkingPart) else None
        if proof:
            sign, seen = digest(proof), known if proof.get("id") else here
            if sign in seen:
                changes.say("reasoning", TWICE)
                continue
            seen.add(sign)
        parts.append(part)
    return Message(message.role, tuple(parts), message.name)


def _problem(part: ThinkingPart, role: Role, target: Target) -> str | None:
    bound, proof = unbind(part.metadata)
    if not target.reasoning:
        return UNWANTED
    if role is not Role.ASSISTANT or (target.origin and (bound is None or bound.origin != target.origin)):
        return FOREIGN
    if proof:
        return REFUSED if digest(proof) in target.refused else None
    if bound is None or not part.text.strip() or len(part.text) > MAX_TEXT:
        return UNPROVEN
    return None


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Streamed pieces of one thought put together; its proof comes last, in a piece without text."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, ThinkingPart) and isinstance(last, ThinkingPart) and _are_one(last, part):
            glue = "\n\n" if part.id != last.id and last.text and part.text else ""
            metadata = {**(last.metadata or {}), **(part.metadata or {})}
            whole[-1] = ThinkingPart(mended(last.text + glue + part.text), last.id, metadata or None)
        elif isinstance(part, ThinkingPart):
            whole.append(ThinkingPart(mended(part.text), part.id, part.metadata))
        else:
            whole.append(part)
    return whole


def _are_one(last: ThinkingPart, part: ThinkingPart) -> bool:
    """A summary's parts are named `id:1`, `id:2`. Two proofs are two thoughts."""
    same = (last.id or "").partition(":")[0] == (part.id or "").partition(":")[0]
    return same and not (last.metadata and (part.metadata or part.text))
