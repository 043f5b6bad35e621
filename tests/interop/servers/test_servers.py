"""Real OpenResponses servers from PyPI: doctor's verdicts, reasoning, and a turn with a tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.interop.servers.gpt_oss import serve
from tests.interop.servers.processes import Server, run_gpt_oss, run_ogx, run_open_responses_server
from tests.interop.turns import examine, join_reasoning, join_text, run_turn
from tests.interop.upstream import TEXT, THOUGHT, Upstream, count_prompt

from tollbridge.answer import Answer
from tollbridge.compat.profiles import apply_findings, load_profile, save_profile
from tollbridge.doctor.examination import Examination
from tollbridge.types.messages import Message, Part, Role, TextPart, ToolCallPart, ToolResultPart
from tollbridge.types.quirks import Quirks

# The first run installs the servers, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ogx(upstream: Upstream) -> AsyncIterator[Server]:
    async with run_ogx(upstream.url) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpt_oss() -> AsyncIterator[Server]:
    async with run_gpt_oss() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_responses_server(upstream: Upstream) -> AsyncIterator[Server]:
    async with run_open_responses_server(upstream.url) as server:
        yield server


def verdicts(examination: Examination) -> dict[str, str]:
    """Return the verdicts that are not `well`."""
    findings = {step.name: step.finding for step in examination.steps if step.finding}
    return {name: finding.verdict for name, finding in findings.items() if finding.verdict != "well"}


async def tool_round(server: Server, examination: Examination, folder: Path) -> tuple[Answer, list[Part]]:
    """Run an agent's turn with the profile that doctor writes: a tool call, and the answer to its result."""
    save_profile(server.url, server.model, examination.quirks, folder=folder)
    opening = (Message(Role.SYSTEM, "Be a bridge."), Message(Role.USER, "Call the tool for Paris."))
    turn, parts = await run_turn(server.url, server.model, *opening, folder=folder, effort="low")
    assert turn.finish_reason == "tool-calls"
    (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    result = ToolResultPart(call.call_id, (TextPart("Sunny"),))
    history = (*opening, Message(Role.ASSISTANT, tuple(parts)), Message(Role.USER, (result,)))
    turn, parts = await run_turn(server.url, server.model, *history, folder=folder, effort="low")
    assert turn.finish_reason == "stop"
    assert not any("once more" in change for change in turn.changes)  # nothing was rejected and repaired
    assert "Sunny" in join_text(parts)
    assert "Be a bridge." in join_text(parts)
    return turn, parts


# --- ogx ---


async def test_with_ogx_everything_arrives_and_a_turn_with_a_tool_works(
    ogx: Server, upstream: Upstream, tmp_path: Path
) -> None:
    examination = await examine(ogx.url, model=ogx.model)
    # It requires an id on reasoning in the input, although it does not sign reasoning.
    assert verdicts(examination) == {"tokens": "amiss"}
    measured = {"input_tokens": False, "reasoning_as": "content"}
    assert examination.quirks == apply_findings(Quirks(), measured)
    turn, _ = await tool_round(ogx, examination, tmp_path)
    assert turn.usage is not None
    assert turn.usage.input_tokens == count_prompt(upstream.requests[-1])


async def test_reasoning_of_ogx_is_shown_once(ogx: Server) -> None:
    """It streams reasoning under the id of the message, then sends a reasoning item with the same text."""
    _, parts = await run_turn(ogx.url, ogx.model, Message(Role.USER, "Think, then speak."), effort="low")
    assert join_reasoning(parts).strip() == THOUGHT
    assert join_text(parts).strip() == TEXT


# --- gpt-oss ---


async def test_with_gpt_oss_reasoning_arrives_as_content_and_a_turn_with_a_tool_works(
    gpt_oss: Server, tmp_path: Path
) -> None:
    examination = await examine(gpt_oss.url, model=gpt_oss.model)
    expected = dict.fromkeys(("models", "system", "tools", "images", "files", "tokens"), "amiss")
    assert verdicts(examination) == expected
    measured = {
        "system": "system",
        "images": False,
        "files": False,
        "input_tokens": False,
        "reasoning_as": "content",
        "without": {"tool_choice"},
    }
    assert examination.quirks == apply_findings(Quirks(), measured)
    await tool_round(gpt_oss, examination, tmp_path)


async def test_reasoning_of_gpt_oss_is_shown_once(gpt_oss: Server) -> None:
    _, parts = await run_turn(gpt_oss.url, gpt_oss.model, Message(Role.USER, "Hello."), effort="low")
    assert join_reasoning(parts) == serve.THOUGHT
    assert join_text(parts) == serve.TEXT


# --- open-responses-server ---


async def test_open_responses_server_drops_calls_images_and_files_and_doctor_says_so(
    open_responses_server: Server, upstream: Upstream, tmp_path: Path
) -> None:
    server = open_responses_server
    begin = len(upstream.requests)
    examination = await examine(server.url, model=server.model)
    prompts = str([request["messages"] for request in upstream.requests[begin:]])
    assert "data:" not in prompts  # neither the image nor the file reaches the model
    assert "'role': 'tool'" not in prompts  # nor does a result
    accepted = {"images": "unproven", "results": "unproven", "files": "unproven"}
    assert verdicts(examination) == {**accepted, "usage": "amiss", "history": "amiss", "tokens": "amiss"}
    # Results arrive as text, and the system prompt only as `instructions`.
    unproven = {"images", "files", "rich_results"}
    measured = {"calls": False, "system": "instructions", "input_tokens": False, "unproven": unproven}
    assert examination.quirks == apply_findings(Quirks(), measured)
    await tool_round(server, examination, tmp_path)
    profile = load_profile(server.url, tmp_path)
    assert profile is not None
    assert profile.quirks_for(server.model).unproven == unproven
