"""One request on its way over the bridge."""

from __future__ import annotations

from typing import Any

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.history.tool_calls import INVALID
from tollbridge.prepared_request import REPAIR_LIMIT, PreparedRequest
from tollbridge.testing.requests import AcceptedRequest as Asked
from tollbridge.testing.responses import Call, Say, ScriptedAnswer
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import InvalidRequest
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.models import Capabilities

MODEL = "tollbridge/demo"
HI = Message(Role.USER, "Hi")
PICTURE = DataPart(b"\x89PNG\r\n\x1a\n", "image/png")
BLIND = Capabilities(tools=True, images=False, files=True, reasoning=False)


def ask(*messages: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(model=MODEL, messages=messages, **fields)


def broken_answer(_asked: Asked) -> ScriptedAnswer:
    return ScriptedAnswer(
        blocks=(Say("I look."), Call("weather", '{"city": "Os'), Call("weather", '{"city": "Rome",}'))
    )


async def answer_parts(gateway: Gateway, request: ChatRequest) -> list[Part]:
    parts: list[Part] = []
    async with OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client:
        await Bridge(client).answer(request, parts.extend)
    return parts


def test_content_that_the_model_does_not_accept_is_replaced() -> None:
    crossing = PreparedRequest(ask(Message(Role.USER, (PICTURE,))), "http://here", CompatMemory(), BLIND)
    [part] = crossing.request.messages[0].parts
    assert isinstance(part, TextPart)
    assert crossing.counts == {"image": 1}
    assert len(crossing.changes) == 1


def test_a_request_is_not_sent_again_after_the_first_output() -> None:
    refusal = InvalidRequest("Unsupported parameter: 'temperature'", status=400, param="temperature")
    crossing = PreparedRequest(ask(HI, temperature=1), "http://here", CompatMemory())
    crossing.started = True
    assert not crossing.repair(refusal)
    crossing.started = False
    assert crossing.repair(refusal)
    assert not crossing.repair(refusal), "the same repair once is enough"


def test_a_request_is_repaired_a_limited_number_of_times() -> None:
    crossing = PreparedRequest(
        ask(HI, temperature=1, top_p=1, metadata={"a": "b"}, reasoning_effort="low"),
        "http://here",
        CompatMemory(),
    )
    fields = ("temperature", "top_p", "metadata", "reasoning")
    refusals = [InvalidRequest(f"Unknown parameter: '{field}'", status=400) for field in fields]
    assert [crossing.repair(refusal) for refusal in refusals] == [True] * REPAIR_LIMIT + [False]


def test_the_changes_are_listed_in_later_turns_too() -> None:
    lessons = CompatMemory()
    refusal = InvalidRequest("Unsupported parameter: 'temperature'", status=400, param="temperature")
    crossing = PreparedRequest(ask(HI, temperature=1), "http://here", lessons)
    assert crossing.repair(refusal)
    crossing.accept()
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
