"""Encode answers for callers of OpenResponses, as a stream or as one response object.

Reasoning passes through the caller in `encrypted_content`, which callers return unchanged: the metadata of a
reasoning block, with the model and the gateway it is valid for, is stored there (`encode_metadata`).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from typing import Any

from tollbridge.protocols.answer import AnswerEncoder, AnswerText, new_id
from tollbridge.protocols.caller_request import CallerRequest, CallerTool, Json, read_custom_input
from tollbridge.protocols.openresponses.wire import encode_usage
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import (
    Corrected,
    Event,
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


def make_response(body: Mapping[str, Any], response_id: str, created_at: int) -> Json:
    """Return the response object at the start: in progress, without output and usage.

    The specification requires that it repeats the options of the request, which is `body`.
    """

    def option(name: str, default: Any = None) -> Any:
        value = body.get(name)
        return default if value is None else value

    reasoning = body.get("reasoning")
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": body.get("model"),
        "previous_response_id": body.get("previous_response_id"),
        "instructions": body.get("instructions"),
        "output": [],
        "error": None,
        "tools": [_describe_tool(tool) for tool in option("tools", [])],
        "tool_choice": _describe_choice(option("tool_choice", "auto")),
        "truncation": option("truncation", "disabled"),
        "parallel_tool_calls": option("parallel_tool_calls", True),
        "text": _describe_text(option("text", {})),
        "top_p": option("top_p", 1.0),
        "presence_penalty": option("presence_penalty", 0.0),
        "frequency_penalty": option("frequency_penalty", 0.0),
        "top_logprobs": option("top_logprobs", 0),
        "temperature": option("temperature", 1.0),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")}
        if isinstance(reasoning, Mapping)
        else None,
        "usage": None,
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "store": option("store", True),
        "background": option("background", False),
        "service_tier": option("service_tier", "default"),
        "metadata": option("metadata", {}),
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }


def _describe_tool(tool: Any) -> Any:
    """Return a declared tool with all fields that the specification requires of a function."""
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def _describe_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {"mode": "auto", **choice}
    return choice


def _describe_text(text: Any) -> Json:
    output_format = (text.get("format") if isinstance(text, Mapping) else None) or {"type": "text"}
    description: Json = {"type": output_format.get("type", "text")}
    if description["type"] == "json_schema":
        # In responses, the specification allows only null as the schema.
        description |= {
            "name": output_format.get("name"),
            "description": output_format.get("description"),
            "schema": None,
            "strict": bool(output_format.get("strict")),
        }
    verbosity = text.get("verbosity") if isinstance(text, Mapping) else None
    return {"format": description, **({"verbosity": verbosity} if verbosity else {})}


class ResponsesEncoder(AnswerEncoder):
    """Encodes an answer as the events of a streamed response, and as the response object."""

    def __init__(self, request: CallerRequest, *, input_tokens: int = 0) -> None:
        super().__init__(request, input_tokens=input_tokens)
        self._sequence_number = 0
        self._output: list[Json] = []
        self._item: Json | None = None  # the open message or reasoning item
        self._reasoning_id: str | None = None  # the gateway's id of the open reasoning item
        self._text = AnswerText()  # of the open item
        self._annotations: list[Json] = []
        self._response = make_response(request.body, new_id("resp"), int(time.time()))

    def start(self) -> list[Json]:
        response = dict(self._response)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def _encode_event(self, event: Event) -> list[Json]:
        match event:
            case TextDelta(text) if text:
                return self._add_text(text)
            case ReasoningDelta(text, id_):
                return self._add_reasoning(text, id_)
            case ReasoningEnded(id_, metadata):
                return self._end_reasoning(id_, metadata)
            case ToolCall(offered=True):
                return [*self._close_item(), *self._add_call(event)]
            case File(data=bytes()) if event.mime.startswith("image/"):
                return [*self._close_item(), *self._add_image(event)]
            case Source(kind="url", url=str() as url) if self._is_open("message"):
                return self._add_citation(url, event.title)
            case Corrected(text, replaces, of="text") if self._is_open("message"):
                self._text.add(text, replaces=replaces)
        return []

    def _complete(self, finished: Finished) -> list[Json]:
        if finished.ended != "incomplete":
            return self._end("completed", completed_at=int(time.time()))
        reason = "content_filter" if finished.reason == "content-filter" else "max_output_tokens"
        return self._end("incomplete", incomplete_details={"reason": reason})

    def _fail(self, error: BridgeError) -> list[Json]:
        return self._end("failed", error={"code": error.code or error.kind, "message": error.message})

    def _end(self, status: str, **fields: Any) -> list[Json]:
        """Return the last events, and complete the response object."""
        events = self._close_item("completed" if status == "completed" else "incomplete")
        usage = self._finished.usage if self._finished is not None else None
        if usage is not None:
            fields["usage"] = encode_usage(usage)
        self._response |= {"output": self._output, "status": status, **fields}
        return [*events, self._event(f"response.{status}", response=self._response)]

    def _make_body(self, finished: Finished) -> Json:  # noqa: ARG002
        return self._response

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": kind, "sequence_number": self._sequence_number, **fields}
        self._sequence_number += 1
        return event

    # Messages

    def _add_text(self, text: str) -> list[Json]:
        events: list[Json] = []
        if not self._is_open("message"):
            events += self._open_item("message", "msg", status="in_progress", role="assistant", content=[])
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            events.append(self._part_event("response.content_part.added", part=part))
        self._text.add(text)
        return [*events, self._part_event("response.output_text.delta", delta=text, logprobs=[])]

    def _add_citation(self, url: str, title: str | None) -> list[Json]:
        annotation = {
            "type": "url_citation",
            "url": url,
            "title": title or url,
            "start_index": self._text.length,
            "end_index": self._text.length,
        }
        self._annotations.append(annotation)
        index = len(self._annotations) - 1
        kind = "response.output_text.annotation.added"
        return [self._part_event(kind, annotation_index=index, annotation=annotation)]

    # Reasoning

    def _add_reasoning(self, text: str, id_: str | None) -> list[Json]:
        events = self._open_reasoning(id_)
        if text:
            if not self._text:
                part = {"type": "summary_text", "text": ""}
                events.append(self._part_event("response.reasoning_summary_part.added", part=part))
            self._text.add(text)
            events.append(self._part_event("response.reasoning_summary_text.delta", delta=text))
        return events

    def _open_reasoning(self, id_: str | None) -> list[Json]:
        """Open a reasoning item, unless the open one is the same block."""
        block = (id_ or "").partition(":")[0]
        if self._is_open("reasoning") and self._reasoning_id == block:
            return []
        self._reasoning_id = block
        return self._open_item("reasoning", "rs", summary=[])

    def _end_reasoning(self, id_: str | None, metadata: Mapping[str, Any] | None) -> list[Json]:
        events = self._open_reasoning(id_) if metadata else []
        if self._item is None or self._item["type"] != "reasoning":
            return events
        if metadata:
            self._item["encrypted_content"] = encode_metadata(metadata)
        return [*events, *self._close_item()]

    # Tool calls and images

    def _add_call(self, call: ToolCall) -> list[Json]:
        tool = self._request.tools.get(call.name, CallerTool(call.name))
        namespace = {"namespace": tool.namespace} if tool.namespace else {}
        common = {"call_id": call.call_id, "name": tool.name, **namespace}
        if tool.custom:
            kind, prefix, field, event = "custom_tool_call", "ctc", "input", "custom_tool_call_input"
            value = read_custom_input(call.input)
        else:
            kind, prefix, field, event = "function_call", "fc", "arguments", "function_call_arguments"
            value = call.input if isinstance(call.input, str) else write_json(call.input or {})
        item: Json = {"type": kind, "id": new_id(prefix), **common, field: "", "status": "in_progress"}
        events = [self._item_event("response.output_item.added", item)]
        place = {"item_id": item["id"], "output_index": len(self._output)}
        if value:
            events.append(self._event(f"response.{event}.delta", **place, delta=value))
        events.append(self._event(f"response.{event}.done", **place, **{field: value}, name=tool.name))
        return [*events, self._end_item({**item, field: value, "status": "completed"})]

    def _add_image(self, file: File) -> list[Json]:
        item: Json = {
            "type": "image_generation_call",
            "id": new_id("ig"),
            "status": "in_progress",
            "result": None,
        }
        start = self._item_event("response.output_item.added", item)
        result = base64.b64encode(file.data or b"").decode()
        return [start, self._end_item({**item, "status": "completed", "result": result})]

    # Items

    def _is_open(self, kind: str) -> bool:
        return self._item is not None and self._item["type"] == kind

    def _item_event(self, kind: str, item: Json) -> Json:
        return self._event(kind, output_index=len(self._output), item=dict(item))

    def _part_event(self, kind: str, **fields: Any) -> Json:
        """Return an event of the only part of the open item."""
        item = self._item or {}
        index = {"summary_index" if item.get("type") == "reasoning" else "content_index": 0}
        return self._event(
            kind, item_id=item.get("id", ""), output_index=len(self._output), **index, **fields
        )

    def _open_item(self, kind: str, prefix: str, **fields: Any) -> list[Json]:
        events = self._close_item()
        self._item = {"type": kind, "id": new_id(prefix), **fields}
        return [*events, self._item_event("response.output_item.added", self._item)]

    def _end_item(self, item: Json) -> Json:
        event = self._item_event("response.output_item.done", item)
        self._output.append(item)
        return event

    def _close_item(self, status: str = "completed") -> list[Json]:
        """End the open message or reasoning item, if there is one."""
        item = self._item
        if item is None:
            return []
        text, events = self._text.join(), []
        if item["type"] == "message":
            part = {"type": "output_text", "text": text, "annotations": self._annotations, "logprobs": []}
            events += [
                self._part_event("response.output_text.done", text=text, logprobs=[]),
                self._part_event("response.content_part.done", part=part),
            ]
            item |= {"content": [part], "status": status}
        elif text:
            part = {"type": "summary_text", "text": text}
            events += [
                self._part_event("response.reasoning_summary_text.done", text=text),
                self._part_event("response.reasoning_summary_part.done", part=part),
            ]
            item["summary"] = [part]
        events.append(self._end_item(item))
        self._item, self._text, self._annotations = None, AnswerText(), []
        return events
