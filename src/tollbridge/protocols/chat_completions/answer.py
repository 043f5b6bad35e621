"""Encode answers for callers of Chat Completions, as chunks or as one body.

Reasoning is sent to the caller as `reasoning_content`, the field that most callers display. Its metadata (a
signature, encrypted content) follows as an entry of `reasoning_details`, and the metadata of a tool call in
its `extra_content`: callers that know these fields return them unchanged.

Text that was sent in a stream cannot be corrected in this protocol, and the calls that the gateway ran itself
have no place in it: both are left out.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, assert_never

from tollbridge.protocols.answer import AnswerEncoder, AnswerText
from tollbridge.protocols.caller import encode_openai_error
from tollbridge.protocols.caller_request import CallerRequest, Json, read_custom_input
from tollbridge.protocols.chat_completions.wire import FINISH_NAMES, METADATA_FORMAT, encode_usage
from tollbridge.types.errors import BridgeError, Kind
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
)
from tollbridge.types.messages import encode_metadata
from tollbridge.types.text import write_json

# OpenAI's code for each kind of error. Agents shorten the conversation when they read the first one.
_CODES: dict[Kind, str] = {
    "context_too_long": "context_length_exceeded",
    "authentication": "invalid_api_key",
    "content_filtered": "content_filter",
    "not_found": "model_not_found",
    "rate_limited": "rate_limit_exceeded",
}


def encode_error(error: BridgeError, status: int) -> Json:
    """Return the body of an error response. An error within a stream has the same form."""
    code = _CODES.get(error.kind, error.kind)
    if error.code is not None and error.kind != "context_too_long":
        code = error.code
    return encode_openai_error(error, status, code)


class CompletionEncoder(AnswerEncoder):
    """Encodes an answer as chunks, and as the body of a completion."""

    def __init__(self, request: CallerRequest, *, input_tokens: int = 0) -> None:
        super().__init__(request, input_tokens=input_tokens)
        self._head: Json = {
            "id": f"chatcmpl-{secrets.token_hex(16)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": request.request.model,
        }
        self._uses_functions = bool(request.body.get("functions"))  # the predecessor of `tools`
        self._calls = 0
        self._details = 0
        self._block = AnswerText()  # the open block of reasoning
        # The message for a caller that does not stream.
        self._text = AnswerText()
        self._reasoning = AnswerText()
        self._message: Json = {"role": "assistant", "content": None, "refusal": None}

    def start(self) -> list[Json]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def _encode_event(self, event: Event) -> list[Json]:
        delta = self._make_delta(event)
        if not delta:
            return []
        for name, value in delta.items():
            if isinstance(value, list):
                self._message.setdefault(name, []).extend(value)
            elif not isinstance(value, str):
                self._message[name] = value
        return [self._chunk(delta)]

    def _make_delta(self, event: Event) -> Json:
        """Return the delta of an event; empty if it has none."""
        match event:
            case TextDelta(text, replaces) | Corrected(text, replaces, of="text"):
                self._text.add(text, replaces=replaces)
                return {"content": text} if text and isinstance(event, TextDelta) else {}
            case ReasoningDelta(text, _, replaces) | Corrected(text, replaces):
                self._block.add(text, replaces=replaces)
                self._reasoning.add(text, replaces=replaces)
                return {"reasoning_content": text} if text and isinstance(event, ReasoningDelta) else {}
            case ReasoningEnded(id_, metadata):
                return self._encode_metadata(id_, metadata)
            case ToolCall():
                return self._encode_call(event) if event.offered else {}
            case File():
                return _encode_file(event)
            case Source():
                return _encode_source(event)
            case Data() | Failed() | Finished():
                return {}  # an error is passed to `finish`
            case _:
                assert_never(event)

    def _complete(self, finished: Finished) -> list[Json]:
        """Return the chunks with the finish reason and, if the caller wants it, the usage."""
        chunks = [self._chunk({}, self._name_reason(finished))]
        options = self._request.body.get("stream_options") or {}
        wants_usage = options.get("include_usage") or not self._request.stream
        if finished.usage is not None and wants_usage:
            chunks.append({**self._head, "choices": [], "usage": encode_usage(finished.usage)})
        return chunks

    def _fail(self, error: BridgeError) -> list[Json]:
        return [encode_error(error, error.status or 500)]

    def _make_body(self, finished: Finished) -> Json:
        texts = {"content": self._text.join(), "reasoning_content": self._reasoning.join()}
        message = {**self._message, **{name: text for name, text in texts.items() if text}}
        if "tool_calls" in message:  # their indexes are only for chunks
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"}
                for call in message["tool_calls"]
            ]
        reason = self._name_reason(finished)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        usage = {} if finished.usage is None else {"usage": encode_usage(finished.usage)}
        return {**self._head, "object": "chat.completion", **usage, "choices": [choice]}

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _name_reason(self, finished: Finished) -> str:
        name = FINISH_NAMES.get(finished.reason, "stop")
        return "function_call" if name == "tool_calls" and self._uses_functions else name

    def _encode_metadata(self, id_: str | None, metadata: Mapping[str, Any] | None) -> Json:
        text, self._block = self._block.join(), AnswerText()
        if not metadata:
            return {}
        detail = {
            "type": "reasoning.encrypted",
            "format": METADATA_FORMAT,
            "index": self._details,
            "data": encode_metadata({"id": id_, "text": text, "metadata": metadata}),
        }
        self._details += 1
        return {"reasoning_details": [detail]}

    def _encode_call(self, call: ToolCall) -> Json:
        arguments = call.input if isinstance(call.input, str) else write_json(call.input or {})
        if self._uses_functions:
            return {"function_call": {"name": call.name, "arguments": arguments}}
        encoded: Json = {"index": self._calls, "id": call.call_id}
        self._calls += 1
        if call.name in self._request.tools:
            custom = {"name": call.name, "input": read_custom_input(call.input)}
            encoded |= {"type": "custom", "custom": custom}
        else:
            encoded |= {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        if call.metadata:
            encoded["extra_content"] = {"tollbridge": encode_metadata(call.metadata)}
        return {"tool_calls": [encoded]}


def _encode_file(file: File) -> Json:
    """Return a generated image in OpenRouter's form. The protocol has no other files."""
    if not file.mime.startswith("image/"):
        return {}
    url = file.url
    if file.data is not None:
        url = f"data:{file.mime};base64,{b64encode(file.data).decode()}"
    return {"images": [{"type": "image_url", "image_url": {"url": url}}]}


def _encode_source(source: Source) -> Json:
    if source.url is None:
        return {}
    citation = {"url": source.url, "title": source.title or source.url, "start_index": 0, "end_index": 0}
    return {"annotations": [{"type": "url_citation", "url_citation": citation}]}
