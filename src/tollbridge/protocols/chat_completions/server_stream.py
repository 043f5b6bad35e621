"""Encode the events of an answer as Chat Completions, for servers: chunks, one JSON body, and errors.

Reasoning is sent to the caller as `reasoning_content`, the field that most callers display. Its metadata (a
signature, encrypted content) follows as an entry of `reasoning_details`, and the metadata of a tool call in
its `extra_content`: callers that know these fields return them unchanged.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from tollbridge.protocols.chat_completions.server_requests import CUSTOM_ARGUMENT, CallerRequest
from tollbridge.protocols.chat_completions.wire import (
    FINISH_NAMES,
    METADATA_FORMAT,
    Json,
    encode_usage,
)
from tollbridge.types.errors import BridgeError, Kind, ServerFailed
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
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    code = _CODES.get(error.kind, error.kind)
    if error.code is not None and error.kind != "context_too_long":
        code = error.code
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


DONE = b"data: [DONE]\n\n"
# The field of a delta with the number of characters that it replaces; only for answers that are not streamed.
_REPLACES = "replaces"


def write_frames(chunks: Iterable[Json]) -> bytes:
    """Return chunks as server-sent events. A stream without an error ends with `DONE`."""
    return b"".join(b"data: " + write_json(chunk).encode() + b"\n\n" for chunk in chunks)


class CompletionEncoder:
    """Encode the events of an answer as chunks.

        encoder = CompletionEncoder(caller)
        chunks = encoder.start()
        chunks += encoder.encode(batch)      # for each batch of an answer
        chunks += encoder.finish(error)      # `error` is `None` if the answer is complete
        body = join_chunks(chunks)           # for a caller that does not stream

    Text that was sent in a stream cannot be corrected in this protocol, and the calls that the gateway ran
    itself have no place in it: both are left out.

    Args:
        caller: The request of the caller.
        new_id: Creates the id of the completion.
        now: The time of the completion, in seconds since 1970.
    """

    def __init__(
        self,
        caller: CallerRequest,
        *,
        new_id: Callable[[], str] = lambda: f"chatcmpl-{secrets.token_hex(16)}",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._caller = caller
        self._head: Json = {
            "id": new_id(),
            "object": "chat.completion.chunk",
            "created": int(now()),
            "model": caller.request.model,
        }
        self._calls = 0
        self._blocks = 0
        self._reasoning: list[str] = []  # the text of the open block
        self._finished: Finished | None = None

    def start(self) -> list[Json]:
        """Return the first chunk."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def encode(self, batch: Iterable[Event]) -> list[Json]:
        """Return the chunks for a batch of the answer."""
        return [self._chunk(delta) for event in batch for delta in self._encode_event(event)]

    def finish(self, error: BridgeError | None = None) -> list[Json]:
        """Return the last chunks: the finish reason and, if the caller wants it, the usage; or the error."""
        finished = self._finished
        if error is None and finished is None:
            error = ServerFailed("The answer ended without a terminal event.")
        if error is not None or finished is None:
            return [encode_error(error, error.status or 500)] if error is not None else []
        name = FINISH_NAMES.get(finished.reason, "stop")
        if name == "tool_calls" and self._caller.functions:
            name = "function_call"
        chunks = [self._chunk({}, name)]
        if finished.usage is not None and (self._caller.include_usage or not self._caller.stream):
            chunks.append({**self._head, "choices": [], "usage": encode_usage(finished.usage)})
        return chunks

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _encode_event(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text, replaces):
                return self._replace_text(text, replaces) or ([{"content": text}] if text else [])
            case Corrected(text, replaces, of="text"):
                return self._replace_text(text, replaces)
            case ReasoningDelta(text, _, replaces) | Corrected(text, replaces):
                _replace_end(self._reasoning, replaces, text)
                return [{"reasoning_content": text}] if text and isinstance(event, ReasoningDelta) else []
            case ReasoningEnded(id_, metadata):
                return self._encode_metadata(id_, metadata)
            case ToolCall():
                return [self._encode_call(event)] if event.offered else []
            case File():
                return _encode_file(event)
            case Source():
                return _encode_source(event)
            case Finished():
                self._finished = event
                return []
            case Data() | Failed():
                return []  # an error is passed to `finish`
            case _:
                assert_never(event)

    def _replace_text(self, text: str, replaces: int) -> list[Json]:
        """Return a delta that `join_chunks` applies. A caller that streams would not understand it."""
        return [{"content": text, _REPLACES: replaces}] if replaces and not self._caller.stream else []

    def _encode_metadata(self, id_: str | None, metadata: Mapping[str, Any] | None) -> list[Json]:
        text, self._reasoning = "".join(self._reasoning), []
        if not metadata:
            return []
        data = encode_metadata({"id": id_, "text": text, "metadata": metadata})
        detail = {
            "type": "reasoning.encrypted",
            "format": METADATA_FORMAT,
            "index": self._blocks,
            "data": data,
        }
        self._blocks += 1
        return [{"reasoning_details": [detail]}]

    def _encode_call(self, call: ToolCall) -> Json:
        arguments = call.input if isinstance(call.input, str) else write_json(call.input or {})
        if self._caller.functions:
            return {"function_call": {"name": call.name, "arguments": arguments}}
        encoded: Json = {"index": self._calls, "id": call.call_id}
        self._calls += 1
        if call.name in self._caller.custom_tools:
            text = call.input.get(CUSTOM_ARGUMENT, "") if isinstance(call.input, Mapping) else call.input
            encoded |= {"type": "custom", "custom": {"name": call.name, "input": str(text)}}
        else:
            encoded |= {"type": "function", "function": {"name": call.name, "arguments": arguments}}
        if call.metadata:
            encoded["extra_content"] = {"tollbridge": encode_metadata(call.metadata)}
        return {"tool_calls": [encoded]}


def _replace_end(pieces: list[str], length: int, text: str) -> None:
    """Replace the last `length` characters of joined pieces."""
    if length:
        previous = "".join(pieces)
        pieces[:] = [previous[: max(0, len(previous) - length)]]
    pieces.append(text)


def _encode_file(file: File) -> list[Json]:
    """Return a generated image in OpenRouter's form. The protocol has no other files."""
    if not file.mime.startswith("image/"):
        return []
    url = file.url
    if file.data is not None:
        url = f"data:{file.mime};base64,{b64encode(file.data).decode()}"
    return [{"images": [{"type": "image_url", "image_url": {"url": url}}]}]


def _encode_source(source: Source) -> list[Json]:
    if source.url is None:
        return []
    citation = {"url": source.url, "title": source.title or source.url, "start_index": 0, "end_index": 0}
    return [{"annotations": [{"type": "url_citation", "url_citation": citation}]}]


def join_chunks(chunks: Iterable[Json]) -> Json:
    """Join all chunks of an answer to the body for a caller that does not stream.

    An error chunk is returned as it is.
    """
    body: Json = {}
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    finish_reason = None
    for chunk in chunks:
        if "error" in chunk:
            return chunk
        body |= {name: value for name, value in chunk.items() if name != "choices"}
        for choice in chunk["choices"]:
            finish_reason = choice["finish_reason"] or finish_reason
            for name, value in choice["delta"].items():
                if name in texts:
                    _replace_end(texts[name], choice["delta"].get(_REPLACES, 0), value)
                elif name == _REPLACES:
                    continue
                elif isinstance(value, list):
                    message.setdefault(name, []).extend(value)
                else:
                    message[name] = value
    message |= {name: text for name, pieces in texts.items() if (text := "".join(pieces))}
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return {**body, "object": "chat.completion", "choices": [choice]}
