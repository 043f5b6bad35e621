"""The token estimator learns from forwarded requests, after their answers, once it has been used."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

from tests.canned_server import answering, http
from tests.frontends.http.servers import LocalServer, local_server

from tollbridge.estimator import HybridTokenEstimator
from tollbridge.protocols.openresponses.caller import CODEC
from tollbridge.storage.worker import WorkerThread
from tollbridge.testing.server import Gateway
from tollbridge.token_accounting import WAITING_LIMIT, TokenAccounting

MODEL = "tollbridge/demo"
BODY = {"model": MODEL, "input": "What is a bridge?", "instructions": "Be brief.", "stream": True}


async def post(server: LocalServer, body: object, path: str = "responses") -> str:
    async with server.http.post(f"{server.url}/v1/{path}", json=body) as response:
        return await response.text()


async def ask_for_a_count(server: LocalServer) -> None:
    """Use the estimator: before that, nothing is learned, because learning loads a vocabulary."""
    await post(server, {"model": MODEL, "input": "Another prompt"}, "responses/input_tokens")


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def test_the_prompt_of_a_forwarded_request_is_known_exactly() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        await post(server, BODY)
        await ask_for_a_count(server)
        request_count, seen = len(gateway.requests), server.engine.estimator.seen(MODEL)
        await post(server, {**BODY, "input": "What is a toll?"})
        await until(lambda: server.engine.estimator.seen(MODEL) == seen + 1)
        *_, record = server.engine.usage.records
        body = {**BODY, "input": "What is a toll?"}
        counted = json.loads(await post(server, body, "responses/input_tokens"))
        assert counted["input_tokens"] == record.usage.input_tokens
        assert len(gateway.requests) == request_count + 1  # the gateway was not asked to count


async def test_the_next_prompt_of_a_conversation_is_estimated_from_the_last_one() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        await ask_for_a_count(server)
        seen = server.engine.estimator.seen(MODEL)
        stream = await post(server, BODY)
        await until(lambda: server.engine.estimator.seen(MODEL) == seen + 1)
        completed = json.loads(stream.split("data: ")[-2].split("\n")[0])
        answer = completed["response"]["output"]
        question = {"type": "message", "role": "user", "content": BODY["input"]}
        again = {"type": "message", "role": "user", "content": "And a tunnel?"}
        body = {**BODY, "input": [question, *answer, again]}
        estimate = server.engine.estimator.estimate_request(CODEC.decode(body).request)
        assert estimate.method == "hybrid"


async def test_a_prompt_that_is_too_long_is_known_exactly() -> None:
    message = "prompt is too long: 250000 tokens > 200000 maximum"
    refusal = {"error": {"message": message, "code": "context_length_exceeded"}}
    canned = http(400, json.dumps(refusal).encode(), {"content-type": "application/json"})
    async with answering(canned) as gateway, local_server(gateway.url) as server:
        await ask_for_a_count(server)
        assert json.loads(await post(server, BODY)) == refusal
        request = CODEC.decode(BODY).request
        await until(lambda: server.engine.estimator.estimate_request(request).tokens == 250_000)


async def test_a_body_that_cannot_be_decoded_passes_and_teaches_nothing() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        stream = await post(server, BODY)
    canned = http(200, stream.encode(), {"content-type": "text/event-stream"})
    async with answering(canned) as upstream, local_server(upstream.url) as server:
        await ask_for_a_count(server)
        assert await post(server, {**BODY, "model": "other", "input": {"of": "the future"}}) == stream
        assert server.engine.usage.records[0].usage.input_tokens
        await post(server, BODY)
        await until(lambda: server.engine.estimator.seen(MODEL) == 1)  # requests are learned from in order
        assert server.engine.estimator.seen("other") == 0


async def test_requests_that_end_faster_than_they_are_learned_from_are_skipped() -> None:
    tokens, busy, learned = (
        TokenAccounting(HybridTokenEstimator(), WorkerThread("background")),
        threading.Event(),
        0,
    )

    def learn(_: HybridTokenEstimator) -> None:
        nonlocal learned
        busy.wait(10)
        learned += 1

    tokens.learn_later(learn)  # before anybody has asked for an estimate
    await tokens.count(CODEC.decode(BODY).request)
    for _ in range(3 * WAITING_LIMIT):
        tokens.learn_later(learn)
    busy.set()
    await tokens.aclose()
    assert learned == WAITING_LIMIT
