from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from tests.cli.cli_process import tollbridge

from tollbridge.cli.connection import GatewayChoice, choose_gateway
from tollbridge.cli.options import ConnectionOptions
from tollbridge.types.urls import VERCEL_URL

URL = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("where", "has_key", "can_serve", "kind", "base_url"),
    [
        (ConnectionOptions(URL), False, True, "remote", URL),
        (ConnectionOptions(URL), True, True, "remote", URL),
        (ConnectionOptions(URL, local=True), True, True, "local", ""),
        (ConnectionOptions(), True, True, "remote", VERCEL_URL),
        (ConnectionOptions(), False, True, "local", ""),
        (ConnectionOptions(), False, False, "embedded", ""),
    ],
)
def test_the_gateway_is_chosen_by_options_and_key(
    where: ConnectionOptions, has_key: bool, can_serve: bool, kind: str, base_url: str
) -> None:
    choice = choose_gateway(where, has_key, can_serve)
    assert (choice.kind, choice.base_url) == (kind, base_url)


def test_a_default_gateway_is_announced() -> None:
    assert choose_gateway(ConnectionOptions(URL), False, True) == GatewayChoice("remote", URL)
    assert "local demo model" in choose_gateway(ConnectionOptions(), False, True).reason
    assert "embedded demo" in choose_gateway(ConnectionOptions(), False, False).reason


RECORDED = Path(__file__).parents[1] / "recordings" / "openresponses" / "litellm.text-stream.sse"


async def test_a_server_is_recognised_by_its_model_list(tmp_path: Path) -> None:
    roles: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        roles.append((await request.json())["input"][0]["role"])
        return web.Response(body=RECORDED.read_bytes(), content_type="text/event-stream")

    async def list_models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "vllm"}]})

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    app.router.add_get("/v1/models", list_models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        where = ("--base-url", f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        env = {"TOLLBRIDGE_CATALOG_DIR": str(tmp_path)}
        ask = ("ask", "--model", "m", "--system", "Be brief.", "hello", *where)
        assert (await tollbridge(*ask, env=env)).code == 0
        assert (await tollbridge("models", *where, env=env)).code == 0
        assert (await tollbridge(*ask, env=env)).code == 0
    finally:
        await runner.cleanup()
    assert roles == ["developer", "system"]
