"""Who may use the local server."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from tests.frontends.http.servers import local_server

from tollbridge.config.schema import Settings
from tollbridge.engine import Engine
from tollbridge.frontends.http.access import ServerOptions, check_access
from tollbridge.frontends.http.server import run_server
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BridgeError, NotAuthenticated, NotPermitted, RequestError

BODY = {"model": "tollbridge/demo", "input": "Hi"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"origin": "https://evil.example"},
        {"HOST": "evil.example"},
    ],
    ids=lambda headers: " ".join(next(iter(headers.items()))),
)
async def test_web_pages_are_refused(headers: dict[str, str]) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", json=BODY, headers=headers) as response:
            assert response.status == 403
            assert "not" in (await response.json())["error"]["message"]
        assert not gateway.requests


async def test_a_page_of_the_server_itself_is_allowed() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        headers = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
        async with server.http.get(f"{server.url}/v1/models", headers=headers) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "secret-token"}, 401),
        ({"Authorization": "Bearer secret-token"}, 200),
        ({"x-api-key": "secret-token"}, 200),
    ],
)
async def test_the_token_is_required_if_there_is_one(headers: dict[str, str], status: int) -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url, token="secret-token") as server,
        server.http.get(f"{server.url}/v1/models", headers=headers) as response,
    ):
        assert response.status == status
        assert "secret-token" not in await response.text()


async def test_an_address_for_other_computers_needs_a_token() -> None:
    async with Engine.open(Settings(), persistent=False) as engine:
        with pytest.raises(RequestError, match="needs a token"):
            async with run_server(engine, ServerOptions(host="0.0.0.0")):
                pass


async def test_a_port_in_use_is_named() -> None:
    async with Gateway() as gateway, Engine.open(Settings(), persistent=False) as engine:
        with pytest.raises(RequestError, match=f"Port {gateway.port} is already in use"):
            async with run_server(engine, ServerOptions(port=gateway.port)):
                pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is empty"),
        (b"[]", "must be a JSON object"),
        (b"{}", "model must be a string"),
        (b'{"model": 3}', "model must be a string"),
        (b'{"model": "x"', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
async def test_an_invalid_body_gets_an_error_in_the_format_of_the_protocol(body: bytes, message: str) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=body) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert message in error["message"]
        assert not gateway.requests


async def test_an_unknown_path_gets_an_error() -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url) as server,
        server.http.get(f"{server.url}/v1/nothing") as response,
    ):
        assert response.status == 404
        assert (await response.json())["error"]["message"] == "GET /v1/nothing: Not Found."


async def test_the_health_of_the_server_needs_no_token() -> None:
    async with Gateway() as gateway, local_server(gateway.url, token="secret-token") as server:
        for path in ("/health", "/"):
            async with server.http.get(f"{server.url}{path}") as response:
                assert response.status == 200
        async with server.http.get(f"{server.url}/health", headers={"Host": "evil.example"}) as response:
            assert response.status == 403


NAME = "mybox.lan:8787"


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Host": NAME, "Authorization": "Bearer t"}, None),
        ({"Host": NAME}, NotAuthenticated),
        ({"Host": NAME, "Origin": f"http://{NAME}", "Authorization": "Bearer t"}, None),
        ({"Host": NAME, "Origin": "http://evil.example", "Authorization": "Bearer t"}, NotPermitted),
    ],
)
def test_other_computers_need_the_token_and_may_use_any_name(
    headers: dict[str, str], problem: type[BridgeError] | None
) -> None:
    request = make_mocked_request("GET", "/v1/models", headers=headers)
    denied = check_access(request, ServerOptions(host="192.0.2.1", token="t"))
    assert (None if denied is None else type(denied)) == problem
