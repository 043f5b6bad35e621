"""A server in front of another one that keeps every response, to compare it with what arrived elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self

import aiohttp
from aiohttp import web

from tollbridge.types.events import Usage


class Answer:
    """A response to a `POST`, read without any code of the product.

    Attributes:
        body: What has arrived so far. The caller may hang up after the last event.
    """

    def __init__(self) -> None:
        self.body = b""

    @property
    def _objects(self) -> list[dict[str, Any]]:
        return list(_read_objects(self.body))

    @property
    def text(self) -> str:
        """The text of the answer, from the deltas of any of the three protocols."""
        return "".join(_read_delta(value) for value in self._objects)

    @property
    def usage(self) -> Usage:
        """The tokens that the server has counted. Later counts replace earlier ones."""
        counts: dict[str, int] = {}
        for value in self._objects:
            usage = _find_usage(value)
            counts |= {name: count for name, count in usage.items() if isinstance(count, int)}
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            counts |= {name: count for name, count in details.items() if name == "cached_tokens"}
        if "prompt_tokens" in counts:
            prompt, output = counts["prompt_tokens"], counts["completion_tokens"]
        else:
            prompt, output = counts["input_tokens"], counts["output_tokens"]
        cached = counts.get("cached_tokens", 0)
        if "cache_read_input_tokens" in counts:  # the Messages API counts cached tokens separately
            cached = counts["cache_read_input_tokens"]
            prompt += cached
        return Usage(prompt, output, prompt + output, cached)


def _read_objects(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.split(b"\n"):
        if line.startswith((b"data: {", b"{")):
            yield json.loads(line.removeprefix(b"data: "))


def _find_usage(value: Mapping[str, Any]) -> Mapping[str, Any]:
    places = (value, value.get("message") or {}, value.get("response") or {})
    return next((usage for place in places if (usage := place.get("usage"))), {})


def _read_delta(value: Mapping[str, Any]) -> str:
    if value.get("type") == "response.output_text.delta":
        return str(value["delta"])
    if value.get("type") == "content_block_delta":
        return str(value["delta"].get("text") or "")
    return "".join(choice["delta"].get("content") or "" for choice in value.get("choices", ()))


class Tap:
    """Passes requests on to a server, and keeps the bodies of its answers.

    Args:
        target: The address of the server.
        defaults: Fields that are added to the bodies of requests that do not have them.

    Attributes:
        answers: The answers to `POST` requests with the status 200.
        failures: The answers with another status.
    """

    def __init__(self, target: str, defaults: Mapping[str, Any] | None = None) -> None:
        self._target = target
        self._defaults = defaults or {}
        self.answers: list[Answer] = []
        self.failures: list[Answer] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self._defaults and body:
            body = json.dumps({**self._defaults, **json.loads(body)}).encode()
        async with self._session.request(
            request.method,
            f"{self._target}{request.rel_url.raw_path_qs}",
            headers={"Content-Type": request.headers.get("Content-Type", "application/json")},
            data=body or None,
        ) as reply:
            response = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.content_type})
            await response.prepare(request)
            answer = Answer()
            if request.method == "POST":
                (self.answers if reply.status == 200 else self.failures).append(answer)
            async for chunk in reply.content.iter_any():
                answer.body += chunk
                await response.write(chunk)
        return response
