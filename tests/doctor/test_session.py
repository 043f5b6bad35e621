"""The examination sends the same requests as a turn."""

from __future__ import annotations

from typing import Any

from tests.turns import Runner

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.session import ProbeSession
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import ChatRequest, Message, OutputFormat, Role
from tollbridge.types.quirks import Quirks

QUIRKS = Quirks(system="instructions", without=frozenset({"metadata"}))


def full_request(session: ProbeSession) -> ChatRequest:
    """A request with everything; the lone surrogate is what JavaScript leaves when it cuts an emoji."""
    schema: dict[str, Any] = {"type": "object", "properties": {"\ud83d": {"type": "string"}}}
    return session.build_request(
        Message(Role.SYSTEM, "Be brief."),
        "Hello",
        tools=(WEATHER,),
        tool_choice="required",
        reasoning_effort="low",
        output_format=OutputFormat("answer", schema),
        metadata={"a": "b"},
    )


async def test_requests_and_token_counts_equal_those_of_a_turn_and_of_the_client() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        session = ProbeSession(client, "tollbridge/demo")
        session.measured = QUIRKS
        request = full_request(session)
        memory = CompatMemory(lambda _url, _model: QUIRKS)
        await Runner(client, compat=memory).run(request, list)
        assert (await session.ask(request)).error is None
        turn, probe = list(gateway.requests)[-2:]
        assert probe.body == turn.body
        assert probe.headers["content-length"] == turn.headers["content-length"]

        await client.input_tokens(session._normalize(request))
        assert (await session.count(request)).error is None
        counted, examined = list(gateway.requests)[-2:]
        assert examined.body == counted.body
        assert {"tools", "tool_choice", "reasoning", "text", "instructions"} <= set(examined.body)
