"""The client for anyone's chat endpoint: one id a conversation, and any address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.recorded_streams import RECORDINGS

from tollbridge.clients.ai_sdk import UiStreamClient
from tollbridge.clients.base import Observer
from tollbridge.turn import Bridge
from tollbridge.types.errors import BrokenCall, RequestError
from tollbridge.types.events import Event, Finished
from tollbridge.types.messages import ChatRequest, Message, Part, Tool, ToolCallPart

STREAM = (Path(RECORDINGS) / "aisdk/7.0.169/plain-text.ui.sse").read_bytes()
FIRST = (Message("system", "Be brief."), Message("user", "Hello"))
SECOND = (*FIRST, Message("assistant", "Hi"), Message("user", "And now?"))


class Sent(Observer):
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.ids: list[Any] = []

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.urls.append(url)
        self.ids.append(json.loads(body)["id"])


async def ask(client: UiStreamClient, *messages: Message, **extra: Any) -> list[Event]:
    request = ChatRequest(model="", messages=messages, extra=extra or None)
    return [event async for event in client.stream(request)]


async def test_a_conversation_keeps_its_id_and_another_has_its_own() -> None:
    sent = Sent()
    async with (
        answering(http(200, STREAM)) as server,
        UiStreamClient(server.url) as client,
        UiStreamClient(server.url) as other,
    ):
        for messages in (FIRST, SECOND, (Message("user", "Something else"),)):
            await ask(client.watched(sent), *messages)  # watched anew for each turn, as programs do
        await ask(other.watched(sent), *FIRST)
        await ask(client.watched(sent), *FIRST, id="mine")
    first, second, else_, others, mine = sent.ids
    assert first == second
    assert len({first, else_, others}) == 3
    assert mine == "mine"


async def test_an_address_with_a_query_is_asked_as_it_is_and_kept_without_it() -> None:
    sent = Sent()
    async with answering(http(200, STREAM)) as server:
        base = server.url.removesuffix("/v1")
        async with UiStreamClient(f"{base}/api/chat/?id=7&token=secret/") as client:
            events = await ask(client.watched(sent), *FIRST)
            assert client.base_url == f"{base}/api/chat/"
            assert "secret" not in repr(client)
    assert isinstance(events[-1], Finished)
    assert server.heads[0].startswith("POST /api/chat/?id=7&token=secret/ HTTP/1.1\r\n")
    assert sent.urls == [f"{base}/api/chat/"]


REFUSED = (Path(RECORDINGS) / "aisdk/7.0.169/tool-call-invalid-json.ui.sse").read_bytes()


@pytest.mark.parametrize("name", ["get_weather", "list_dir"])
async def test_a_call_that_the_backend_refused_never_disappears(name: str) -> None:
    """Its loop can answer where the tool is the editor's; where it is the backend's, somebody must know."""
    parts: list[Part] = []
    request = ChatRequest(model="", messages=FIRST, tools=(Tool(name),))
    async with answering(http(200, REFUSED)) as server, UiStreamClient(server.url) as client:
        answer = Bridge(client).answer(request, parts.extend)
        if name == "list_dir":
            with pytest.raises(BrokenCall, match="get_weather"):
                await answer
            assert parts == []
        else:
            assert "get_weather" in (await answer).changes[0]
            assert parts == [ToolCallPart("call_1", name, {"_invalid_arguments": '{"city": "Oslo"'})]


@pytest.mark.parametrize("url", ["", " ", "https://host/chat#part"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError):
        UiStreamClient(url)
