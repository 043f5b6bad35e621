"""The shapes of Chat Completions: typed text chunks, the names of reasoning fields, finish reasons, usage."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tollbridge.protocols.lenient import Count, first_count, read_object
from tollbridge.protocols.openresponses.wire import (
    ReportedUsage,
    TokenDetails,
    read_long_writes,
    read_searches,
)
from tollbridge.types.events import FinishReason, Usage
from tollbridge.types.text import Fields

Json = dict[str, Any]

# The fields of a message or delta with the text of reasoning: of DeepSeek, llama.cpp and LiteLLM; of
# OpenRouter, vLLM, Groq and Ollama; of GitHub Copilot. Some servers send the same text in two of them.
REASONING_TEXTS = ("reasoning_content", "reasoning", "reasoning_text")
# The fields with the proof of reasoning, which the server requires back unchanged: of OpenRouter (a list of
# texts, summaries and encrypted blocks), of LiteLLM (the blocks of Anthropic), of GitHub Copilot (a string).
REASONING_LISTS = ("reasoning_details", "thinking_blocks")
REASONING_PROOFS = (*REASONING_LISTS, "reasoning_opaque")

FINISH_REASONS: dict[str, FinishReason] = {
    "content_filter": "content-filter",
    "end_turn": "stop",  # Anthropic's name, which some proxies forward; so is max_tokens
    "eos": "stop",
    "function_call": "tool-calls",
    "length": "length",
    "max_tokens": "length",
    "stop": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool-calls",
}
# The names to send. The protocol has none for the other reasons.
FINISH_NAMES: dict[FinishReason | None, str] = {
    "content-filter": "content_filter",
    "length": "length",
    "tool-calls": "tool_calls",
}


_NoItems = Annotated[list[Any], msgspec.Meta(max_length=0)] | None
_NoText = Literal[""] | None


class Arguments(msgspec.Struct, frozen=True, gc=False):
    arguments: str
    name: _NoText = None


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the arguments of a call that was announced before."""

    index: int
    function: Arguments
    id: _NoText = None
    extra_content: None = None
    provider_specific_fields: None = None


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A delta that contains only text, reasoning or arguments. Any other content makes it invalid."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: _NoText = None
    reasoning_details: _NoItems = None
    thinking_blocks: _NoItems = None
    reasoning_opaque: _NoText = None
    refusal: _NoText = None
    tool_calls: list[ArgumentsDelta] | None = None
    function_call: None = None
    images: _NoItems = None
    annotations: _NoItems = None


class TextChoice(msgspec.Struct, frozen=True, gc=False):
    delta: TextDelta
    index: Literal[0] = 0
    finish_reason: _NoText = None
    error: None = None
    usage: None = None


class TextChunk(msgspec.Struct, frozen=True, gc=False):
    choices: tuple[TextChoice]
    usage: None = None
    error: None = None


# Decodes the most frequent chunks. Chunks that it rejects are read as plain JSON.
read_text_chunk = msgspec.json.Decoder(TextChunk).decode


class CompletionUsage(ReportedUsage, frozen=True):
    """A usage with the names of more servers for the tokens that were read from a cache."""

    prompt_cache_hit_tokens: Count = None  # DeepSeek
    cache_read_input_tokens: Count = None  # Anthropic's name, forwarded by proxies
    num_cached_tokens: Count = None  # Mistral


def read_usage(usage: Fields) -> Usage | None:
    """Return the reported usage, or `None` if there is none or all counts are zero (not counted).

    Some servers do not include reasoning tokens in `completion_tokens`, only in the total.
    """
    reported = read_object(usage.raw, CompletionUsage)
    details = reported.prompt_tokens_details or TokenDetails()
    output_details = reported.completion_tokens_details or TokenDetails()
    input_tokens = first_count(reported.prompt_tokens, reported.input_tokens)
    output_tokens = first_count(reported.completion_tokens, reported.output_tokens)
    total = reported.total_tokens
    cached = first_count(
        details.cached_tokens,
        reported.prompt_cache_hit_tokens,
        reported.cache_read_input_tokens,
        reported.cached_tokens,  # Moonshot
        reported.num_cached_tokens,
    )
    written = first_count(
        details.cache_write_tokens,  # OpenRouter
        details.cache_creation_tokens,  # LiteLLM
        reported.cache_creation_input_tokens,
    )
    reasoning = first_count(output_details.reasoning_tokens, reported.reasoning_tokens)
    if input_tokens is not None and output_tokens is not None:
        if reasoning and total == input_tokens + output_tokens + reasoning:
            output_tokens += reasoning
        total = input_tokens + output_tokens if total is None else total
    result = Usage(
        *(input_tokens, output_tokens, total, cached, reasoning, written),
        long_cache_write_tokens=read_long_writes(details) or read_long_writes(reported),
        web_searches=read_searches(reported),
    )
    return result if result.known else None


def encode_usage(usage: Usage) -> Json:
    """Return the usage of a completion. The protocol has no unknown totals, so they are 0."""
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    body: Json = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens if usage.total_tokens is None else usage.total_tokens,
    }
    details = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    known = {name: count for name, count in details.items() if count is not None}
    if known:
        body["prompt_tokens_details"] = known
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


# A caller of `serve` returns `reasoning_details` and the `extra_content` of tool calls unchanged
# if it knows them. Metadata of other protocols is stored there as an opaque string.

METADATA_FORMAT = "tollbridge-v1"
