"""A turn's events as the parts that a model gives the AI SDK, in specification 2, 3 or 4."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec

from tollbridge.core.events import (
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
from tollbridge.core.json import write_json
from tollbridge.core.usage import Usage
from tollbridge.gateway.aisdk_prompt import PROVIDER

Json = dict[str, Any]


class ModelParts:
    """Blocks are opened and closed as the events need it; their ids count up."""

    def __init__(self, spec: int, model: str) -> None:
        self._spec = spec
        self._model = model
        self._blocks = 0
        self._open: str | None = None  # the kind of the open block

    def start(self, unsupported: Sequence[str]) -> list[Json]:
        new = (
            {"type": "unsupported", "feature": ""}
            if self._spec > 2
            else {"type": "unsupported-setting", "setting": ""}
        )
        warnings = [{name: value or setting for name, value in new.items()} for setting in unsupported]
        return [
            {"type": "stream-start", "warnings": warnings},
            {"type": "response-metadata", "modelId": self._model},
        ]

    def take(self, events: Iterable[Event]) -> list[Json]:
        return [part for event in events for part in self._parts(event)]

    def _parts(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text):
                return [*self._opened("text"), {"type": "text-delta", "id": self._id, "delta": text}]
            case ReasoningDelta(text):
                return [
                    *self._opened("reasoning"),
                    {"type": "reasoning-delta", "id": self._id, "delta": text},
                ]
            case ReasoningEnded(_, metadata):
                opened = self._opened("reasoning") if metadata else []
                return [*opened, *self._closed({PROVIDER: dict(metadata)} if metadata else None)]
            case ToolCall():
                return [*self._closed(), *_call(event)]
            case File():
                return [*self._closed(), self._file(event)]
            case Source():
                return [*self._closed(), _source(event)]
            case Finished():
                return [*self._closed(), self._finish(event)]
            case Failed(error):
                said = {
                    "message": error.message,
                    "type": error.code or error.kind,
                    "statusCode": error.status,
                }
                known = {name: value for name, value in said.items() if value is not None}
                return [*self._closed(), {"type": "error", "error": known}]
            case Data() | Corrected():
                return []  # no model says such a thing
            case _:
                assert_never(event)

    @property
    def _id(self) -> str:
        return str(self._blocks)

    def _opened(self, kind: str) -> list[Json]:
        if self._open == kind:
            return []
        closed = self._closed()
        self._open, self._blocks = kind, self._blocks + 1
        return [*closed, {"type": f"{kind}-start", "id": self._id}]

    def _closed(self, metadata: Json | None = None) -> list[Json]:
        kind, self._open = self._open, None
        proof = {"providerMetadata": metadata} if metadata else {}
        return [{"type": f"{kind}-end", "id": self._id, **proof}] if kind else []

    def _file(self, file: File) -> Json:
        data: Any = file.url if file.data is None else b64encode(file.data).decode()
        if self._spec == 4:
            data = {"type": "url", "url": data} if file.data is None else {"type": "data", "data": data}
        return {"type": "file", "mediaType": file.mime, "data": data}

    def _finish(self, finished: Finished) -> Json:
        reason = finished.reason or "other"
        usage = finished.usage or Usage()
        if self._spec == 2:
            return {"type": "finish", "finishReason": reason, "usage": _flat(usage)}
        unified = "other" if reason == "unknown" else reason
        return {
            "type": "finish",
            "finishReason": {"unified": unified, "raw": reason},
            "usage": _nested(usage),
        }


def _call(call: ToolCall) -> list[Json]:
    text = call.input if isinstance(call.input, str) else write_json(call.input)
    named = {"toolCallId": call.call_id, "toolName": call.name}
    return [
        {"type": "tool-input-start", "id": call.call_id, "toolName": call.name},
        {"type": "tool-input-delta", "id": call.call_id, "delta": text},
        {"type": "tool-input-end", "id": call.call_id},
        {"type": "tool-call", **named, "input": text},
    ]


def _source(source: Source) -> Json:
    names = {"kind": "sourceType", "mime": "mediaType"}
    fields = msgspec.structs.asdict(source) | {"id": source.id or source.url or "source"}
    known = {names.get(name, name): value for name, value in fields.items() if value is not None}
    return {"type": "source", **known}


def _flat(usage: Usage) -> Json:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def _nested(usage: Usage) -> Json:
    return {
        "inputTokens": {"total": usage.input_tokens, "cacheRead": usage.cached_tokens},
        "outputTokens": {"total": usage.output_tokens, "reasoning": usage.reasoning_tokens},
    }
