"""Helpers that build messages, and a provider whose tokenizer and overheads the estimator does not know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tollbridge.tokens.features import ClusterWeights, TokenTable
from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.prompts import compact_json, read_message
from tollbridge.tokens.tokenizers import Family, TextFeatures
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, Tool, ToolResultPart

# Belongs to no known family, so its text is counted in weighted clusters.
MODEL = "hidden/model"
TOOLS = (
    Tool("read_file", "Read a file and return its text.", {"type": "object", "properties": {"path": {}}}),
    Tool("search", "Search all files for a pattern.", {"type": "object", "properties": {"pattern": {}}}),
)
PROSE = "The quick brown fox jumps over the lazy dog near the old stone bridge. "
_TEXTS = TextFeatures()
_HIDDEN = Family("hidden", "llama2")


@cache
def unfamiliar_table() -> TokenTable:
    """Return a table without the provider's tokenizer and its relatives (see `bench/tokens/training.py`)."""
    return TokenTable.unpack(Path(__file__).with_name("without-llama2.table").read_bytes())


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
    """Count a text with the provider's tokenizer."""
    return sum(count for _, count in _TEXTS.vector(_HIDDEN, text))


def hidden_count(request: ChatRequest) -> int:
    """Return what the provider reports: 5 tokens per message, 9 per prompt, 70 and their JSON for tools."""
    total = 9
    for message in request.messages:
        content = read_message(_TEXTS, _HIDDEN, request.model, message)
        total += 5 + sum(count for _, count in content.text) + 6 * content.calls
    if request.tools:
        total += 70 + sum(hidden_text(compact_json(tool)) for tool in request.tools)
    return total


def text_tokens(ledger: Ledger, model: str, text: str) -> int:
    """Count the tokens of a text, as a ledger has learned to count it."""
    return round(ClusterWeights(ledger.text_weights(model)).total(ledger.prepare_text(model, text)))
