"""A client for tests that returns status, headers and bytes unchanged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

DEMO = "tollbridge/demo"

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather at a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["location"],
    },
}
LIST_DIR: dict[str, Any] = {
    "type": "function",
    "name": "list_dir",
    "description": "List the contents of a directory",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert isinstance(error, dict)
        return error

    @property
    def events(self) -> list[dict[str, Any]]:
        return read_events(self.data)

    @property
    def text(self) -> str:
        return output_text(self.json)


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with self.session.post(f"{self.url}{path}", data=data, headers=sent) as reply:
            names = {name.lower(): value for name, value in reply.headers.items()}
            return Answer(reply.status, names, await reply.read())

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        async with self.session.get(f"{self.url}{path}", headers=headers) as reply:
            names = {name.lower(): value for name, value in reply.headers.items()}
            return Answer(reply.status, names, await reply.read())

    async def ask(self, input_value: Any, **fields: Any) -> Answer:
        return await self.post("/responses", {"model": DEMO, "input": input_value, **fields})

    async def stream(self, input_value: Any, **fields: Any) -> Answer:
        return await self.ask(input_value, stream=True, **fields)


def read_events(data: bytes) -> list[dict[str, Any]]:
    """Decode a stream with the framing of the specification; any other framing fails the test."""
    frames = data.split(b"\n\n")
    assert frames[-2:] == [b"data: [DONE]", b""]
    events = []
    for frame in frames[:-2]:
        name, line = frame.split(b"\n")
        event = json.loads(line.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    return events


def read_loosely(data: bytes) -> list[dict[str, Any]]:
    """Decode the JSON in the `data:` lines of a stream, whatever its framing."""
    events = []
    for frame in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:")]
        joined = b"\n".join(lines)
        if joined and joined != b"[DONE]":
            events.append(json.loads(joined))
    return events


def output_text(response: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )


def calls(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def user(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": content, **fields}


def result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def types(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]
