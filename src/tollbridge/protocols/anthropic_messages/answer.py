"""Encode answers for callers of the Messages API, as a stream or as one message.

The protocol cannot replace text that was sent, so text that a gateway replaces later stays in a stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Literal, assert_never

from tollbridge.protocols.answer import AnswerEncoder, AnswerText
from tollbridge.protocols.anthropic_messages.wire import (
    FINISH_REASONS,
    REDACTED,
    SIGNATURE,
    encode_usage,
    pack_proof,
)
from tollbridge.protocols.caller_request import CallerRequest, Json
from tollbridge.types.errors import BridgeError, ContextTooLong, Kind
from tollbridge.types.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from tollbridge.types.text import write_json

BlockKind = Literal["text", "thinking"]
# The blocks whose text is streamed, as they are opened.
_EMPTY_BLOCKS: dict[BlockKind, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
# The status and the error type of each kind of error.
ERRORS: dict[Kind, tuple[int, str]] = {
    "authentication": (401, "authentication_error"),
    "permission": (403, "permission_error"),
    "not_found": (404, "not_found_error"),
    "rate_limited": (429, "rate_limit_error"),
    "budget_exceeded": (402, "billing_error"),
    "context_too_long": (400, "invalid_request_error"),
    "content_filtered": (400, "invalid_request_error"),
    "invalid_request": (400, "invalid_request_error"),
    "overloaded": (529, "overloaded_error"),
    "server": (500, "api_error"),
    "network": (502, "api_error"),
    "timeout": (504, "timeout_error"),
    "disconnected": (502, "api_error"),
    "protocol": (502, "api_error"),
}
# Statuses that a gateway can report and that are more specific than the kind of the error.
_SPECIFIC = {402: "billing_error", 413: "request_too_large"}


def find_status(error: BridgeError) -> tuple[int, str]:
    """Return the HTTP status and the type of an error."""
    if error.status in _SPECIFIC:
        return error.status, _SPECIFIC[error.status]
    return ERRORS[error.kind]


def encode_error(error: BridgeError) -> Json:
    """Return the body of an error response, which is also the event that ends a stream.

    A prompt that is too long is reported in Anthropic's words: callers recognize it by them, and shorten the
    conversation.
    """
    message = error.message
    if isinstance(error, ContextTooLong):
        sizes = f": {error.tokens} tokens > {error.limit} maximum" if error.tokens and error.limit else ""
        message = f"prompt is too long{sizes}. {message}"
    return make_error(find_status(error)[1], message, error.request_id)


def make_error(type_: str, message: str, request_id: str | None) -> Json:
    return {"type": "error", "error": {"type": type_, "message": message}, "request_id": request_id}


class MessageEncoder(AnswerEncoder):
    """Encodes an answer as the events of a stream, and as a message."""

    def __init__(self, request: CallerRequest, *, input_tokens: int = 0) -> None:
        super().__init__(request, input_tokens=input_tokens)
        self._open: BlockKind | None = None
        self._reasoning_id: str | None = None
        self._has_calls = False
        # The content for a caller that does not stream: all blocks, and the texts of those that have some.
        self._content: list[Json] = []
        self._texts: dict[BlockKind, AnswerText] = {"text": AnswerText(), "thinking": AnswerText()}
        self._message: Json = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": request.request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": encode_usage(Usage(input_tokens, 0)),
        }

    def start(self) -> list[Json]:
        return [{"type": "message_start", "message": self._message}]

    def _complete(self, finished: Finished) -> list[Json]:
        usage = encode_usage(finished.usage or Usage(self._input_tokens))
        delta = {"stop_reason": self._find_reason(finished), "stop_sequence": None}
        return [
            *self._close_block(),
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    def _fail(self, error: BridgeError) -> list[Json]:
        return [encode_error(error)]

    def _make_body(self, finished: Finished) -> Json:
        for kind, text in self._texts.items():
            for index, block_text in text.blocks().items():
                self._content[index][kind] = block_text
        # Without text are the blocks whose text was replaced later; a thinking block can be only a signature.
        empty = _EMPTY_BLOCKS.values()
        return {
            **self._message,
            "content": [block for block in self._content if block not in empty],
            "stop_reason": self._find_reason(finished),
            "usage": encode_usage(finished.usage or Usage(self._input_tokens)),
        }

    def _find_reason(self, finished: Finished) -> str:
        return FINISH_REASONS.get(finished.reason, "tool_use" if self._has_calls else "end_turn")

    def _encode_event(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text, replaces) if text:
                return self._add_text("text", text, replaces)
            case ReasoningDelta():
                return self._encode_reasoning(event)
            case TextDelta(text, replaces) | Corrected(text, replaces, of="text"):
                return self._replace_text("text", text, replaces)
            case Corrected(text, replaces):
                return self._replace_text("thinking", text, replaces)
            case ReasoningEnded():
                return self._encode_proof(event)
            case ToolCall():
                return self._encode_call(event) if event.offered else []
            case Source():
                return self._encode_source(event)
            case Failed() | File() | Data() | Finished():
                return []  # `finish` gets the error; the protocol has no files in answers
            case _:
                assert_never(event)

    def _encode_reasoning(self, event: ReasoningDelta) -> list[Json]:
        if not event.text:
            return []
        block, _, part = (event.id or "").partition(":")
        closing: list[Json] = []
        text = event.text
        if self._open == "thinking" and event.id != self._reasoning_id:
            if part and block == (self._reasoning_id or "").partition(":")[0]:
                text = "\n\n" + text  # the next part of a summary
            else:
                closing = self._close_block()
        self._reasoning_id = event.id
        return [*closing, *self._add_text("thinking", text, event.replaces)]

    def _encode_proof(self, event: ReasoningEnded) -> list[Json]:
        """End a reasoning block. Its proof is the signature, or the data of a block without text."""
        metadata = event.metadata or {}
        # The protocol's own proofs are passed on as they are.
        own = next(iter(metadata)) if len(metadata) == 1 and event.id is None else None
        if not metadata:
            return self._close_block() if self._open == "thinking" else []
        if own == SIGNATURE or (self._open == "thinking" and own != REDACTED):
            proof = metadata[SIGNATURE] if own == SIGNATURE else pack_proof(metadata, event.id)
            opening = self._open_block("thinking")  # open, unless its text was withheld
            self._content[-1]["signature"] = proof
            return [
                *opening,
                self._delta({"type": "signature_delta", "signature": proof}),
                *self._close_block(),
            ]
        data = metadata[REDACTED] if own == REDACTED else pack_proof(metadata, event.id)
        return self._add_block({"type": "redacted_thinking", "data": data})

    def _encode_call(self, call: ToolCall) -> list[Json]:
        self._has_calls = True
        arguments = call.input if isinstance(call.input, Mapping) else {"input": call.input}
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": write_json(arguments)}
        events = self._add_block(block, delta)
        self._content[-1]["input"] = arguments
        return events

    def _encode_source(self, source: Source) -> list[Json]:
        if source.url is None or self._open != "text":
            return []
        citation = {
            "type": "web_search_result_location",
            "url": source.url,
            "title": source.title,
            "cited_text": "",
            "encrypted_index": "",
        }
        self._content[-1].setdefault("citations", []).append(citation)
        return [self._delta({"type": "citations_delta", "citation": citation})]

    def _add_text(self, kind: BlockKind, text: str, replaces: int) -> list[Json]:
        opening = self._open_block(kind)
        self._texts[kind].add(text, replaces=replaces, block=len(self._content) - 1)
        return [*opening, self._delta({"type": f"{kind}_delta", kind: text})]

    def _replace_text(self, kind: BlockKind, text: str, replaces: int) -> list[Json]:
        """Replace text for a caller that does not stream: what was sent in a stream stays."""
        if sent_text := self._texts[kind]:
            sent_text.add(text, replaces=replaces)
        return []

    def _open_block(self, kind: BlockKind) -> list[Json]:
        if self._open == kind:
            return []
        closing = self._close_block()
        self._open = kind
        return [*closing, self._start_block(_EMPTY_BLOCKS[kind])]

    def _close_block(self) -> list[Json]:
        if self._open is None:
            return []
        self._open = None
        return [self._stop_block()]

    def _add_block(self, block: Json, *deltas: Json) -> list[Json]:
        """Return the events of a whole block."""
        closing = self._close_block()
        return [*closing, self._start_block(block), *map(self._delta, deltas), self._stop_block()]

    def _start_block(self, block: Json) -> Json:
        self._content.append(dict(block))
        return {"type": "content_block_start", "index": len(self._content) - 1, "content_block": block}

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": len(self._content) - 1, "delta": delta}

    def _stop_block(self) -> Json:
        return {"type": "content_block_stop", "index": len(self._content) - 1}
