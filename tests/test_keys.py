"""A key is planted, everything that can happen is made to happen, and the key is looked for everywhere."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.canned_server import answering, http
from tests.transport.servers import unused_port
from tests.turns import Runner
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, Tool

# Two halves, so that no file holds it whole, and any copy of it was made by the program.
KEY = "sk-planted-" + "7f3a9c51d2e84b60"
WRONG = "sk-planted-" + "0000000000000000"
QUICK = FaultSettings(stall_seconds=0.4, oversized_bytes=200_000, pace=0.001)
TIMES = Timeouts(connect=2, idle=0.25, total=5)
ONCE = RetryPolicy(attempts=2, first=0.001, longest=0.5)
WEATHER = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
REQUEST = ChatRequest(
    model="tollbridge/demo",
    messages=(Message(Role.USER, (TextPart("Say hello to the house"),)),),
    tools=(WEATHER,),
)


class Shown:
    """Everything the program has let anyone see."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self._caplog = caplog
        self._capfd = capfd
        self._texts: list[str] = []
        self.errors = 0

    def add(self, *values: object) -> None:
        self._texts += [f"{value} {value!r}" for value in values]

    def add_error(self, error: BaseException) -> None:
        self.errors += 1
        self._texts += traceback.format_exception(error)
        for link in _chain(error):
            self.add(link, link.args, vars(link), getattr(link, "__notes__", ()))

    def look(self, *keys: str) -> None:
        written = self._capfd.readouterr()
        records = [f"{record.getMessage()} {record.args} {vars(record)}" for record in self._caplog.records]
        everything = "\n".join([*self._texts, *records, self._caplog.text, written.out, written.err])
        assert everything.strip()
        for key in keys:
            assert key not in everything


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            waiting += [link.__cause__, link.__context__]
            yield link


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Shown:
    caplog.set_level(logging.DEBUG)
    for name in ("", "aiohttp", "asyncio", "tollbridge"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    return Shown(caplog, capfd)


async def do_everything(client: OpenResponsesClient, shown: Shown, key: str | None) -> None:
    runner = Runner(client)

    async def answer() -> Any:
        parts: list[Part] = []
        return await runner.run(REQUEST, parts.extend, api_key=key), parts

    async def create() -> Any:
        return await client.create(REQUEST, api_key=key)

    async def models() -> Any:
        return await client.models(api_key=key)

    for call in (answer, create, models):
        try:
            shown.add(await call())
        except BridgeError as error:
            shown.add_error(error)
    shown.add(client, runner, runner.tracker.records, vars(runner.tracker))


def test_the_key_is_looked_for_where_errors_hide_things(shown: Shown) -> None:
    """The search itself finds what it looks for."""
    inner = ValueError("x")
    inner.hidden = KEY  # type: ignore[attr-defined]
    try:
        try:
            raise inner
        except ValueError as error:
            raise KeyError("y") from error
    except KeyError as error:
        shown.add_error(error)
    with pytest.raises(AssertionError):
        shown.look(KEY)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_whatever_the_gateway_does_the_key_is_nowhere(scenario: str, shown: Shown) -> None:
    async with Gateway(scenario=scenario, api_key=KEY, settings=QUICK) as gateway:
        async with OpenResponsesClient(gateway.url, KEY, timeouts=TIMES, retries=ONCE) as client:
            await do_everything(client, shown, None)
        assert KEY in [arrival.bearer for arrival in gateway.requests]  # it did travel
        shown.add(gateway, *gateway.requests, *(vars(each) for each in gateway.requests if not each.bearer))
    shown.look(KEY)


async def test_a_wrong_key_and_a_key_of_one_call_are_nowhere_either(shown: Shown) -> None:
    async with (
        Gateway(api_key=KEY, settings=QUICK) as gateway,
        OpenResponsesClient(gateway.url, WRONG, timeouts=TIMES, retries=ONCE) as client,
    ):
        await do_everything(client, shown, None)
        await do_everything(client, shown, KEY)
    assert shown.errors == 3
    shown.look(KEY, WRONG)


QUOTING = [
    http(
        401, json.dumps({"error": {"message": f"Bad key {KEY}", "code": KEY}}).encode(), {"x-request-id": KEY}
    ),
    http(400, f"<html><title>Bearer {KEY}</title></html>".encode()),
    http(500, f"Authorization: Bearer {KEY}".encode()),
    http(200, f'data: {{"type": "error", "error": {{"message": "Bad key {KEY}"}}}}\n\n'.encode()),
    http(200, json.dumps({"status": "failed", "object": "response", "error": {"message": KEY}}).encode()),
    http(200, f"{KEY} is no JSON and no stream".encode()),
    http(307, b"", {"location": f"https://{KEY}.example/{KEY}"}),
    http(307, b"", {"location": f"{KEY}:nonsense"}),
    f"{KEY} is no HTTP\r\n\r\n".encode(),
    f"HTTP/1.1 {KEY}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{KEY}\r\n".encode(),
    b"",
]


@pytest.mark.parametrize("answer", QUOTING)
async def test_a_server_that_says_the_key_back_is_not_repeated(answer: bytes, shown: Shown) -> None:
    async with (
        answering(answer) as server,
        OpenResponsesClient(server.url, KEY, timeouts=TIMES, retries=ONCE) as client,
    ):
        await do_everything(client, shown, None)
    assert shown.errors == 3
    shown.look(KEY)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/v1",
        "https://127.0.0.1:{port}/v1",
        "http://example.com/v1",
        "{key}",
        "{key}://x",
    ],
)
async def test_an_address_that_cannot_be_reached_does_not_show_the_key(url: str, shown: Shown) -> None:
    address = url.format(port=unused_port(), key=KEY)
    async with OpenResponsesClient(address, KEY, timeouts=TIMES, retries=ONCE) as client:
        await do_everything(client, shown, None)
    assert shown.errors == 3
    shown.look(KEY)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:{key}@example.com/v1",
        "http://{key}@127.0.0.1:1/v1",
        "user:{key}@example.com/v1",
        "https:/user:{key}@example.com",
        "https:\\\\user:{key}@example.com",
    ],
)
def test_a_password_in_an_address_is_refused_at_once_and_not_shown(url: str) -> None:
    with pytest.raises(RequestError, match="must not contain a user name or a password") as caught:
        OpenResponsesClient(url.format(key=KEY))
    assert KEY not in str(caught.value)
    assert OpenResponsesClient("https://example.com/@team/v1").base_url.endswith("/@team/v1")


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", f"{KEY}\r\nx-other: 1", f"{KEY}é"])
async def test_a_key_that_cannot_be_sent_is_not_shown(key: str, shown: Shown) -> None:
    async with OpenResponsesClient("http://127.0.0.1:1/v1", key, retries=ONCE) as client:
        await do_everything(client, shown, None)
    assert shown.errors == 3
    shown.look(KEY)


def test_no_recording_holds_a_key() -> None:
    folder = Path(__file__).parent / "recordings"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes().lower()
        assert b"authorization:" not in data, path
        assert b"bearer sk-" not in data, path
