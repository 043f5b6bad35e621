"""What has been said in a chat, and the next request made of it."""

from __future__ import annotations

from collections.abc import Iterable

from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)


class Conversation:
    """Grows by a question and its answer at a time, so that it is always one a gateway accepts."""

    def __init__(self, model: str, system: str | None = None, effort: str | None = None) -> None:
        self.model = model
        self._effort = effort
        self._preface = () if system is None else (Message(Role.SYSTEM, (TextPart(system),)),)
        self._said: list[Message] = []

    def request(self, question: Message) -> ChatRequest:
        messages = (*self._preface, *self._said, question)
        return ChatRequest(model=self.model, messages=messages, reasoning_effort=self._effort)

    def add(self, question: Message, answer: Iterable[Part]) -> bool:
        """Remember a question and what was said to it, and whether anything was; thoughts alone are not."""
        parts = joined(answer)
        answered = any(not isinstance(part, ThinkingPart) for part in parts)
        if answered:
            self._said += [question, Message(Role.ASSISTANT, parts)]
        return answered

    def forget(self) -> None:
        self._said.clear()


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of a streamed answer with its pieces put together. Files a model made are not sent back."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        match part, last:
            case TextPart(text), TextPart(before):
                whole[-1] = TextPart(before + text)
            case ThinkingPart(), ThinkingPart(before, id_, None) if part.id == id_:
                whole[-1] = ThinkingPart(before + part.text, id_, part.metadata)
            case ((TextPart() | ThinkingPart() | ToolCallPart()), _):
                whole.append(part)
            case DataPart(), _:
                pass
    return tuple(whole)
