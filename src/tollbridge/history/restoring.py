"""Carried thoughts back in their places: before the call or the words they led to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tollbridge.core.messages import Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.core.reasoning import Carried, bind, unbind

# Thoughts and how many characters of the answer stood before each, in that order.
Waiting = list[tuple[int, ThinkingPart]]


def restored(parts: Sequence[Part], carried: Carried) -> list[Part]:
    """The carried thoughts in place of those an editor may have run together."""
    calls = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    before: dict[str | None, list[Part]] = {}
    waiting: Waiting = []
    homeless: list[ThinkingPart] = []
    for block in carried.blocks:
        thought = ThinkingPart(block.text, block.id, bind(carried.origin, block.proof))
        if block.before in calls:
            before.setdefault(block.before, []).append(thought)
        elif block.after is not None:
            waiting.append((block.after, thought))
        else:
            homeless.append(thought)
    waiting.sort(key=lambda each: each[0])
    # An older pack knows no places in the text; where an editor kept a thought as it was, it stands there.
    stayed = _stayed(parts, homeless) if carried.said is None else {}
    whole = carried.said == sum(len(part.text) for part in parts if isinstance(part, TextPart))
    found: list[Part] = [thought for thought in homeless if thought not in stayed.values()]
    told = 0
    for at, part in enumerate(parts):
        match part:
            case ThinkingPart():
                found += [stayed[at]] if at in stayed else []
            case TextPart(text):
                found += _text(part, told, waiting, whole=whole)
                told += len(text)
            case ToolCallPart(call_id):
                found += [*before.pop(call_id, []), with_metadata(part, carried.calls)]
            case _:
                found.append(part)
    left = [thought for _, thought in waiting]
    return [*found, *left] if whole else [*left, *found]


def with_metadata(part: Part, calls: Mapping[str, Mapping[str, Any]]) -> Part:
    if not isinstance(part, ToolCallPart) or part.call_id not in calls:
        return part
    return ToolCallPart(part.call_id, part.name, part.input, calls[part.call_id])


def _stayed(parts: Sequence[Part], thoughts: Sequence[ThinkingPart]) -> dict[int, ThinkingPart]:
    """Which of these thoughts came back as they were told, and where."""
    alike = {at: part for at, part in enumerate(parts) if isinstance(part, ThinkingPart)}
    found: dict[int, ThinkingPart] = {}
    for thought in thoughts:
        signs = thought.text, unbind(thought.metadata)
        place = next((at for at, part in alike.items() if (part.text, unbind(part.metadata)) == signs), None)
        if place is not None:
            found[place] = thought
            del alike[place]
    return found


def _text(part: TextPart, told: int, waiting: Waiting, *, whole: bool) -> list[Part]:
    """A text with the thoughts that led to it, or to pieces of it where it is as it was told."""
    found: list[Part] = []
    text = part.text
    while waiting and waiting[0][0] < told + len(text):
        after, thought = waiting.pop(0)
        cut = max(0, after - told) if whole else 0
        if cut:
            found.append(TextPart(text[:cut]))
            text, told = text[cut:], told + cut
        found.append(thought)
    return [*found, TextPart(text)]
