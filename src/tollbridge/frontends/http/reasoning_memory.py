"""Reasoning of recent answers, for callers whose protocol cannot return it.

A model that reasons needs its signed reasoning back with the tool results. Chat Completions has no field for
it, and few callers return what they do not know. So the server keeps the reasoning packs of recent answers
and adds them to the assistant messages of later requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2s

from tollbridge.types.messages import DataPart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart

# The most memory of all packs, in bytes.
MEMORY_LIMIT = 32 * 1024 * 1024


class ReasoningMemory:
    """The reasoning packs of recent answers, by tool call and by text. The oldest are dropped first."""

    def __init__(self, limit: int = MEMORY_LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._packs: OrderedDict[str, DataPart] = OrderedDict()

    def add(self, parts: Iterable[Part], pack: DataPart) -> None:
        """Store the pack of an answer."""
        for key in _answer_keys(parts):
            replaced = self._packs.pop(key, None)
            self._size += len(pack.data) - (len(replaced.data) if replaced else 0)
            self._packs[key] = pack
        while self._size > self._limit:
            _, dropped = self._packs.popitem(last=False)
            self._size -= len(dropped.data)

    def restore(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return the messages with the packs of the answers among them."""
        return tuple(self._restore_message(message) for message in messages)

    def _restore_message(self, message: Message) -> Message:
        if message.role is not Role.ASSISTANT or not self._packs:
            return message
        if any(isinstance(part, ThinkingPart) and part.metadata for part in message.parts):
            return message
        for key in _answer_keys(message.parts):
            if (pack := self._packs.get(key)) is not None:
                return Message(message.role, (*message.parts, pack), message.name)
        return message


def _answer_keys(parts: Iterable[Part]) -> Iterator[str]:
    """Yield what identifies an answer: its first tool call, or else its text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            yield f"call {part.call_id}"
            return
        if isinstance(part, TextPart):
            texts.append(part.text)
    if text := "".join(texts).strip():
        yield f"text {blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
