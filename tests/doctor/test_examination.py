"""The doctor against servers with quirks: it finds them, and with its profile a turn with tools works."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory, apply_findings
from tollbridge.doctor import content_checks as samples
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.examination import STEPS, Examination
from tollbridge.doctor.session import Finding, ProbeLimits
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart
from tollbridge.types.quirks import Quirks

KEY = "tb-doctor-key-0123456789"
MODEL = "tollbridge/demo"
QUICK = FaultSettings(stall_seconds=0.5, pace=0.002)

# What each server is: the quirks that are not as usual.
QUIRKS: dict[str, dict[str, Any]] = {
    "demo": {},
    "no-developer": {"system": "system"},
    "instructions-only": {"system": "instructions"},
    "users-only": {"system": "user"},
    "no-arrays": {"images": False, "files": False},
    "arrays-only": {"text_as": "array"},
    "no-calls": {"calls": False},
    "nested-tools": {"tools_as": "nested"},
    "text-results": {"rich_results": False},
    "text-only": {"images": False, "files": False},
    "no-reasoning-input": {"reasoning": False, "without": {"include"}},
    "no-parameters": {
        "without": {"store", "max_output_tokens", "parallel_tool_calls", "temperature", "metadata"}
    },
    "no-input-tokens": {"input_tokens": False},
    "reject-reasoning": {"reasoning": False, "without": {"include"}},
    "picky": {
        "system": "system",
        "calls": False,
        "files": False,
        "input_tokens": False,
        "without": {"include", "store"},
    },
}
# Where a turn with everything in it fails unless the profile is used.
REFUSING = sorted(set(QUIRKS) - {"demo", "no-input-tokens", "reject-reasoning"})


async def examined(
    gateway: Gateway, model: str | None = None, key: str | None = None, bounds: ProbeLimits | None = None
) -> Examination:
    async with OpenResponsesClient(gateway.url, key) as client:
        examination = Examination(client, model, bounds)
        async for _ in examination.run():
            pass
    return examination


def findings(examination: Examination) -> dict[str, Finding]:
    return {step.name: step.finding for step in examination.steps if step.finding is not None}


async def agent_turn(bridge: Bridge) -> None:
    """A turn with everything in it: a system prompt, an image, a file, a call, and its rich result."""
    attached = (TextPart("Call the tool get_weather."), samples.image(), samples.document())
    first = (Message(Role.SYSTEM, "You are a bridge."), Message(Role.USER, attached))
    parts: list[Part] = []
    request = ChatRequest(
        model=MODEL,
        messages=first,
        tools=(WEATHER,),
        tool_choice="required",
        parallel_tool_calls=True,
        reasoning_effort="low",
        max_output_tokens=500,
        temperature=0.5,
        metadata={"a": "b"},
    )
    await bridge.answer(request, parts.extend)
    (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
    thoughts = tuple(part for part in parts if not isinstance(part, ToolCallPart))
    result = ToolResultPart(call.call_id, (TextPart("Sunny, as ever"), samples.image()))
    told = (*first, Message(Role.ASSISTANT, (*thoughts, call)), Message(Role.USER, (result,)))
    await bridge.answer(msgspec.structs.replace(request, messages=told, tool_choice=None), lambda parts: None)


@pytest.mark.parametrize("scenario", QUIRKS)
async def test_the_profile_says_what_was_found(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await examined(gateway)
        assert len(gateway.requests) == examination.requests <= ProbeLimits().requests
    assert examination.can_chat
    assert examination.quirks == apply_findings(Quirks(), QUIRKS[scenario])
    assert [step.name for step in examination.steps] == list(STEPS)


@pytest.mark.parametrize("scenario", QUIRKS)
async def test_with_its_profile_a_turn_with_tools_works_where_it_failed_without(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await examined(gateway)
        once = RetryPolicy(attempts=1)
        async with OpenResponsesClient(gateway.url, retries=once) as client:
            if scenario in REFUSING:
                with pytest.raises(BridgeError):
                    await agent_turn(Bridge(client))
            asked = len(gateway.requests)
            lessons = CompatMemory(lambda _url, _model: examination.quirks)
            await agent_turn(Bridge(client, lessons=lessons))
        *_, last = gateway.requests
        assert [each.status for each in list(gateway.requests)[asked:]] == [200, 200]  # right at once
    for words in ("You are a bridge.", "Call the tool get_weather.", "Sunny, as ever"):
        assert words in str(last.body)


async def test_a_call_that_lacks_its_signature_says_nothing_of_the_server() -> None:
    async with Gateway(scenario="reject-unsigned-calls", settings=QUICK) as gateway:
        examination = await examined(gateway)
    assert examination.quirks == Quirks()
    found = findings(examination)
    for step in ("history", "results", "replay"):
        assert found[step].verdict == "unknown"
        assert "without the model's signature" in found[step].sentence


async def test_the_call_that_the_model_made_is_sent_back_with_all_that_came_with_it() -> None:
    async with Gateway(settings=QUICK) as gateway:
        await examined(gateway)
        sent = [item for each in gateway.requests for item in (each.body or {}).get("input", ())]
    calls = {item["call_id"] for item in sent if item["type"] == "function_call"}
    assert calls
    assert not any(call.startswith("call_doctor") for call in calls)


async def test_a_server_that_takes_everything_is_well_in_every_step() -> None:
    async with Gateway(api_key=KEY) as gateway:
        found = findings(await examined(gateway, key=KEY))
    assert {finding.verdict for finding in found.values()} == {"well"}
    assert found["stream"].sentence.endswith("framed as the protocol says.")
    assert "reasoning_summary_text.delta" in found["reasoning"].sentence
    assert found["parallel"].sentence == "2 tools are called at once."


@pytest.mark.parametrize(
    ("scenario", "step", "words"),
    [
        ("usage-null", "usage", "does not say what it cost"),
        ("usage-zero", "usage", "all its numbers are zero"),
        ("no-done", "stream", "no [DONE]"),
        ("no-event-lines", "stream", "no event: lines"),
        ("no-sequence", "stream", "no sequence numbers"),
        ("vendor-events", "stream", "unknown events (response.premonition.delta, tollbridge:weather)"),
        ("reasoning-raw", "reasoning", "response.reasoning.delta"),
        ("reasoning-text", "reasoning", "response.reasoning_text.delta"),
        ("no-models", "models", "Not Found"),
    ],
)
async def test_an_oddity_is_told_in_its_step(scenario: str, step: str, words: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await examined(gateway, MODEL)
    assert words in findings(examination)[step].sentence
    assert examination.can_chat


@pytest.mark.parametrize("scenario", ["server-error", "forbidden", "html-page", "rate-limit", "list-error"])
async def test_a_server_that_never_answers_is_told_and_asked_little(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await examined(gateway, MODEL)
    assert not examination.can_chat
    assert findings(examination)["text"].verdict == "amiss"
    assert findings(examination)["cancel"].sentence.startswith("Not looked at")
    assert examination.requests < 16


async def test_a_wrong_key_is_told_and_never_shown() -> None:
    wrong = "tb-wrong-key-9876543210"
    async with Gateway(api_key=KEY) as gateway:
        examination = await examined(gateway, MODEL, wrong)
    finding = findings(examination)["key"]
    assert finding.verdict == "amiss"
    assert "The API key is wrong" in finding.sentence
    assert "TOLLBRIDGE_API_KEY" in finding.remedy
    assert wrong not in str(examination.steps)


@pytest.mark.parametrize(("key", "sent"), [(None, "No key"), ("tb-wrong-key-9876543210", "The key")])
async def test_a_key_that_is_missing_or_wrong_is_told_without_a_model_too(key: str | None, sent: str) -> None:
    """Against a server that shows its list to nobody without a key."""
    async with Gateway(api_key=KEY) as gateway:
        found = findings(await examined(gateway, key=key))
    assert "TOLLBRIDGE_API_KEY" in found["models"].remedy
    assert found["key"].verdict == "amiss"
    assert found["key"].sentence.startswith(f"{sent} was sent, and the server says: ")
    assert "TOLLBRIDGE_API_KEY" in found["key"].remedy


async def test_an_address_without_its_end_is_told() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url.removesuffix("/v1")) as client:
        examination = Examination(client)
        async for _ in examination.run():
            pass
    assert "usually ends in /v1" in findings(examination)["models"].remedy


async def test_every_question_is_in_the_ledger_with_what_it_came_to() -> None:
    tracker, payer = UsageTracker(), BillingAccount("work", "http://h/v1")
    async with Gateway(scenario="no-calls") as gateway:
        async with OpenResponsesClient(gateway.url) as client:
            examination = Examination(client, MODEL, tracker=tracker, payer=payer)
            async for _ in examination.run():
                pass
        asked = [each for each in gateway.requests if each.path.endswith("/responses")]
    outcomes = Counter(record.outcome for record in tracker.records)
    assert sum(outcomes.values()) == len(asked)
    assert outcomes["cancelled"] == 1  # the answer that was hung up on
    assert outcomes["failed"] == sum(each.status == 400 for each in asked) > 0
    assert {(record.model, record.payer) for record in tracker.records} == {(MODEL, payer)}
    assert all(record.usage for record in tracker.records if record.outcome == "completed")


async def test_where_nobody_listens_the_examination_ends_at_once() -> None:
    async with Gateway() as gateway:
        url = gateway.url
    async with OpenResponsesClient(url) as client:
        examination = Examination(client, MODEL)
        async for _ in examination.run():
            pass
    assert findings(examination)["reach"].verdict == "amiss"
    assert examination.requests <= 2
    assert not examination.can_chat


async def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    async with Gateway(scenario="server-error-once") as gateway:
        examination = await examined(gateway)
    assert examination.quirks == Quirks()


async def test_a_model_without_eyes_is_found_out_and_the_cheapest_is_chosen() -> None:
    async with Gateway() as gateway:
        chosen = await examined(gateway)
        plain = await examined(gateway, "tollbridge/plain")
    assert chosen.model == MODEL
    assert plain.quirks.images is False
    assert findings(plain)["tools"].verdict == "amiss"
    assert plain.can_chat


async def test_an_answer_that_does_not_come_is_not_waited_for_longer_than_was_said() -> None:
    began = time.monotonic()
    async with Gateway(scenario="stall", settings=FaultSettings(stall_seconds=30)) as gateway:
        examination = await examined(gateway, MODEL, bounds=ProbeLimits(answer=0.2))
    assert time.monotonic() - began < 5
    assert "No whole answer came within" in findings(examination)["text"].sentence
    assert not examination.can_chat


async def test_an_examination_asks_no_more_than_was_said() -> None:
    async with Gateway() as gateway:
        examination = await examined(gateway, bounds=ProbeLimits(requests=5))
        assert len(gateway.requests) <= 6  # the last step hangs up on one of its own
    assert examination.can_chat
    assert findings(examination)["parameters"].verdict == "unknown"
    assert examination.quirks == Quirks()  # what could not be seen is not assumed


async def test_an_examination_ends_when_its_time_is_up() -> None:
    async with Gateway() as gateway:
        examination = await examined(gateway, MODEL, bounds=ProbeLimits(whole=0.0))
        assert len(gateway.requests) == 0
    assert not examination.can_chat


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_whatever_a_server_does_every_step_has_its_finding(
    scenario: str,
) -> None:
    settings = FaultSettings(stall_seconds=3, pace=0.001)
    async with Gateway(scenario=scenario, settings=settings) as gateway:
        examination = await examined(gateway, MODEL, bounds=ProbeLimits(answer=1.0))
    assert list(findings(examination)) == list(STEPS)
    assert all(finding.sentence.endswith((".", "…")) for finding in findings(examination).values())
