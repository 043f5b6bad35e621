"""Builders for conversations, and a simulated provider with an unknown tokenizer and overhead."""

from __future__ import annotations

from collections.abc import Sequence

from tollbridge.tokens.prompts import compact_json, read_message
from tollbridge.tokens.tokenizers import Family, TextFeatures
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, Tool, ToolResultPart

# No family knows these models, so they are counted in weighted categories.
MODEL = "hidden/model"
TOOLS = (
    Tool("read_file", "Read a file and return its text.", {"type": "object", "properties": {"path": {}}}),
    Tool("search", "Search all files for a pattern.", {"type": "object", "properties": {"pattern": {}}}),
)
PROSE = "The quick brown fox jumps over the lazy dog near the old stone bridge. "
_TEXTS = TextFeatures()
_HIDDEN = Family("hidden", "llama2")


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (TextPart(text),))


def user(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


def assistant(*parts: Part | str) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def result(call_id: str, text: str) -> Message:
    return Message(Role.USER, (ToolResultPart(call_id, (TextPart(text),)),))


def request(messages: Sequence[Message], tools: Sequence[Tool] = (), model: str = MODEL) -> ChatRequest:
    return ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools))


def hidden_text(text: str) -> int:
    return sum(count for _, count in _TEXTS.vector(_HIDDEN, text))


def hidden_count(asked: ChatRequest) -> int:
    """The truth: another tokenizer, 5 a message, 9 for the prompt, 70 and the JSON for tools."""
    total = 9
    for message in asked.messages:
        content = read_message(_TEXTS, _HIDDEN, asked.model, message)
        total += 5 + sum(count for _, count in content.text) + 6 * content.calls
    if asked.tools:
        total += 70 + sum(hidden_text(compact_json(tool)) for tool in asked.tools)
    return total
