"""What is examined is what is sent."""

from __future__ import annotations

from typing import Any

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.session import ProbeSession
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import ChatRequest, Message, OutputFormat, Role
from tollbridge.types.quirks import Quirks

QUIRKS = Quirks(system="instructions", without=frozenset({"metadata"}))


def asked(bench: ProbeSession) -> ChatRequest:
    """With everything in it; the half of a character is what JavaScript leaves of an emoji it cuts."""
    schema: dict[str, Any] = {"type": "object", "properties": {"\ud83d": {"type": "string"}}}
    return bench.question(
        Message(Role.SYSTEM, "Be brief."),
        "Hello",
        tools=(WEATHER,),
        tool_choice="required",
        reasoning_effort="low",
        output_format=OutputFormat("answer", schema),
        metadata={"a": "b"},
    )


async def test_a_question_and_its_count_are_put_as_the_bridge_and_the_client_put_them() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        bench = ProbeSession(client, "tollbridge/demo")
        bench.quirks = QUIRKS
        request = asked(bench)
        lessons = CompatMemory(lambda _url, _model: QUIRKS)
        await Bridge(client, lessons=lessons).answer(request, list)
        assert (await bench.ask(request)).error is None
        turn, question = list(gateway.requests)[-2:]
        assert question.body == turn.body
        assert question.headers["content-length"] == turn.headers["content-length"]

        await client.input_tokens(bench._legal(request))
        assert (await bench.count(request)).error is None
        counted, examined = list(gateway.requests)[-2:]
        assert examined.body == counted.body
        assert {"tools", "tool_choice", "reasoning", "text", "instructions"} <= set(examined.body)
