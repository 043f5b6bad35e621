"""The doctor with servers that have quirks: it finds them, and its profile makes a turn with tools work."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.turns import Runner

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.profiles import apply_findings
from tollbridge.doctor import content_checks as samples
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.examination import STEPS, Examination, check_models
from tollbridge.doctor.session import Finding, ProbeLimits, ProbeSession, Reply
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.refusals import make_error
from tollbridge.testing.scenarios import SCENARIOS, Scenario
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart
from tollbridge.types.quirks import Quirks

KEY = "tb-doctor-key-0123456789"
MODEL = "tollbridge/demo"
QUICK = FaultSettings(stall_seconds=0.5, pace=0.002)

# The quirks of each scenario that differ from the default.
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
    "ignored-attachments": {"unproven": {"images", "files", "rich_results"}},
    "ignored-calls": {"calls": False},
    "ignored-reasoning": {"unproven": {"reasoning"}},
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
        "unproven": {"images", "rich_results"},  # it reports no usage
    },
}
# The scenarios in which a full turn fails without the profile.
IGNORING = {"ignored-attachments", "ignored-calls", "ignored-reasoning"}
REJECTING = sorted(set(QUIRKS) - IGNORING - {"demo", "no-input-tokens", "reject-reasoning"})


async def run_examination(
    gateway: Gateway, model: str | None = None, key: str | None = None, limits: ProbeLimits | None = None
) -> Examination:
    async with OpenResponsesClient(gateway.url, key) as client:
        examination = Examination(client, model, limits)
        async for _ in examination.run():
            pass
    return examination


def findings(examination: Examination) -> dict[str, Finding]:
    return {step.name: step.finding for step in examination.steps if step.finding is not None}


async def agent_turn(runner: Runner) -> None:
    """Run a turn with a system prompt, an image, a file, a tool call and a result with an image."""
    attached = (TextPart("Call the tool get_weather."), samples.make_image(), samples.make_document())
    first = (Message(Role.SYSTEM, "You are a runner."), Message(Role.USER, attached))
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
    await runner.run(request, parts.extend)
    (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
    thoughts = tuple(part for part in parts if not isinstance(part, ToolCallPart))
    result = ToolResultPart(call.call_id, (TextPart("Sunny, as ever"), samples.make_image()))
    messages = (*first, Message(Role.ASSISTANT, (*thoughts, call)), Message(Role.USER, (result,)))
    await runner.run(
        msgspec.structs.replace(request, messages=messages, tool_choice=None), lambda parts: None
    )


@pytest.mark.parametrize("scenario", QUIRKS)
async def test_the_examination_finds_the_quirks_of_the_server(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await run_examination(gateway)
        assert len(gateway.requests) == examination.requests <= ProbeLimits().requests
    assert examination.can_chat
    assert examination.quirks == apply_findings(Quirks(), QUIRKS[scenario])
    assert [step.name for step in examination.steps] == list(STEPS)


@pytest.mark.parametrize("scenario", QUIRKS)
async def test_a_turn_with_tools_works_with_the_profile_and_fails_without(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await run_examination(gateway)
        once = RetryPolicy(attempts=1)
        async with OpenResponsesClient(gateway.url, retries=once) as client:
            if scenario in REJECTING:
                with pytest.raises(BridgeError):
                    await agent_turn(Runner(client))
            earlier = len(gateway.requests)
            memory = CompatMemory(lambda _url, _model: examination.quirks)
            await agent_turn(Runner(client, compat=memory))
        *_, last = gateway.requests
        assert [arrival.status for arrival in list(gateway.requests)[earlier:]] == [200, 200]  # no retries
    for words in ("You are a runner.", "Call the tool get_weather.", "Sunny, as ever"):
        assert words in str(last.body)


async def test_an_error_about_an_unsigned_call_is_not_a_quirk_of_the_server() -> None:
    async with Gateway(scenario="reject-unsigned-calls", settings=QUICK) as gateway:
        examination = await run_examination(gateway)
    assert examination.quirks == Quirks()
    results = findings(examination)
    for step in ("history", "results", "replay"):
        assert results[step].verdict == "unknown"
        assert "without the model's signature" in results[step].sentence


async def test_the_models_own_call_is_sent_back() -> None:
    async with Gateway(settings=QUICK) as gateway:
        await run_examination(gateway)
        sent = [item for arrival in gateway.requests for item in (arrival.body or {}).get("input", ())]
    calls = {item["call_id"] for item in sent if item["type"] == "function_call"}
    assert calls
    assert not any(call.startswith("call_doctor") for call in calls)


async def test_every_step_passes_with_a_server_without_quirks() -> None:
    async with Gateway(api_key=KEY) as gateway:
        results = findings(await run_examination(gateway, key=KEY))
    assert {finding.verdict for finding in results.values()} == {"well"}
    assert results["stream"].sentence.endswith("framed as specified.")
    assert "reasoning_summary_text.delta" in results["reasoning"].sentence
    assert results["parallel"].sentence == "The model made 2 calls in parallel."


@pytest.mark.parametrize(
    ("scenario", "step", "words"),
    [
        ("usage-null", "usage", "Usage is not reported"),
        ("usage-zero", "usage", "Usage is reported as zero"),
        ("no-done", "stream", "no [DONE]"),
        ("no-event-lines", "stream", "no event: lines"),
        ("no-sequence", "stream", "no sequence numbers"),
        ("vendor-events", "stream", "unknown events (response.premonition.delta, tollbridge:weather)"),
        ("reasoning-raw", "reasoning", "response.reasoning.delta"),
        ("reasoning-text", "reasoning", "response.reasoning_text.delta"),
        ("no-models", "models", "Not Found"),
    ],
)
async def test_a_deviation_is_reported_in_its_step(scenario: str, step: str, words: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await run_examination(gateway, MODEL)
    assert words in findings(examination)[step].sentence
    assert examination.can_chat


@pytest.mark.parametrize(
    ("scenario", "steps"),
    [
        ("ignored-attachments", {"images", "results", "files"}),
        ("ignored-reasoning", {"replay"}),
        ("usage-null", {"images", "results", "files", "replay"}),
        ("usage-zero", {"images", "results", "files", "replay"}),
    ],
)
async def test_what_is_accepted_and_not_seen_to_arrive_is_unproven(scenario: str, steps: set[str]) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        results = findings(await run_examination(gateway, MODEL))
    assert {name for name, finding in results.items() if finding.verdict == "unproven"} == steps
    assert all("Accepted, not seen to arrive" in results[name].sentence for name in steps)


async def test_a_system_prompt_that_is_ignored_in_every_role_is_unproven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop_system(body: dict[str, Any]) -> dict[str, Any]:
        items = [item for item in body["input"] if item.get("role") not in ("developer", "system")]
        return {**body, "input": items, "instructions": None}

    monkeypatch.setitem(SCENARIOS, "ignored-system", Scenario(description="", body=drop_system))
    async with Gateway(scenario="ignored-system", settings=QUICK) as gateway:
        examination = await run_examination(gateway)
    finding = findings(examination)["system"]
    assert finding.verdict == "unproven"
    assert finding.sentence == (
        "Accepted in the developer role, not seen to arrive (no additional input tokens)."
    )
    assert examination.quirks == Quirks(unproven=frozenset({"system"}))


async def test_a_user_message_is_not_tried_if_another_role_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop_developer(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "input": [item for item in body["input"] if item.get("role") != "developer"]}

    server = Scenario(description="", body=drop_developer, lacks=("system", "instructions"))
    monkeypatch.setitem(SCENARIOS, "developer-only", server)
    async with Gateway(scenario="developer-only", settings=QUICK) as gateway:
        examination = await run_examination(gateway)
    assert findings(examination)["system"].verdict == "unproven"
    assert examination.quirks == Quirks(unproven=frozenset({"system"}))


async def test_a_tool_result_that_does_not_arrive_is_sent_as_text() -> None:
    async with Gateway(scenario="ignored-calls", settings=QUICK) as gateway:
        examination = await run_examination(gateway)
        finding = findings(examination)["history"]
        assert finding.verdict == "amiss"
        assert "do not arrive" in finding.sentence
        memory = CompatMemory(lambda _url, _model: examination.quirks)
        async with OpenResponsesClient(gateway.url) as client:
            await agent_turn(Runner(client, compat=memory))
        *_, last = gateway.requests
    assert "Sunny, as ever" in str([item for item in last.body["input"] if item["type"] == "message"])


@pytest.mark.parametrize("position", range(24))
async def test_one_stray_rejection_at_any_position_changes_no_quirk(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()
    stray = Scenario(
        description="400 for one request",
        reply=make_error(400, "invalid_request", "Bad request."),
        applies=lambda _body: next(numbers) == position,
    )
    monkeypatch.setitem(SCENARIOS, "stray", stray)
    async with Gateway(scenario="stray", settings=QUICK) as gateway:
        examination = await run_examination(gateway)
        statuses = [arrival.status for arrival in gateway.requests]
    assert statuses.count(400) == (position < len(statuses))
    assert examination.quirks == Quirks()


@pytest.mark.parametrize("scenario", ["server-error", "forbidden", "html-page", "rate-limit", "list-error"])
async def test_a_server_that_never_responds_is_reported_and_gets_few_requests(scenario: str) -> None:
    async with Gateway(scenario=scenario, settings=QUICK) as gateway:
        examination = await run_examination(gateway, MODEL)
    assert not examination.can_chat
    assert findings(examination)["text"].verdict == "amiss"
    assert findings(examination)["cancel"].sentence.startswith("Not tested")
    assert examination.requests < 16


async def test_a_wrong_key_is_reported_and_not_shown() -> None:
    wrong = "tb-wrong-key-9876543210"
    async with Gateway(api_key=KEY) as gateway:
        examination = await run_examination(gateway, MODEL, wrong)
    finding = findings(examination)["key"]
    assert finding.verdict == "amiss"
    assert "The API key is wrong" in finding.sentence
    assert "TOLLBRIDGE_API_KEY" in finding.remedy
    assert wrong not in str(examination.steps)


@pytest.mark.parametrize(
    ("key", "problem"), [(None, "A key is required"), ("tb-wrong-key-9876543210", "The key was rejected")]
)
async def test_a_missing_or_wrong_key_is_also_reported_without_a_model(key: str | None, problem: str) -> None:
    """The server requires the key for the model list too."""
    async with Gateway(api_key=KEY) as gateway:
        results = findings(await run_examination(gateway, key=key))
    assert "TOLLBRIDGE_API_KEY" in results["models"].remedy
    assert results["key"].verdict == "amiss"
    assert results["key"].sentence.startswith(f"{problem}: ")
    assert "TOLLBRIDGE_API_KEY" in results["key"].remedy


async def test_a_base_url_without_v1_is_reported() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url.removesuffix("/v1")) as client:
        examination = Examination(client)
        async for _ in examination.run():
            pass
    assert "usually ends in /v1" in findings(examination)["models"].remedy


@pytest.mark.parametrize(
    ("models", "chosen", "sentence"),
    [
        (["a"], None, "1 model; no context windows listed; testing with a."),
        (["a", "b"], None, "2 models; no context windows listed; testing with a."),
        (["a"], "c", "1 model; c is not in the list."),
        (["a", "b"], "c", "2 models; c is not in the list."),
    ],
)
async def test_the_number_of_models_has_its_noun_in_singular_or_plural(
    models: list[str], chosen: str | None, sentence: str
) -> None:
    async with OpenResponsesClient("http://127.0.0.1:1/v1") as client:
        session = ProbeSession(client, chosen)
        session.models_reply = Reply(
            200, body=msgspec.json.encode({"data": [{"id": name} for name in models]})
        )
        assert (await check_models(session)).sentence == sentence


async def test_every_request_is_in_the_ledger_with_its_usage() -> None:
    tracker, account = UsageTracker(), BillingAccount("work", "http://h/v1")
    async with Gateway(scenario="no-calls") as gateway:
        async with OpenResponsesClient(gateway.url) as client:
            examination = Examination(client, MODEL, tracker=tracker, account=account)
            async for _ in examination.run():
                pass
        arrivals = [arrival for arrival in gateway.requests if arrival.path.endswith("/responses")]
    outcomes = Counter(record.outcome for record in tracker.records)
    assert sum(outcomes.values()) == len(arrivals)
    assert outcomes["cancelled"] == 1  # by the cancellation check
    assert outcomes["failed"] == sum(arrival.status == 400 for arrival in arrivals) > 0
    rows = {(record.model, record.account, record.base_url) for record in tracker.records}
    assert rows == {(MODEL, "work", "http://h/v1")}
    assert all(record.usage.known for record in tracker.records if record.outcome == "completed")


async def test_the_examination_ends_at_once_if_the_server_is_unreachable() -> None:
    async with Gateway() as gateway:
        url = gateway.url
    async with OpenResponsesClient(url) as client:
        examination = Examination(client, MODEL)
        async for _ in examination.run():
            pass
    assert findings(examination)["reach"].verdict == "amiss"
    assert examination.requests <= 2
    assert not examination.can_chat


@pytest.mark.slow
async def test_a_request_is_repeated_after_a_transient_error() -> None:
    async with Gateway(scenario="server-error-once") as gateway:
        examination = await run_examination(gateway)
    assert examination.quirks == Quirks()


async def test_a_model_without_image_support_is_detected_and_the_cheapest_model_is_the_default() -> None:
    async with Gateway() as gateway:
        chosen = await run_examination(gateway)
        plain = await run_examination(gateway, "tollbridge/plain")
    assert chosen.model == MODEL
    assert plain.quirks.images is False
    assert findings(plain)["tools"].verdict == "amiss"
    assert plain.can_chat


async def test_a_missing_answer_ends_with_the_answer_timeout() -> None:
    started = time.monotonic()
    async with Gateway(scenario="stall", settings=FaultSettings(stall_seconds=30)) as gateway:
        examination = await run_examination(gateway, MODEL, limits=ProbeLimits(answer=0.2))
    assert time.monotonic() - started < 5
    assert "No complete response within" in findings(examination)["text"].sentence
    assert not examination.can_chat


@pytest.mark.slow
async def test_an_examination_respects_its_request_limit() -> None:
    async with Gateway() as gateway:
        examination = await run_examination(gateway, limits=ProbeLimits(requests=5))
        assert len(gateway.requests) <= 6  # the cancellation check sends one more
    assert examination.can_chat
    assert findings(examination)["parameters"].verdict == "unknown"
    assert examination.quirks == Quirks()  # untested features are not assumed to be missing


async def test_an_examination_ends_at_its_time_limit() -> None:
    async with Gateway() as gateway:
        examination = await run_examination(gateway, MODEL, limits=ProbeLimits(total=0.0))
        assert len(gateway.requests) == 0
    assert not examination.can_chat


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_every_step_has_a_finding_with_any_server(
    scenario: str,
) -> None:
    settings = FaultSettings(stall_seconds=3, pace=0.001)
    async with Gateway(scenario=scenario, settings=settings) as gateway:
        examination = await run_examination(gateway, MODEL, limits=ProbeLimits(answer=1.0))
    assert list(findings(examination)) == list(STEPS)
    assert all(finding.sentence.endswith((".", "…")) for finding in findings(examination).values())


async def test_a_model_that_does_not_exist_is_not_a_problem_of_the_key() -> None:
    async with Gateway() as gateway:
        key = findings(await run_examination(gateway, "nope"))["key"]
    assert key.verdict == "unknown"
    assert key.remedy == "Choose a model of the gateway with --model; `tollbridge models` lists them."
