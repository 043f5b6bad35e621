"""The doctor against a real llama.cpp: it passes, is recognised, and its profile carries a chat."""

from __future__ import annotations

import pytest

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory, apply_findings, known_quirks
from tollbridge.doctor import content_checks as samples
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.examination import Examination
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.local.process import LocalModel
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def conversation(model: str) -> ChatRequest:
    """A turn with tools and an image in it, which this server does not take."""
    call = ToolCallPart("call_1", WEATHER.name, {"city": "Paris"})
    return ChatRequest(
        model=model,
        messages=(
            Message(Role.SYSTEM, "Be brief."),
            Message(Role.USER, (TextPart("What is the weather in Paris?"), samples.image())),
            Message(Role.ASSISTANT, (call,)),
            Message(Role.USER, (ToolResultPart("call_1", (TextPart("Sunny"), samples.image())),)),
        ),
        tools=(WEATHER,),
        max_output_tokens=24,
    )


async def test_the_local_model_passes_and_its_profile_carries_a_chat() -> None:
    async with LocalModel(context=4096) as local:
        async with OpenResponsesClient(local.url) as client:
            examination = Examination(client)
            async for _ in examination.run():
                pass
            found = {step.name: step.finding for step in examination.steps if step.finding}
            assert examination.can_chat
            assert examination.requests <= 22
            assert examination.server is not None
            assert examination.server.name == "llama.cpp"
            verdicts = {name: finding.verdict for name, finding in found.items()}
            assert {name for name, verdict in verdicts.items() if verdict != "well"} == {"images", "files"}
        parts: list[Part] = []
        lessons = CompatMemory(lambda _url, _model: examination.quirks)
        async with OpenResponsesClient(local.url) as client:
            turn = await Bridge(client, lessons=lessons).answer(conversation(local.model_id), parts.extend)
    assert parts
    # What is shipped is what is measured, but for this model's eyes, and the role that it happened to heed.
    seen = {"images": False, "system": examination.quirks.system}
    assert examination.quirks == apply_findings(known_quirks("llama.cpp"), seen)
    assert not any("once more" in change for change in turn.changes)
