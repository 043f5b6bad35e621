"""The outer form of a conversation: no empty messages, no side twice in a row, at least one question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tollbridge.core.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart
from tollbridge.history.changes import Changes
from tollbridge.history.reasoning import current_reasoning, is_question

CONTINUE = "Continue."
LONE = "Reasoning was left out: nothing the model said follows it."
# Between two texts of one side that were messages of their own.
_BREAK = "\n\n"


def shaped(messages: Iterable[Message], changes: Changes) -> list[Message]:
    found = filled(messages, changes)
    if not any(is_question(message) for message in found):
        changes.say("question", "The conversation had no question; “Continue.” was asked.")
        found.append(Message(Role.USER, CONTINUE))
    found = joined(current_reasoning(found, changes), changes)
    followed = [_followed(message, changes) for message in found]
    return joined([message for message in followed if message.parts], changes)


def filled(messages: Iterable[Message], changes: Changes) -> list[Message]:
    """Without texts that say nothing: providers refuse a message of blanks alone."""
    found: list[Message] = []
    for message in messages:
        parts = _without_blanks(message.parts)
        if parts:
            found.append(Message(message.role, parts))
        if len(parts) < len(message.parts) or not parts:
            changes.count("empty")
    return found


def joined(messages: Sequence[Message], changes: Changes) -> list[Message]:
    """Messages of one side in a row made one. Providers that alternate strictly would do it, or refuse."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        # System messages are one already, wherever they stand: the wire has one place for them.
        if last is None or last.role is not message.role or message.role is Role.SYSTEM:
            found.append(message)
            continue
        changes.count("joined")
        found[-1] = Message(message.role, (*last.parts, *_apart(last, message), *message.parts))
    return found


def _without_blanks(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Blanks between words stay. A run of texts is what becomes one message on a wire."""
    found: list[Part] = []
    for is_content, run in groupby(parts, lambda part: isinstance(part, TextPart | DataPart)):
        content = list(run)
        if not is_content or not all(map(_is_blank, content)):
            found += content
    return tuple(found)


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _apart(last: Message, message: Message) -> tuple[Part, ...]:
    """Parts of a user's message are lines already; those of an answer are pieces of one text."""
    texts = isinstance(last.parts[-1], TextPart) and isinstance(message.parts[0], TextPart)
    return (TextPart(_BREAK),) if texts and message.role is Role.ASSISTANT else ()


def _followed(message: Message, changes: Changes) -> Message:
    """Reasoning leads to something the model said or called; alone it is refused."""
    parts = list(message.parts)
    while parts and isinstance(parts[-1], ThinkingPart):
        changes.say("reasoning", LONE)
        parts.pop()
    return Message(message.role, tuple(parts))
