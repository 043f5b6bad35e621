"""A Chat Completions server with a scripted model, as the upstream of a proxy.

It replaces vLLM or LM Studio: `POST /v1/chat/completions`, streamed and in one body, with usage. Words in the
last message select the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Self

from aiohttp import web

TEXT = "Hello from the upstream, which heard you."
THOUGHT = "The user wants a number. 17 times 3 is 51."
QUOTED = 200  # characters of a prompt or a result; prompts of editors are very long
PACE = 0.02  # seconds between two words of a slow answer
CACHED = 4  # tokens of every prompt that count as read from the prompt cache
OUTPUT = 9  # tokens of every answer
# Words in the last user message that cause an error: the status and the error message.
FAILURES = {
    "fail-400": (400, "The upstream does not like this."),
    "fail-429": (429, "The upstream is asked too often."),
    "fail-500": (500, "The upstream is broken."),
}
# The name of a tool alone does not cause a call: prompts of editors contain many names.
_WISH = re.compile(r"\btool (\w+) on (/\S+)")


class Upstream:
    """Run a server on a free loopback port while the block lasts. `requests` are the received bodies."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list_models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _list_models(self, _request: web.Request) -> web.Response:
        model = {"id": "mock", "object": "model", "created": 1_790_000_000, "owned_by": "upstream"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        prompt = read_prompt(body)
        for word, (status, message) in FAILURES.items():
            if word in prompt:
                return web.json_response({"error": {"message": message, "type": "upstream"}}, status=status)
        if not body.get("stream"):
            return web.json_response(whole(body, prompt))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the client has disconnected
            for chunk in chunks(body, prompt):
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                await asyncio.sleep(PACE if "slowly" in prompt else 0)
            await response.write(b"data: [DONE]\n\n")
        return response


def count_prompt(body: dict[str, Any]) -> int:
    """Return the tokens of a prompt: one for each started group of four characters that the model sees."""
    seen = [body["messages"], body.get("tools") or []]
    return -(-len(json.dumps(seen)) // 4)


def _usage(body: dict[str, Any]) -> dict[str, Any]:
    prompt = count_prompt(body)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": OUTPUT,
        "total_tokens": prompt + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _last_words(body: dict[str, Any]) -> str:
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    last = texts[-1] if texts else ""
    if isinstance(last, list):
        last = " ".join(part.get("text", "") for part in last)
    return str(last)


def read_prompt(body: dict[str, Any]) -> str:
    """Return the last text of the user in lower case."""
    return _last_words(body).lower()


def _roles_after_answer(body: dict[str, Any]) -> list[str]:
    """Return the roles of the messages after the last message of the model."""
    roles = [message["role"] for message in body["messages"]]
    spoke = [place for place, role in enumerate(roles) if role == "assistant"]
    return roles[spoke[-1] + 1 :] if spoke else roles


def calls(body: dict[str, Any], prompt: str) -> list[dict[str, Any]]:
    """Return the tool calls of the model: if a tool is requested and its result is not there yet.

    The tool is the first one, or “the tool NAME on /PATH”.
    """
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    answered = "tool" in _roles_after_answer(body) or "result" in prompt
    if not tools or answered or not ("tool" in prompt or body.get("tool_choice") == "required"):
        return []
    wish = _WISH.search(_last_words(body))
    if wish and wish[1] in tools:
        return [_call(0, wish[1], {"path": wish[2]})]
    cities = ("Paris", "Rome") if "parallel" in prompt else ("Paris",)
    return [_call(index, tools[0], {"city": city}) for index, city in enumerate(cities)]


def _call(index: int, name: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {
        "index": index,
        "id": f"call_up_{index}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def answer(body: dict[str, Any], prompt: str) -> tuple[str, str]:
    """Return the text, which quotes the system prompt and the tool results, and the finish reason.

    A tool result can also be the text of a user message that contains the word "result".
    """
    words = [TEXT]
    words += [
        str(each["content"])[:QUOTED]
        for each in body["messages"]
        if each["role"] in ("system", "developer", "tool")
    ]
    if "result" in prompt:
        words.append(_last_words(body)[:QUOTED])
    if "long" in prompt:
        words += [str(number) for number in range(1, 201)]
    return " ".join(words), "length" if "at length" in prompt else "stop"


def chunks(body: dict[str, Any], prompt: str) -> Iterator[dict[str, Any]]:
    yield _chunk(body, {"role": "assistant", "content": ""})
    if "think" in prompt:
        yield from (_chunk(body, {"reasoning_content": word}) for word in _words(THOUGHT))
    tool_calls = calls(body, prompt)
    if tool_calls:
        for call in tool_calls:
            opening = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield _chunk(body, {"tool_calls": [opening]})
            rest = {"index": call["index"], "function": {"arguments": call["function"]["arguments"]}}
            yield _chunk(body, {"tool_calls": [rest]})
        yield _chunk(body, {}, "tool_calls")
    else:
        text, reason = answer(body, prompt)
        yield from (_chunk(body, {"content": word}) for word in _words(text))
        yield _chunk(body, {}, reason)
    yield {**_chunk(body, {}), "choices": [], "usage": _usage(body)}


def whole(body: dict[str, Any], prompt: str) -> dict[str, Any]:
    tool_calls = calls(body, prompt)
    text, reason = answer(body, prompt)
    message: dict[str, Any] = {"role": "assistant", "content": None if tool_calls else text}
    if tool_calls:
        message["tool_calls"] = tool_calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tool_calls else reason}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(body)}


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-up", "object": kind, "created": 1_790_000_000, "model": body.get("model", "up")}


def _chunk(body: dict[str, Any], delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**_head(body, "chat.completion.chunk"), "choices": [choice]}


def _words(text: str) -> Iterator[str]:
    return (f"{word} " for word in text.split(" "))
