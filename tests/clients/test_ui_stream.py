"""The client for chat endpoints: one id per conversation, and URLs with a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.canned_server import answering, http
from tests.recorded_streams import RECORDINGS
from tests.turns import Runner

from tollbridge.clients.observer import Observer
from tollbridge.clients.protocols import UiStreamClient
from tollbridge.types.errors import BrokenCall, RequestError
from tollbridge.types.events import Event, Finished
from tollbridge.types.messages import ChatRequest, Message, Part, Tool, ToolCallPart

STREAM = (Path(RECORDINGS) / "aisdk/7.0.169/plain-text.ui.sse").read_bytes()
FIRST = (Message("system", "Be brief."), Message("user", "Hello"))
SECOND = (*FIRST, Message("assistant", "Hi"), Message("user", "And now?"))


class RequestObserver(Observer):
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.ids: list[Any] = []

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.urls.append(url)
        self.ids.append(json.loads(body)["id"])


async def ask(
    client: UiStreamClient, *messages: Message, observer: Observer | None = None, **extra: Any
) -> list[Event]:
    request = ChatRequest(model="", messages=messages, extra=extra or None)
    observers = [observer] if observer else []
    return [event async for event in client.stream(request, observers=observers)]


async def test_a_conversation_keeps_its_id_and_others_have_different_ids() -> None:
    observer = RequestObserver()
    async with (
        answering(http(200, STREAM)) as server,
        UiStreamClient(server.url) as client,
        UiStreamClient(server.url) as other,
    ):
        for messages in (FIRST, SECOND, (Message("user", "Something else"),)):
            await ask(client, *messages, observer=observer)
        await ask(other, *FIRST, observer=observer)
        await ask(client, *FIRST, observer=observer, id="mine")
    first, second, else_, others, mine = observer.ids
    assert first == second
    assert len({first, else_, others}) == 3
    assert mine == "mine"


async def test_the_query_of_the_url_is_sent_but_not_stored() -> None:
    observer = RequestObserver()
    async with answering(http(200, STREAM)) as server:
        base = server.url.removesuffix("/v1")
        async with UiStreamClient(f"{base}/api/chat/?id=7&token=secret/") as client:
            events = await ask(client, *FIRST, observer=observer)
            assert client.base_url == f"{base}/api/chat/"
            assert "secret" not in repr(client)
    assert isinstance(events[-1], Finished)
    assert server.heads[0].startswith("POST /api/chat/?id=7&token=secret/ HTTP/1.1\r\n")
    assert observer.urls == [f"{base}/api/chat/"]


REFUSED = (Path(RECORDINGS) / "aisdk/7.0.169/tool-call-invalid-json.ui.sse").read_bytes()


@pytest.mark.parametrize("name", ["get_weather", "list_dir"])
async def test_a_call_rejected_by_the_backend_is_reported(name: str) -> None:
    """A call to a tool of the editor is passed on; a call to a tool of the backend is an error."""
    parts: list[Part] = []
    request = ChatRequest(model="", messages=FIRST, tools=(Tool(name),))
    async with answering(http(200, REFUSED)) as server, UiStreamClient(server.url) as client:
        answer = Runner(client).run(request, parts.extend)
        if name == "list_dir":
            with pytest.raises(BrokenCall, match="get_weather"):
                await answer
            assert parts == []
        else:
            assert "get_weather" in (await answer).changes[0]
            assert parts == [ToolCallPart("call_1", name, {"_invalid_arguments": '{"city": "Oslo"'})]


@pytest.mark.parametrize("url", ["", " ", "https://host/chat#part"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(RequestError):
        UiStreamClient(url)
