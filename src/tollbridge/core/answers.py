"""Which result answers which call: ids come again, results come late, early, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from tollbridge.core.messages import Message, ToolCallPart, ToolResultPart

# Where a part stands: which message, and which part of it.
Place = tuple[int, int]


def match_results(messages: Sequence[Message]) -> dict[Place, Place]:
    """Which result answers which call. Of calls with one id the latest message's are meant, first to last;
    a result that stands before its call is taken when no later one is there."""
    open_: dict[str, list[Place]] = {}
    early: dict[str, list[Place]] = {}
    answers: dict[Place, Place] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                open_.setdefault(part.call_id, []).append((at, number))
            elif isinstance(part, ToolResultPart):
                waiting = open_.get(part.call_id)
                if waiting:
                    meant = min(waiting, key=lambda place: (-place[0], place[1]))
                    waiting.remove(meant)
                    answers[meant] = (at, number)
                else:
                    early.setdefault(part.call_id, []).append((at, number))
    for call_id, waiting in open_.items():
        answers.update(zip(waiting, early.get(call_id, ()), strict=False))
    return answers
