"""Responses of a real litellm proxy that contain what they cost, as bytes with their headers.

`python -m tests.interop.litellm.priced` makes the recordings `litellm.priced*` in `tests/recordings` again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
from tests.interop.litellm import proxy
from tests.interop.litellm.proxy import PRICED_MODEL, Proxy
from tests.interop.upstream import Upstream
from tests.recorded_streams import RECORDINGS, Recording

from tollbridge.testing.prompt_cache import CacheSettings
from tollbridge.testing.server import Gateway

# The proxy's own headers about the response. Others are the date, ids and addresses.
_HEADERS = ("content-type", "x-litellm-version", "x-litellm-response-cost", "x-litellm-key-spend")
# The simulated provider caches in blocks of 64 tokens and reports the tokens that it writes.
CACHE = CacheSettings(block=64, reports_writes=True)
_LIST = "Count these bridges: " + ", ".join(f"bridge {number}" for number in range(1, 60)) + "."
_QUESTIONS = (_LIST, f"Count these too: {', '.join(f'ferry {number}' for number in range(1, 40))}.")
_ANSWER = "There are 59."

# The folder of the recordings of a protocol, its route, and the end of the names of its single bodies.
ROUTES: Mapping[str, tuple[str, str, str]] = {
    "chat-completions": ("chat_completions", "/chat/completions", ""),
    "anthropic-messages": ("anthropic_messages", "/messages", "-nostream"),
    "openresponses": ("openresponses", "/responses", "-nostream"),
}


def body_of(protocol: str, question: str, *, is_second: bool, stream: bool) -> dict[str, Any]:
    """Return the request with a question, or with that question, its answer and a second question."""
    turns = [("user", question)]
    if is_second:
        turns += [("assistant", _ANSWER), ("user", _QUESTIONS[1])]
    messages = [{"role": role, "content": text} for role, text in turns]
    body: dict[str, Any] = {"model": PRICED_MODEL, "stream": stream}
    if protocol == "openresponses":
        return body | {"input": messages}
    if protocol == "anthropic-messages":
        return body | {"messages": messages, "max_tokens": 500}
    return body | {"messages": messages} | ({"stream_options": {"include_usage": True}} if stream else {})


async def ask(litellm: Proxy, protocol: str, *, stream: bool) -> Recording:
    """Return the response to the second question of a conversation: it reads and writes the prompt cache."""
    folder, route, ending = ROUTES[protocol]
    name = f"litellm.priced{'-stream' if stream else ending}"
    # Each conversation starts in its own way, so that no other one has written its start to the cache.
    question = f"{folder} {stream}. {_QUESTIONS[0]}"
    headers = {"Authorization": f"Bearer {litellm.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        for is_second in (False, True):
            body = body_of(protocol, question, is_second=is_second, stream=stream)
            async with http.post(litellm.url + route, json=body) as response:
                content = await response.read()
                if response.status != 200:
                    raise RuntimeError(f"{protocol}: {response.status} {content[:500]!r}")
    kept = {key.lower(): value for key, value in response.headers.items() if key.lower().startswith(_HEADERS)}
    return Recording(name, content, response.status, kept)


def write(protocol: str, recording: Recording) -> None:
    folder = RECORDINGS / ROUTES[protocol][0]
    is_stream = recording.headers["content-type"].startswith("text/event-stream")
    (folder / f"{recording.name}.{'sse' if is_stream else 'json'}").write_bytes(recording.body)
    lines = [f"{name}: {value}\n" for name, value in recording.headers.items()]
    (folder / f"{recording.name}.headers").write_text("".join(["HTTP/1.1 200 OK\n", *lines]))


async def record() -> None:
    async with Upstream() as upstream, Gateway(cache=CACHE) as gateway:
        url = gateway.url.removesuffix("/v1")
        async with proxy.running(upstream.url, priced=url) as litellm:
            for protocol in ROUTES:
                for stream in (True, False):
                    write(protocol, await ask(litellm, protocol, stream=stream))


if __name__ == "__main__":
    asyncio.run(record())
