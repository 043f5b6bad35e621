"""Providers that keep their tokenizer and their overheads to themselves, as real ones do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from tollbridge.tokens.prompts import find_last_user_message
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


class Rules(msgspec.Struct, frozen=True):
    """What a provider adds, and whether the reasoning of a tool loop stays in the context."""

    base: int
    message: int
    call: int
    tools_scale: float
    tools_present: int
    keeps_reasoning: bool = True


RULES = {
    "openai": Rules(base=3, message=4, call=6, tools_scale=0.66, tools_present=24),
    "anthropic": Rules(base=6, message=3, call=9, tools_scale=1.15, tools_present=400),
    "other": Rules(base=6, message=4, call=7, tools_scale=1.0, tools_present=140, keeps_reasoning=False),
}


class Provider:
    """Counts prompts and answers by a tokenizer our side does not know."""

    def __init__(self, count: Callable[[str], int], rules: str) -> None:
        self._count = count
        self._rules = RULES[rules]
        self._texts: dict[str, int] = {}
        # What was thought for each answer, by the object itself: the simulation never copies one.
        self._thought: dict[int, int] = {}

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = self._count(text)
        return self._texts[text]

    def input_tokens(self, request: ChatRequest) -> int:
        rules = self._rules
        total = rules.base + sum(rules.message + self.parts(message.parts) for message in request.messages)
        if request.tools:
            written = sum(self.text(_render(tool)) for tool in request.tools)
            total += rules.tools_present + round(written * rules.tools_scale)
        return total + (self._reasoning(request.messages) if rules.keeps_reasoning else 0)

    def parts(self, parts: Sequence[Part]) -> int:
        total = 0
        for part in parts:
            match part:
                case TextPart():
                    total += self.text(part.text)
                case ToolCallPart():
                    total += self._rules.call + self.text(part.name) + self.text(json.dumps(part.input))
                case ToolResultPart():
                    total += self._rules.call + sum(
                        self.text(inner.text) for inner in part.parts if isinstance(inner, TextPart)
                    )
                case _:
                    pass
        return total

    def answered(self, answer: tuple[Part, ...], reasoning: int) -> int:
        """Remember the reasoning behind an answer; the output tokens to report."""
        self._thought[id(answer)] = reasoning
        return self.parts(answer) + reasoning

    def _reasoning(self, messages: Sequence[Message]) -> int:
        since = messages[find_last_user_message(messages) + 1 :]
        return sum(
            self._thought.get(id(message.parts), 0)
            for message in since
            if any(isinstance(part, ThinkingPart) for part in message.parts)
        )


def _render(tool: object) -> str:
    return json.dumps(msgspec.to_builtins(tool))
