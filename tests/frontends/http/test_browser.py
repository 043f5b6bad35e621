"""Web pages in a real browser cannot use the local server: nothing that they send reaches the gateway."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Page
from tests.frontends.http.servers import local_server
from tests.vscode.browser import CHROMIUM, open_page

from tollbridge.testing.server import Gateway

MISSING = "Chromium is not installed (Debian: apt-get install chromium): the browser tests were NOT run"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true", reason=MISSING),
]

# The name that an attacker's DNS server resolves to this computer.
REBOUND_NAME = "evil.example"
BODY = {"model": "tollbridge/demo", "input": "Spend money"}

# Send a request as a page would, and return its status, or the error if the browser hides the response.
FETCH = """async ([url, options]) => {
    try {
        const response = await fetch(url, options);
        return [response.type, response.status, await response.text()];
    } catch (error) {
        return [error.name, 0, error.message];
    }
}"""
# Open a WebSocket, and return whether it was opened.
CONNECT = """(url) => new Promise((resolve) => {
    const socket = new WebSocket(url);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
})"""
# Submit a form whose only field is JSON when it is sent as text/plain, and wait for the page that answers.
SUBMIT = """([url, body]) => {
    const form = document.createElement("form");
    form.method = "POST";
    form.action = url;
    form.enctype = "text/plain";
    const field = document.createElement("input");
    field.name = body.slice(0, -1) + ', "ignored": "';
    field.value = '"}';
    form.append(field);
    document.body.append(form);
    form.submit();
}"""


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    assert CHROMIUM is not None, MISSING
    rules = [f"--host-resolver-rules=MAP {REBOUND_NAME} 127.0.0.1"]
    async with open_page(tmp_path / "browser", rules) as page:
        yield page


@asynccontextmanager
async def other_origin() -> AsyncIterator[str]:
    """Serve an empty page on another port, and yield its address."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>Another page</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", show)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def fetch(page: Page, url: str, **options: Any) -> tuple[str, int, str]:
    kind, status, text = await page.evaluate(FETCH, [url, options])
    return kind, status, text


def post(content_type: str = "application/json", **options: Any) -> dict[str, Any]:
    return {
        "method": "POST",
        "headers": {"content-type": content_type},
        "body": json.dumps(BODY),
        **options,
    }


async def test_a_page_of_another_origin_cannot_use_the_server(page: Page) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server, other_origin() as address:
        url = f"{server.url}/v1/responses"
        await page.goto(address)
        # The browser asks for permission first, and gets none.
        assert (await fetch(page, url, **post()))[:2] == ("TypeError", 0)
        # A request that needs no permission is sent, but refused; the page cannot read why.
        assert (await fetch(page, url, **post("text/plain")))[:2] == ("TypeError", 0)
        assert (await fetch(page, url, **post("text/plain", mode="no-cors")))[:2] == ("opaque", 0)
        assert (await fetch(page, f"{server.url}/v1/models"))[:2] == ("TypeError", 0)
        socket_url = url.replace("http", "ws")
        assert await page.evaluate(CONNECT, socket_url) == "refused"
        async with page.expect_navigation(url=url) as navigation:
            await page.evaluate(SUBMIT, [url, json.dumps(BODY)])
        response = await navigation.value
        assert response is not None
        assert response.status == 403
        assert not gateway.requests


async def test_a_host_name_that_resolves_to_this_computer_is_refused(page: Page) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        port = server.url.rpartition(":")[2]
        address = f"http://{REBOUND_NAME}:{port}"
        response = await page.goto(f"{address}/")
        assert response is not None
        assert response.status == 403
        # The page is now of the server's own origin, so that the browser does not protect the server.
        kind, status, text = await fetch(page, f"{address}/v1/responses", **post())
        assert (kind, status) == ("basic", 403)
        assert REBOUND_NAME in text
        assert not gateway.requests


async def test_a_page_without_the_token_is_refused(page: Page) -> None:
    token = "token-of-the-server"
    async with Gateway() as gateway, local_server(gateway.url, token=token) as server:
        await page.goto(f"{server.url}/")
        url = f"{server.url}/v1/responses"
        assert (await fetch(page, url, **post()))[:2] == ("basic", 401)
        assert not gateway.requests
        # The same request with the token is answered: nothing but the token was missing.
        request = post()
        request["headers"]["authorization"] = f"Bearer {token}"
        assert (await fetch(page, url, **request))[:2] == ("basic", 200)
        assert len(gateway.requests) == 1


async def test_the_page_of_the_server_opens(page: Page) -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        response = await page.goto(f"{server.url}/")
        assert response is not None
        assert response.status == 200
        assert (await fetch(page, f"{server.url}/v1/models"))[:2] == ("basic", 200)
        socket_url = f"{server.url}/v1/responses".replace("http", "ws")
        assert await page.evaluate(CONNECT, socket_url) == "open"
