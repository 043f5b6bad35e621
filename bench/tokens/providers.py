"""Simulated providers, whose tokenizer and overheads the estimator does not know."""

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
    """The tokens a provider adds, and whether the reasoning of a tool loop stays in the context."""

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
    "google": Rules(base=0, message=1, call=2, tools_scale=0.8, tools_present=0, keeps_reasoning=False),
}


class Provider:
    """Counts prompts and answers, with a tokenizer that the estimator does not know."""

    def __init__(self, count: Callable[[str], int], rules: str) -> None:
        self._count = count
        self._rules = RULES[rules]
        self._texts: dict[str, int] = {}
        # Reasoning tokens by the `id` of the answer: the simulation never copies an answer.
        self._reasoning_tokens: dict[int, int] = {}

    def count_text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = self._count(text)
        return self._texts[text]

    def input_tokens(self, request: ChatRequest) -> int:
        """Return the input tokens to report."""
        rules = self._rules
        total = rules.base + sum(
            rules.message + self.count_parts(message.parts) for message in request.messages
        )
        if request.tools:
            json_tokens = sum(self.count_text(_render(tool)) for tool in request.tools)
            total += rules.tools_present + round(json_tokens * rules.tools_scale)
        return total + (self._reasoning(request.messages) if rules.keeps_reasoning else 0)

    def count_parts(self, parts: Sequence[Part]) -> int:
        total = 0
        for part in parts:
            match part:
                case TextPart():
                    total += self.count_text(part.text)
                case ToolCallPart():
                    total += (
                        self._rules.call
                        + self.count_text(part.name)
                        + self.count_text(json.dumps(part.input, ensure_ascii=False))
                    )
                case ToolResultPart():
                    total += self._rules.call + sum(
                        self.count_text(inner.text) for inner in part.parts if isinstance(inner, TextPart)
                    )
                case _:
                    pass
        return total

    def output_tokens(self, answer: tuple[Part, ...], reasoning: int) -> int:
        """Return the output tokens to report, and store the reasoning tokens of the answer."""
        self._reasoning_tokens[id(answer)] = reasoning
        return self.count_parts(answer) + reasoning

    def _reasoning(self, messages: Sequence[Message]) -> int:
        loop = messages[find_last_user_message(messages) + 1 :]
        return sum(
            self._reasoning_tokens.get(id(message.parts), 0)
            for message in loop
            if any(isinstance(part, ThinkingPart) for part in message.parts)
        )


def _render(tool: object) -> str:
    return json.dumps(msgspec.to_builtins(tool))
