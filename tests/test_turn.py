"""One turn: the request that it sends, and what it does with the answer."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.canned_server import answering, http
from tests.turns import Runner
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter
from tollbridge.history.arguments import INVALID
from tollbridge.policy.limits import DEFAULT_MAX_TOKENS, OutputLimit
from tollbridge.prepare import REPAIR_LIMIT, PreparedRequest
from tollbridge.protocols import find_protocol
from tollbridge.storage.tracker import UsageTracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Call, Say, ScriptedAnswer
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import (
    BridgeError,
    ContentFiltered,
    InvalidRequest,
    NotAuthenticated,
    ServerFailed,
)
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.models import Capabilities, Model

MODEL = "tollbridge/demo"
HI = Message(Role.USER, "Hi")
PICTURE = DataPart(b"\x89PNG\r\n\x1a\n", "image/png")
BLIND = Capabilities(tools=True, images=False, files=True, reasoning=False)


def ask(*messages: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=messages, **fields)


def broken_answer(_request: AcceptedRequest) -> ScriptedAnswer:
    return ScriptedAnswer(
        blocks=(Say("I look."), Call("weather", '{"city": "Os'), Call("weather", '{"city": "Rome",}'))
    )


async def answer_parts(gateway: Gateway, request: ChatRequest) -> list[Part]:
    parts: list[Part] = []
    async with OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client:
        await Runner(client).run(request, parts.extend)
    return parts


def test_content_that_the_model_does_not_accept_is_replaced() -> None:
    prepared = PreparedRequest(ask(Message(Role.USER, (PICTURE,))), "http://here", CompatMemory(), BLIND)
    [part] = prepared.request.messages[0].parts
    assert isinstance(part, TextPart)
    assert prepared.counts == {"image": 1}
    assert len(prepared.changes) == 1


@pytest.mark.parametrize(
    ("limit", "required", "chosen"),
    [(5_000, True, 5_000), (None, True, DEFAULT_MAX_TOKENS), (0, True, DEFAULT_MAX_TOKENS), (0, False, None)],
)
def test_an_output_limit_of_zero_in_the_model_list_is_not_sent(
    limit: int | None, required: bool, chosen: int | None
) -> None:
    output_limit = OutputLimit.for_model(
        Model(id="anthropic/claude-sonnet-4.5", max_output_tokens=limit),
        find_protocol("anthropic-messages" if required else "openresponses").default_output_limit,
    )
    assert (output_limit and output_limit.tokens) == chosen


def test_a_request_is_not_sent_again_after_the_first_output() -> None:
    refusal = InvalidRequest("Unsupported parameter: 'temperature'", status=400, param="temperature")
    prepared = PreparedRequest(ask(HI, temperature=1), "http://here", CompatMemory())
    prepared.is_accepted = True
    assert not prepared.repair(refusal)
    prepared.is_accepted = False
    assert prepared.repair(refusal)
    assert not prepared.repair(refusal), "the same repair once is enough"


def test_a_request_is_repaired_a_limited_number_of_times() -> None:
    prepared = PreparedRequest(
        ask(HI, temperature=1, top_p=1, metadata={"a": "b"}, reasoning_effort="low"),
        "http://here",
        CompatMemory(),
    )
    fields = ("temperature", "top_p", "metadata", "reasoning")
    refusals = [InvalidRequest(f"Unknown parameter: '{field}'", status=400) for field in fields]
    assert [prepared.repair(refusal) for refusal in refusals] == [True] * REPAIR_LIMIT + [False]


def test_the_changes_are_listed_in_later_turns_too() -> None:
    lessons = CompatMemory()
    refusal = InvalidRequest("Unsupported parameter: 'temperature'", status=400, param="temperature")
    prepared = PreparedRequest(ask(HI, temperature=1), "http://here", lessons)
    assert prepared.repair(refusal)
    prepared.accept()
    later = PreparedRequest(ask(HI, temperature=1), "http://here", lessons)
    assert later.changes == ("Removed temperature: not supported by this server.",)
    assert PreparedRequest(ask(HI), "http://here", lessons).changes == ()


async def test_a_tool_call_has_the_name_that_the_editor_declared() -> None:
    tool = Tool("mcp.server/weather: größe", parameters={"type": "object", "properties": {}})
    async with Gateway(strict=True) as gateway:
        parts = await answer_parts(gateway, ask(Message(Role.USER, "Use the tool"), tools=(tool,)))
        [call] = [part for part in parts if isinstance(part, ToolCallPart)]
        assert call.name == tool.name
        history = (Message(Role.USER, "Use the tool"), Message(Role.ASSISTANT, (call,)))
        result = Message(Role.USER, (ToolResultPart(call.call_id, "sunny"),))
        again = await answer_parts(gateway, ask(*history, result, tools=(tool,)))
        assert [arrival.status for arrival in gateway.requests] == [200, 200]
    assert "sunny" in "".join(part.text for part in again if isinstance(part, TextPart))


async def test_broken_calls_reach_the_editor_and_the_turn_completes() -> None:
    async with Gateway(model=broken_answer) as gateway:
        parts = await answer_parts(gateway, ask(HI, tools=(Tool("weather"),)))
    calls = [part.input for part in parts if isinstance(part, ToolCallPart)]
    assert calls == [{INVALID: '{"city": "Os'}, {"city": "Rome"}]


async def test_the_adapters_pass_broken_calls_on_as_a_turn_does() -> None:
    parts: list[Part] = []
    async with Gateway(model=broken_answer) as gateway, OpenResponsesClient(gateway.url) as client:
        stream = client.stream(ask(HI, tools=(Tool("weather"),)))
        await OpenResponsesStreamAdapter().process_stream(stream, parts.append)
    calls = [part.input for part in parts if isinstance(part, ToolCallPart)]
    assert calls == [{INVALID: '{"city": "Os'}, {"city": "Rome"}]


WEATHER = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


def say(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


def client_of(gateway: Gateway) -> OpenResponsesClient:
    return OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1))


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


async def test_a_turn_reports_its_parts_and_its_usage() -> None:
    parts: list[Part] = []
    async with Gateway() as gateway, client_of(gateway) as client:
        runner = Runner(client)
        turn = await runner.run(ask(say("Think, then use the tool for Oslo"), tools=(WEATHER,)), parts.extend)
    assert any(isinstance(part, ThinkingPart) and part.text for part in parts)
    assert [part.name for part in parts if isinstance(part, ToolCallPart)] == ["weather"]
    assert (turn.finish_reason, turn.model, turn.changes) == ("tool-calls", MODEL, ())
    assert turn.usage is not None
    assert turn.usage == turn.context
    assert turn.first is not None
    assert 0 < turn.first <= turn.duration
    (record,) = runner.tracker.records
    assert (record.model, record.outcome, record.usage, record.error) == (
        MODEL,
        "completed",
        turn.usage,
        None,
    )
    assert runner.tracker.total(MODEL) == turn.usage


async def test_an_invalid_history_is_repaired_and_changes_are_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = Message(Role.ASSISTANT, (ToolCallPart("c1", "weather", {}),))
    with caplog.at_level(logging.INFO, "tollbridge"):
        async with Gateway() as gateway, client_of(gateway) as client:
            turn = await Runner(client).run(ask(say("Hi"), call, say("Well?")), list)
    assert turn.changes == ("Added a placeholder result for a call to weather.",)
    assert turn.changes[0] in caplog.text


async def test_output_before_a_failure_is_reported_and_recorded() -> None:
    parts: list[Part] = []
    async with Gateway(scenario="failed") as gateway, client_of(gateway) as client:
        runner = Runner(client)
        with pytest.raises(ServerFailed):
            await runner.run(ask(say("Say hello to everybody in the house")), parts.extend)
    assert text_of(parts)
    (record,) = runner.tracker.records
    assert (record.outcome, record.error) == ("failed", "server")
    assert record.first is not None


def incomplete(reason: str | None, *before: dict[str, Any]) -> bytes:
    response = {
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
    }
    frames = [*before, {"type": "response.incomplete", "response": response}]
    body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    return http(200, body.encode(), {"content-type": "text/event-stream"})


@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        ("content_filter", ContentFiltered, "content filter"),
        ("max_output_tokens", InvalidRequest, "max_output_tokens (64)"),
        (None, ServerFailed, "gave no reason"),
    ],
)
async def test_an_answer_that_stopped_before_any_output_is_an_error_with_its_usage(
    reason: str | None, kind: type[BridgeError], word: str
) -> None:
    thought = {"type": "response.reasoning_text.delta", "delta": "Hm", "item_id": "rs_1"}
    for before in ([], [thought]):
        async with (
            answering(incomplete(reason, *before)) as server,
            OpenResponsesClient(server.url, retries=RetryPolicy(attempts=1)) as client,
        ):
            runner = Runner(client)
            with pytest.raises(kind) as raised:
                await runner.run(ask(say("Hi"), max_output_tokens=64), list)
            assert len(server.heads) == 1
        assert word in raised.value.message
        (record,) = runner.tracker.records
        assert record.outcome == "failed"
        assert record.usage is not None
        assert record.usage.output_tokens == 7


@pytest.mark.parametrize(
    ("reason", "word"),
    [("content_filter", "content filter"), ("max_output_tokens", "output limit"), (None, "gave no reason")],
)
async def test_an_answer_that_stopped_after_some_output_is_kept_with_a_warning(
    reason: str | None, word: str
) -> None:
    parts: list[Part] = []
    hello = {"type": "response.output_text.delta", "delta": "Hello", "item_id": "msg_1"}
    async with answering(incomplete(reason, hello)) as server, OpenResponsesClient(server.url) as client:
        turn = await Runner(client).run(ask(say("Hi")), parts.extend)
    assert text_of(parts) == "Hello"
    assert turn.warning is not None
    assert word in turn.warning


@pytest.mark.parametrize(("output_tokens", "is_warned"), [(64, True), (63, False), (None, False)])
async def test_a_complete_answer_with_exactly_the_output_limit_may_be_truncated(
    output_tokens: int | None, is_warned: bool
) -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    usage = {"input_tokens": 3, "output_tokens": output_tokens} if output_tokens else None
    body = json.dumps({"status": "completed", "output": [message], "usage": usage}).encode()
    async with answering(http(200, body)) as server, OpenResponsesClient(server.url) as client:
        turn = await Runner(client).run(ask(say("Hi"), max_output_tokens=64), list)
        assert (turn.warning is not None) is is_warned
        assert "may be truncated" in (turn.warning or "may be truncated")
        unlimited = await Runner(client).run(ask(say("Hi")), list)
    assert unlimited.warning is None


async def test_the_message_of_a_turn_has_the_corrections_of_the_server() -> None:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.output_text.delta", **place, "delta": "Hello wrold"},
        {"type": "response.output_text.done", **place, "text": "Hello world"},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    async with (
        answering(http(200, body)) as server,
        OpenResponsesClient(server.url) as client,
        Runner(client).turn(ask(say("Hi"))) as turn,
    ):
        assert [event async for event in turn]
    assert turn.result.text == "Hello world"


async def test_a_complete_answer_has_no_warning() -> None:
    async with Gateway() as gateway, client_of(gateway) as client:
        assert (await Runner(client).run(ask(say("Hi")), list)).warning is None


async def test_a_failure_before_any_output_has_no_time_of_the_first_event() -> None:
    async with Gateway(scenario="unauthorized") as gateway, client_of(gateway) as client:
        runner = Runner(client)
        with pytest.raises(NotAuthenticated):
            await runner.run(ask(say("Hi")), list)
    (record,) = runner.tracker.records
    assert (record.outcome, record.error, record.first, record.usage) == (
        "failed",
        "authentication",
        None,
        Usage(),
    )
    assert not record.incomplete  # a refused request is not counted


async def test_a_cancelled_turn_disconnects_and_is_recorded_as_cancelled() -> None:
    begun = asyncio.Event()
    async with (
        Gateway(scenario="slow", settings=FaultSettings(pace=0.2)) as gateway,
        client_of(gateway) as client,
    ):
        runner = Runner(client)
        turn = asyncio.create_task(runner.run(ask(say("Say hello")), lambda parts: begun.set()))
        async with asyncio.timeout(5):
            await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await gateway.wait_for_disconnect(2)
    (record,) = runner.tracker.records
    assert (record.outcome, record.usage, record.incomplete) == ("cancelled", Usage(), True)


async def test_a_failure_of_the_editor_is_recorded_and_disconnects() -> None:
    def report(parts: list[Part]) -> None:
        raise KeyError("the editor's own")

    async with (
        Gateway(scenario="slow", settings=FaultSettings(pace=0.2)) as gateway,
        client_of(gateway) as client,
    ):
        runner = Runner(client)
        with pytest.raises(KeyError):
            await runner.run(ask(say("Say hello")), report)
        await gateway.wait_for_disconnect(2)
    assert [record.outcome for record in runner.tracker.records] == ["failed"]


async def test_concurrent_turns_share_only_the_tracker() -> None:
    tracker = UsageTracker()

    async def one(runner: Runner, number: int) -> str:
        parts: list[Part] = []
        await runner.run(ask(say(f"Say number {number}")), parts.extend, api_key=f"key-{number}")
        return text_of(parts)

    async with Gateway() as gateway, client_of(gateway) as client:
        runner = Runner(client, tracker)
        answers = await asyncio.gather(*(one(runner, number) for number in range(10)))
    assert [f"number {number}" in answer for number, answer in enumerate(answers)] == [True] * 10
    assert {arrival.body["input"][0]["content"][11:]: arrival.bearer for arrival in gateway.requests} == {
        str(number): f"key-{number}" for number in range(10)
    }
    assert tracker.requests() == 10


async def test_the_usage_of_a_failed_turn_is_recorded() -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "No."},
        "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
    }
    event = json.dumps({"type": "response.failed", "response": response}).encode()
    async with (
        answering(http(200, b"data: " + event + b"\n\n")) as server,
        OpenResponsesClient(server.url, retries=RetryPolicy(attempts=1)) as client,
    ):
        runner = Runner(client)
        with pytest.raises(BridgeError, match="No"):
            await runner.run(ask(say("Hi")), list)
    assert runner.tracker.total(MODEL).total_tokens == 10
