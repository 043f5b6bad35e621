"""OpenResponses as it travels: the events of a stream, the items of an answer.

The deltas are nearly all of a stream, so they have typed shapes that decode at C speed. Everything else is
read from plain JSON values, forgivingly: no server met so far sends what the specification demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tollbridge.types.text import write_json
from tollbridge.types.usage import Usage, token_count

Meaning = Literal[
    "text",
    "reasoning",
    "arguments",
    "text done",
    "reasoning done",
    "arguments done",
    "item added",
    "item done",
    "part done",
    "annotation",
    "ended",
    "error",
    "ignored",
]

# Every event of the specification (24) and of OpenAI's API (59), and what some servers call them.
EVENTS: dict[str, Meaning] = {
    # the response
    "response.created": "ignored",
    "response.queued": "ignored",
    "response.in_progress": "ignored",
    "response.completed": "ended",
    "response.failed": "ended",
    "response.incomplete": "ended",
    "response.cancelled": "ended",
    "response.done": "ended",  # as one gateway names it
    "error": "error",
    "response.error": "error",
    # its items and their parts
    "response.output_item.added": "item added",
    "response.output_item.done": "item done",
    "response.content_part.added": "ignored",
    "response.content_part.done": "part done",
    "response.reasoning_summary_part.added": "ignored",
    "response.reasoning_summary_part.done": "ignored",
    "response.reasoning_part.added": "ignored",
    "response.reasoning_part.done": "ignored",
    # text
    "response.output_text.delta": "text",
    "response.output_text.done": "text done",
    "response.output_text.annotation.added": "annotation",
    "response.refusal.delta": "text",
    "response.refusal.done": "text done",
    # reasoning, by all its names
    "response.reasoning.delta": "reasoning",
    "response.reasoning.done": "reasoning done",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_text.done": "reasoning done",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_summary_text.done": "reasoning done",
    "response.reasoning_summary.delta": "reasoning",
    "response.reasoning_summary.done": "reasoning done",
    # tool calls
    "response.function_call_arguments.delta": "arguments",
    "response.function_call_arguments.done": "arguments done",
    "response.custom_tool_call_input.delta": "arguments",
    "response.custom_tool_call_input.done": "arguments done",
    # what only OpenAI sends, and an editor cannot show: the finished item says all there is to say
    "response.audio.delta": "ignored",
    "response.audio.done": "ignored",
    "response.audio.transcript.delta": "ignored",
    "response.audio.transcript.done": "ignored",
    "response.apply_patch_call_operation_diff.delta": "ignored",
    "response.apply_patch_call_operation_diff.done": "ignored",
    "response.code_interpreter_call.completed": "ignored",
    "response.code_interpreter_call.in_progress": "ignored",
    "response.code_interpreter_call.interpreting": "ignored",
    "response.code_interpreter_call_code.delta": "ignored",
    "response.code_interpreter_call_code.done": "ignored",
    "response.compaction.compacting": "ignored",
    "response.file_search_call.completed": "ignored",
    "response.file_search_call.in_progress": "ignored",
    "response.file_search_call.searching": "ignored",
    "response.image_generation_call.completed": "ignored",
    "response.image_generation_call.generating": "ignored",
    "response.image_generation_call.in_progress": "ignored",
    "response.image_generation_call.partial_image": "ignored",  # a sketch; the item has the image
    "response.mcp_call.completed": "ignored",
    "response.mcp_call.failed": "ignored",
    "response.mcp_call.in_progress": "ignored",
    "response.mcp_call_arguments.delta": "ignored",
    "response.mcp_call_arguments.done": "ignored",
    "response.mcp_list_tools.completed": "ignored",
    "response.mcp_list_tools.failed": "ignored",
    "response.mcp_list_tools.in_progress": "ignored",
    "response.ping": "ignored",
    "response.shell_call_command.added": "ignored",
    "response.shell_call_command.delta": "ignored",
    "response.shell_call_command.done": "ignored",
    "response.shell_call_output_content.delta": "ignored",
    "response.shell_call_output_content.done": "ignored",
    "response.web_search_call.completed": "ignored",
    "response.web_search_call.in_progress": "ignored",
    "response.web_search_call.searching": "ignored",
}


# What may prove that reasoning is the model's own, and what some gateways put on a call of Gemini's.
PROOFS = ("encrypted_content", "signature", "thought_signature", "format")
CALL_PROOFS = (
    "thought_signature",
    "thoughtSignature",
    "signature",
    "extra_content",
    "provider_specific_fields",
)


class Delta(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """A piece of an item. Where it belongs is often said only in part, or not at all."""

    delta: str
    output_index: int | None = None
    item_id: str | None = None
    part: int | None = msgspec.field(name="content_index", default=None)


class TextDelta(Delta, frozen=True, gc=False, tag="response.output_text.delta"):
    pass


class SummaryDelta(Delta, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"):
    part: int | None = msgspec.field(name="summary_index", default=None)


class _Whole(Delta, frozen=True, gc=False):
    # Not in parts: raw reasoning has one, and on one server its content_index grows with every token.
    part: int | None = msgspec.field(name="", default=None)


class ReasoningDelta(_Whole, frozen=True, gc=False, tag="response.reasoning.delta"):
    pass


class ReasoningTextDelta(_Whole, frozen=True, gc=False, tag="response.reasoning_text.delta"):
    pass


class ArgumentsDelta(_Whole, frozen=True, gc=False, tag="response.function_call_arguments.delta"):
    pass


# The deltas worth a typed decoder. Whatever it refuses is read as plain JSON.
read_delta = msgspec.json.Decoder(
    TextDelta | ReasoningDelta | ReasoningTextDelta | SummaryDelta | ArgumentsDelta
).decode


class Fields:
    """A JSON object of the world's. Reading a field gives what it should be, or nothing."""

    __slots__ = ("raw",)

    def __init__(self, raw: object) -> None:
        self.raw: Mapping[str, Any] = raw if isinstance(raw, dict) else {}

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __contains__(self, name: str) -> bool:
        return name in self.raw

    def text(self, name: str) -> str | None:
        value = self.raw.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        value = self.raw.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value) if len(value) < 10 else None
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def inner(self, name: str) -> Fields:
        return Fields(self.raw.get(name))

    def list(self, name: str) -> list[Fields]:
        value = self.raw.get(name)
        return [Fields(each) for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def meaning(event: Fields) -> Meaning | None:
    """What an event says; `None` for one that is not known. An error is one with or without its type."""
    name = event.text("type")
    if name is None:
        return "error" if is_error(event) else None
    return EVENTS.get(name)


def thought(event: Fields) -> Literal["reasoning", "summary"]:
    """Whether an event of reasoning is of the reasoning itself or of its summary."""
    return "summary" if "reasoning_summary" in (event.text("type") or "") else "reasoning"


def is_error(body: Fields) -> bool:
    """Whether a body that has neither type nor status is an error: nested, flat or FastAPI's."""
    return bool(body.raw.get("error") or body.raw.get("detail")) or ("message" in body and "code" in body)


def texts(parts: Iterable[Fields]) -> str:
    """The text of content parts, refusals among them: they are what the model said."""
    return "".join(part.text("text") or part.text("refusal") or "" for part in parts)


def read_usage(usage: Fields) -> Usage | None:
    """Reported usage. A server that reports nothing but zeros did not count."""
    tokens_in = _first(usage, "input_tokens", "prompt_tokens")
    tokens_out = _first(usage, "output_tokens", "completion_tokens")
    total = token_count(usage.number("total_tokens"))
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    details_in = usage.inner("input_tokens_details") or usage.inner("prompt_tokens_details")
    details_out = usage.inner("output_tokens_details") or usage.inner("completion_tokens_details")
    read = Usage(
        tokens_in,
        tokens_out,
        total,
        token_count(details_in.number("cached_tokens")),
        token_count(details_out.number("reasoning_tokens")),
    )
    return read if read.known else None


def _first(fields: Fields, *names: str) -> int | None:
    return next((n for name in names if (n := token_count(fields.number(name))) is not None), None)


def explains(event: Fields) -> bool:
    """Whether an error event says what is wrong; one that does not may be explained by the next event."""
    inner = event.inner("error") or event
    return bool(inner.text("message") or event.text("error") or event.raw.get("detail"))


def call_proof(item: Fields) -> dict[str, Any] | None:
    return {name: item.raw[name] for name in CALL_PROOFS if item.raw.get(name)} or None


def as_text(value: object) -> str | None:
    """Arguments are JSON in a string; some servers send the object itself."""
    if isinstance(value, dict):
        return write_json(value)
    return value if isinstance(value, str) else None
