"""A turn is estimated before, learned from after, and a refusal teaches too."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from aiohttp import web

from tests.storage.locking import locked
from tests.storage.stored import create_database, open_estimator
from tests.turns import Runner
from tollbridge.clients.protocols import ChatCompletionsClient, OpenResponsesClient
from tollbridge.estimator import NEAR, HybridTokenEstimator
from tollbridge.storage.worker import WorkerThread
from tollbridge.testing.server import Gateway
from tollbridge.token_accounting import TokenAccounting
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart

QUESTION = Message(Role.USER, "What is a toll runner, and who pays at it? " * 20)


def request(*messages: Message) -> ChatRequest:
    return ChatRequest(model="tollbridge/demo", messages=messages)


async def test_a_prompt_that_was_answered_is_known_exactly() -> None:
    toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"))
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        turn = await Runner(client, tokens=toll).run(request(QUESTION), lambda parts: None)
    assert turn.preflight is not None
    assert turn.preflight.estimate.method == "estimated"
    again = toll.estimator.estimate_request(request(QUESTION))
    assert turn.usage is not None
    assert (again.tokens, again.method) == (turn.usage.input_tokens, "actual")


async def test_the_next_turn_builds_on_what_the_last_one_came_to() -> None:
    toll, parts = TokenAccounting(HybridTokenEstimator(), WorkerThread("background")), list[Part]()
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        runner = Runner(client, tokens=toll)
        await runner.run(request(QUESTION), parts.extend)
        answer = Message(Role.ASSISTANT, parts)
        turn = await runner.run(request(QUESTION, answer, Message(Role.USER, "And then?")), lambda _: None)
    assert turn.preflight is not None
    assert turn.preflight.estimate.method == "hybrid"


async def test_a_refusal_with_its_numbers_is_the_truth_from_then_on() -> None:
    toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"))
    async with Gateway(scenario="context-too-long") as gateway, OpenResponsesClient(gateway.url) as client:
        with pytest.raises(ContextTooLong) as refusal:
            await Runner(client, tokens=toll).run(request(QUESTION), lambda parts: None)
    assert refusal.value.tokens == 131072
    assert toll.estimator.estimate_request(request(QUESTION)).tokens == 131072


async def test_a_prompt_near_its_window_is_warned_of_and_sent_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toll, parts = TokenAccounting(HybridTokenEstimator(), WorkerThread("background")), list[Part]()
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        with caplog.at_level(logging.WARNING):
            await Runner(client, tokens=toll).run(request(QUESTION), parts.extend, window=100)
    assert "more than the limit of 100" in caplog.text
    assert any(isinstance(part, TextPart) for part in parts)


class CuttingServer:
    """A Chat Completions server that silently keeps only the last tokens of a prompt, 4 bytes each."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    async def answer(self, http_request: web.Request) -> web.Response:
        messages = (await http_request.json())["messages"]
        tokens = min(self.limit, sum(len(json.dumps(message["content"])) for message in messages) // 4)
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2},
        }
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return web.Response(text=body, content_type="text/event-stream")


async def test_a_prompt_that_the_server_cuts_is_noticed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, toll, messages = (
        web.Application(),
        TokenAccounting(HybridTokenEstimator(), WorkerThread("background")),
        [QUESTION],
    )
    app.router.add_post("/v1/chat/completions", CuttingServer(1_000).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with ChatCompletionsClient(f"http://127.0.0.1:{runner.addresses[0][1]}/v1") as client:
            turns = Runner(client, tokens=toll)
            for turn in range(12):
                await turns.run(request(*messages), lambda parts: None)
                question = f"Question {turn}: " + "What does a truck with three axles pay on a Sunday? " * 20
                messages += [Message(Role.ASSISTANT, "Yes."), Message(Role.USER, question)]
    finally:
        await runner.cleanup()
    (accuracy,) = toll.estimator.accuracy()
    assert accuracy.refused["cut by the server"] >= 1
    assert caplog.text.count("tollbridge/demo read only 1000 of about") == 1
    # The cut prompts were not learned: the next one is estimated as large as it is.
    assert toll.estimator.estimate_request(request(*messages)).tokens > 2_000


async def test_the_gateway_is_asked_for_a_new_conversation_in_the_background() -> None:
    estimator = HybridTokenEstimator()
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        toll = TokenAccounting(estimator, WorkerThread("background"), client)
        await toll.measure(request(QUESTION), None)
        await gateway.wait_for_request()
        await asyncio.gather(*toll._count_requests)
        truth = await client.input_tokens(request(QUESTION))
        await toll.aclose()
    assert estimator.estimate_request(request(QUESTION)).tokens == truth


@pytest.mark.parametrize(("scenario", "count"), [("not-found", 1), ("rate-limit", 3), ("server-error", 3)])
async def test_only_a_gateway_that_cannot_count_is_not_asked_again(scenario: str, count: int) -> None:
    """One that is busy, or fails once, can."""
    once = RetryPolicy(attempts=1)
    async with (
        Gateway(scenario=scenario) as gateway,
        OpenResponsesClient(gateway.url, retries=once) as client,
    ):
        toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"), client)
        for _ in range(3):
            await toll.measure(request(QUESTION), None)
            await asyncio.gather(*toll._count_requests)
        await toll.aclose()
        assert len(gateway.requests) == count


async def test_accuracy_compares_the_estimate_from_before_the_request_and_not_a_later_count() -> None:
    toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"))
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        chat_request = request(QUESTION)
        before = await toll.measure(chat_request, None)
        truth = await client.input_tokens(chat_request)
        assert toll.estimator.counted(chat_request, truth)
        answer = await client.create(chat_request)
        await toll.learn(chat_request, answer.usage, [TextPart(answer.text)], before)
    assert before is not None
    assert before.estimate.tokens != truth
    [measured] = toll.estimator.accuracy()
    assert (measured.requests, measured.exact) == (1, 0)


async def test_behind_a_turn_a_lesson_delays_nobody_and_is_not_lost(tmp_path: Path) -> None:
    """Another process holds the file until the turn has ended, and a while longer."""
    with open_estimator(tmp_path / "store.db") as estimator:
        create_database(tmp_path / "store.db")
        toll = TokenAccounting(estimator, WorkerThread("background"), short_lived=True)
        async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
            with locked(tmp_path / "store.db"):
                turn = await Runner(client, tokens=toll).run(request(QUESTION), lambda parts: None)
                assert estimator.estimate_request(request(QUESTION)).method == "estimated"
        await toll.aclose(within=30)
        again = estimator.estimate_request(request(QUESTION))
    assert turn.usage is not None
    assert (again.tokens, again.method) == (turn.usage.input_tokens, "actual")


@pytest.mark.parametrize(("known", "turns", "learned"), [(0, 1, 1), (9, 1, 10), (10, 1, 10), (10, 2, 12)])
async def test_the_only_turn_of_a_program_is_not_learned_from_if_the_model_is_well_known(
    known: int, turns: int, learned: int
) -> None:
    """The user would wait until a vocabulary is loaded."""
    estimator = HybridTokenEstimator()
    chat_requests = [request(Message(Role.USER, f"Question {number}")) for number in range(known + turns)]
    for each in chat_requests[:known]:
        assert estimator.calibrate_request(each, Usage(estimator.estimate_request(each).tokens, 1))
    accounting = TokenAccounting(estimator, WorkerThread("background"), short_lived=True)
    for each in chat_requests[known:]:
        await accounting.learn(each, Usage(estimator.estimate_request(each).tokens, 1), ())
    await accounting.aclose(within=30)
    assert estimator.seen(chat_requests[0].model) == learned


@pytest.mark.parametrize(
    ("text", "window", "verdict"),
    [("Hi", None, None), ("Hi", 1000, None), ("Hi " * 400, 100, "over"), ("橋" * 300, 1000, "fits")],
)
async def test_before_a_turn_only_long_prompts_are_estimated(
    text: str, window: int | None, verdict: str | None
) -> None:
    toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"), short_lived=True)
    preflight = await toll.measure(request(Message(Role.USER, text)), window)
    assert (preflight.verdict if preflight else None) == verdict
    await toll.aclose()


async def test_what_the_gateway_counted_outranks_what_was_estimated() -> None:
    chat_request = request(Message(Role.USER, "word " * 1000))
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        truth = await client.input_tokens(chat_request)
        wide, narrow = int(truth / NEAR) + 1, int(truth / NEAR)
        turns = [
            await Runner(
                client, tokens=TokenAccounting(HybridTokenEstimator(), WorkerThread("background"))
            ).run(chat_request, list, window=window)
            for window in (wide, narrow)
        ]
    assert all(turn.preflight and turn.preflight.warning for turn in turns)
    sentence = f"The prompt used {truth:,} of {narrow:,} tokens (90 %)."
    assert [turn.warning for turn in turns] == [None, sentence]


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 5, 5)])
async def test_where_the_gateway_counted_nothing_the_estimate_warns(usage: Usage | None) -> None:
    toll = TokenAccounting(HybridTokenEstimator(), WorkerThread("background"))
    preflight = await toll.measure(request(QUESTION), 100)
    assert preflight is not None
    assert preflight.warning is not None
    assert toll.warning(usage, 100, preflight) == preflight.warning
    assert toll.warning(usage, 100, None) is None
    await toll.aclose()
