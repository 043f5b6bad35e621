"""The server: keys, routes, received requests, start and stop."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import subprocess
import sys
import time

import aiohttp
import pytest
from tests.testing.client import DEMO, Client, output_text
from tests.testing.conftest import QUICK
from tests.testing.protocol import check_stream

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.refusals import CannedReply
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, Say, ScriptedAnswer, Think
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import RequestError

KEY = "tb-key-0123456789"
PROMPT = "a-prompt-nobody-may-read"


async def test_the_list_of_models_has_the_fields_of_a_gateway(client: Client) -> None:
    listed = (await client.get("/models")).json
    assert listed["object"] == "list"
    demo, plain, embed = listed["data"]
    assert (demo["id"], demo["context_window"], demo["type"]) == (DEMO, 128_000, "language")
    assert {"tool-use", "vision", "reasoning"} <= set(demo["tags"])
    assert (plain["tags"], embed["type"]) == ([], "embedding")
    fields = {
        *("id", "object", "created", "released", "owned_by", "name", "description", "context_window"),
        *("max_tokens", "type", "tags", "pricing", "reasoning_options", "supported_parameters"),
    }
    for model in listed["data"]:
        assert set(model) == fields
        assert all(isinstance(price, str) and float(price) > 0 for price in model["pricing"].values())


async def test_a_single_model_can_be_requested(client: Client) -> None:
    assert (await client.get("/models/tollbridge/demo")).json["name"] == "Demo"
    missing = await client.get("/models/tollbridge/none")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


async def test_health_is_one_line(client: Client, gateway: Gateway) -> None:
    async with client.session.get(gateway.url.removesuffix("v1")) as reply:
        text = await reply.text()
    assert (reply.status, text.count("\n")) == (200, 1)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "route_not_found"),
        ("DELETE", "/responses", 405, "method_not_allowed"),
        ("GET", "/responses", 426, "upgrade_required"),
    ],
)
async def test_an_unknown_route_is_a_json_error(
    client: Client, method: str, path: str, status: int, code: str
) -> None:
    async with client.session.request(method, client.url + path) as reply:
        assert reply.status == status
        assert (await reply.json())["error"]["code"] == code


async def test_a_key_is_required_if_one_is_configured(session: aiohttp.ClientSession) -> None:
    async with Gateway(api_key=KEY) as gateway:
        client = Client(session, gateway.url)
        body = {"model": DEMO, "input": "Hi"}
        right = {"Authorization": f"Bearer {KEY}"}
        for headers, code in (
            ({}, "missing_api_key"),
            ({"Authorization": f"Basic {KEY}"}, "missing_api_key"),
            ({"Authorization": "Bearer wrong"}, "invalid_api_key"),
            ({"Authorization": "Bearer ключ"}, "invalid_api_key"),
        ):
            answer = await client.post("/responses", body, headers)
            assert (answer.status, answer.error["code"]) == (401, code)
            assert answer.error["type"] == "authentication_error"
            assert (await client.get("/models", headers)).status == 401
        assert (await client.post("/responses", body, right)).status == 200
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{gateway.url}/responses")
        assert caught.value.status == 401
        async with session.ws_connect(f"{gateway.url}/responses", headers=right):
            pass


async def test_received_requests_are_recorded_without_the_key(client: Client, gateway: Gateway) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "X-Extra": "1"}
    await client.post("/responses", {"model": DEMO, "input": "Hi"}, headers)
    [received] = gateway.requests
    assert (received.method, received.path, received.status) == ("POST", "/v1/responses", 200)
    assert received.body == {"model": DEMO, "input": "Hi"}
    assert (received.headers["x-extra"], received.headers["authorization"]) == ("1", "[redacted]")
    assert received.bearer == KEY
    assert KEY not in repr(received)


async def test_every_response_has_a_request_id(client: Client, gateway: Gateway) -> None:
    answers = [await client.stream("Hi"), await client.ask("Hi fault:forbidden"), await client.get("/models")]
    assert [answer.headers["x-request-id"] for answer in answers] == [one.id for one in gateway.requests]


async def test_the_log_contains_neither_key_nor_prompt(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Gateway(api_key=KEY) as gateway:
        client = Client(session, gateway.url)
        headers = {"Authorization": f"Bearer {KEY}"}
        for scenario in ("demo", "server-error", "disconnect", "error-event"):
            body = {"model": DEMO, "input": f"{PROMPT} fault:{scenario}"}
            try:
                await client.post("/responses", body, headers)
            except aiohttp.ClientError:
                assert scenario == "disconnect"
        await client.post("/responses", {"model": DEMO, "input": PROMPT, "temperature": PROMPT}, headers)
        await client.post("/responses", {"model": DEMO, "input": PROMPT}, {"Authorization": "Bearer no-key"})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("tollbridge")]
    assert len(lines) == 6
    assert "POST /v1/responses demo" in lines[0]
    assert not [text for text in (KEY, PROMPT, "no-key") if text in caplog.text]


@pytest.mark.timed
async def test_a_disconnect_of_the_client_is_noticed_immediately(client: Client, gateway: Gateway) -> None:
    body = {"model": DEMO, "input": "long 5000 slow", "stream": True}
    async with client.session.post(f"{gateway.url}/responses", json=body) as reply:
        await reply.content.readany()
        reply.close()
        left = time.monotonic()
    noticed = await gateway.wait_for_disconnect(timeout=2)
    assert noticed - left < 0.1
    assert gateway.requests[0].disconnected_at == noticed


@pytest.mark.timed
async def test_a_disconnect_during_a_stall_is_noticed(session: aiohttp.ClientSession) -> None:
    for name in ("stall", "stall-headers"):
        async with Gateway(scenario=name, settings=FaultSettings(stall_seconds=30)) as gateway:
            body = {"model": DEMO, "input": "Hi", "stream": True}
            request = asyncio.ensure_future(session.post(f"{gateway.url}/responses", json=body))
            await gateway.wait_for_request()
            if name == "stall":
                reply = await request
                await reply.content.readany()
                reply.close()
            else:
                await asyncio.sleep(0.05)
                request.cancel()
            left = time.monotonic()
            assert await gateway.wait_for_disconnect(timeout=2) - left < 0.1


async def test_a_connected_client_is_not_reported_as_disconnected(client: Client, gateway: Gateway) -> None:
    await client.stream("Hi")
    with pytest.raises(TimeoutError):
        await gateway.wait_for_disconnect(timeout=0.1)


async def test_the_gateway_stops_while_streams_are_open(session: aiohttp.ClientSession) -> None:
    async with Gateway(scenario="stall", settings=FaultSettings(stall_seconds=60)) as gateway:
        reply = await session.post(
            f"{gateway.url}/responses", json={"model": DEMO, "input": "Hi", "stream": True}
        )
        await reply.content.readany()
        began = time.monotonic()
    assert time.monotonic() - began < 2
    reply.close()


async def test_a_conversation_can_be_continued_over_http(client: Client) -> None:
    first = (await client.ask("Remember heron")).json
    second = (await client.ask("Which word?", previous_response_id=first["id"])).json
    assert "I was given 3 items" in str(second["output"])
    third = (await client.stream("And now?", previous_response_id=second["id"])).events[-1]["response"]
    assert "I was given 5 items" in str(third["output"])
    assert third["usage"]["input_tokens_details"]["cached_tokens"] > second["usage"]["input_tokens"]


async def test_a_response_that_is_not_stored_cannot_be_continued(client: Client) -> None:
    first = (await client.ask("Hello", store=False)).json
    answer = await client.ask("Again", previous_response_id=first["id"])
    assert (answer.status, answer.error["code"]) == (400, "previous_response_not_found")


async def test_instructions_are_not_inherited_from_the_previous_response(client: Client) -> None:
    first = (await client.ask("Hello", instructions="Be brief.")).json
    second = (await client.ask("Again", previous_response_id=first["id"])).json
    assert "no system prompt" in str(second["output"])
    assert second["instructions"] is None


async def test_a_stored_item_can_be_referenced(client: Client) -> None:
    item = (await client.ask("Hello")).json["output"][0]
    reference = {"type": "item_reference", "id": item["id"]}
    question = {"role": "user", "content": "Again"}
    assert (await client.ask([reference, question])).status == 200
    missing = await client.ask([{"id": "msg_never"}, question])
    assert (missing.status, missing.error["code"]) == (404, "item_not_found")


async def test_a_missing_item_after_a_previous_response_is_named_by_its_place_in_the_input(
    client: Client,
) -> None:
    first = (await client.ask("Hello")).json
    missing = await client.ask([{"id": "msg_never"}], previous_response_id=first["id"])
    assert (missing.status, missing.error["param"]) == (404, "input[0].id")


async def test_a_body_that_is_too_large_is_rejected(client: Client) -> None:
    body = io.BytesIO(b" " * (LIMITS.body_size + 1))
    async with client.session.post(f"{client.url}/responses", data=body) as reply:
        assert reply.status == 413
        assert (await reply.json())["error"]["code"] == "body_too_large"


async def test_an_unknown_scenario_is_an_error() -> None:
    with pytest.raises(RequestError, match="Unknown scenario 'nonsense'"):
        Gateway(scenario="nonsense")


async def test_the_error_names_the_port_that_is_in_use(gateway: Gateway) -> None:
    with pytest.raises(RequestError, match=f"Port {gateway.port} is already in use"):
        await Gateway(port=gateway.port).start()


@pytest.mark.io
def test_the_program_runs_until_it_is_terminated() -> None:
    code = "from tollbridge.testing import run; run(on_ready=lambda url: print(url, flush=True))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        line = program.stdout.readline().decode()
        assert line.startswith("http://127.0.0.1:")
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == 0


def test_the_default_durations_are_limited() -> None:
    assert QUICK.stall_seconds < FaultSettings().stall_seconds <= 60


async def test_a_disconnect_during_a_fast_stream_is_noticed(client: Client, gateway: Gateway) -> None:
    body = {"model": DEMO, "input": "long 60000", "stream": True}
    async with client.session.post(f"{gateway.url}/responses", json=body) as reply:
        await reply.content.readany()
        reply.close()
    await gateway.wait_for_disconnect(timeout=2)


async def test_a_custom_model_answers(session: aiohttp.ClientSession) -> None:
    def model(turn: AcceptedRequest) -> ScriptedAnswer | None:
        if turn.input_tokens > 50:
            return None
        return ScriptedAnswer(blocks=(Think("Hm."), Say("Mine."), Call("f", "{}")))

    async with Gateway(model=model) as gateway:
        client = Client(session, gateway.url)
        response = check_stream((await client.stream("Hello")).events)
        assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
        assert output_text(response) == "Mine."
        assert output_text((await client.ask("word " * 60)).json).startswith("You said")
        failed = (await client.stream("Hello fault:failed")).events[-1]
        assert failed["type"] == "response.failed"


async def test_recorded_bytes_are_sent_unchanged(session: aiohttp.ClientSession) -> None:
    recorded = b'data: {"type":"response.completed"}\r\n\r\n'
    reply = CannedReply(
        status=200, body=recorded, content_type="text/event-stream", headers={"x-from": "afar"}
    )
    async with Gateway(reply=reply) as gateway:
        client = Client(session, gateway.url)
        answer = await client.stream("Hello")
        assert (answer.data, answer.headers["x-from"]) == (recorded, "afar")
        assert (await client.get("/models")).status == 200


@pytest.mark.parametrize(
    "headers", [{"Host": "attacker.example"}, {"Origin": "https://attacker.example"}, {"Origin": "null"}]
)
async def test_a_request_of_a_web_page_is_rejected(
    headers: dict[str, str], gateway: Gateway, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{gateway.url}/models", headers=headers) as reply:
        assert reply.status == 403
        assert (await reply.json())["error"]["code"] == "foreign_request"
