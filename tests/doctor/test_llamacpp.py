"""The doctor with a real llama.cpp server: it passes, is recognized, and its profile works in a turn."""

from __future__ import annotations

import pytest
from tests.turns import Runner

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.known_servers import known_quirks
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.profiles import apply_findings
from tollbridge.doctor import content_checks as samples
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.examination import Examination
from tollbridge.local.process import LocalModel
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def conversation(model: str) -> ChatRequest:
    """A request with tools and an image, which this server does not accept."""
    call = ToolCallPart("call_1", WEATHER.name, {"city": "Paris"})
    return ChatRequest(
        model=model,
        messages=(
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, (TextPart("What is the weather in Paris?"), samples.make_image())),
            Message(Role.ASSISTANT, (call,)),
            Message(Role.USER, (ToolResultPart("call_1", (TextPart("Sunny"), samples.make_image())),)),
        ),
        tools=(WEATHER,),
        max_output_tokens=24,
    )


async def test_the_local_model_passes_and_its_profile_works_in_a_turn() -> None:
    async with LocalModel(context=4096) as local:
        async with OpenResponsesClient(local.url) as client:
            examination = Examination(client)
            async for _ in examination.run():
                pass
            findings = {step.name: step.finding for step in examination.steps if step.finding}
            assert examination.can_chat
            # About 24. A step asks again if this small model does not do what it is asked to do.
            assert examination.requests <= 40
            assert examination.server is not None
            assert examination.server.name == "llama.cpp"
            verdicts = {name: finding.verdict for name, finding in findings.items()}
            assert {name for name, verdict in verdicts.items() if verdict != "well"} == {"images", "files"}
        parts: list[Part] = []
        memory = CompatMemory(lambda _url, _model: examination.quirks)
        async with OpenResponsesClient(local.url) as client:
            turn = await Runner(client, compat=memory).run(conversation(local.model_id), parts.extend)
    assert parts
    # The shipped profile equals the measured one, except for images and the system role of this model.
    model_quirks = {"images": False, "system": examination.quirks.system}
    assert examination.quirks == apply_findings(known_quirks("llama.cpp"), model_quirks)
    assert not any("once more" in change for change in turn.changes)
