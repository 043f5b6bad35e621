"""Real agents complete a task with file edits and several tool rounds through `tollbridge serve`."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
from tests.agents.agents import (
    AFTER,
    ANSWER,
    ANSWER_LIMIT,
    BEFORE,
    CLAUDE_CODE,
    CODEX,
    CONTEXT,
    COPILOT,
    MODEL,
    OPENCODE,
    QUESTION,
    TASK,
    Agent,
    ScriptedAgentModel,
    run_agent,
    set_up,
)
from tests.agents.tap import Tap
from tests.frontends.http.servers import local_server
from tests.storage import stored

from tollbridge.local.process import LocalModel
from tollbridge.protocols import Backend
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.catalog import find_model
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file
from tollbridge.types.events import Usage

REQUESTED = bool(os.environ.get("CI") or os.environ.get("AGENTS"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(420),
    pytest.mark.skipif(
        not REQUESTED,
        reason="the agents (800 MB from npm) were left out; run them with `make test AGENTS=1`",
    ),
]

# What a request to llama.cpp gets if it does not say otherwise: an answer that ends with the first sentence.
# Codex sets no limit, and some agents do not accept an answer that was cut by one.
SERVER_DEFAULTS = {"temperature": 0, "max_tokens": ANSWER_LIMIT, "stop": ["."], "stop_sequences": ["."]}


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions", "anthropic-messages"])
@pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE, COPILOT, OPENCODE], ids=lambda agent: agent.name)
async def test_an_agent_completes_a_task(
    agent: Agent, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path / "data"))
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "notes.txt").write_text(BEFORE)
    model = ScriptedAgentModel(agent.steps(workspace))
    async with (
        Gateway(model=model) as gateway,
        local_server(gateway.url, backend, persistent=True) as server,
    ):
        await server.engine.models()  # with their prices
        output = await run_agent(agent.command, TASK, workspace, set_up(agent, server.url, home))
        assert (workspace / "notes.txt").read_text() == AFTER, output
        assert ANSWER in output
        assert model.rounds == 3
        assert BEFORE.strip() in model.results[0]
        assert AFTER.strip() in model.results[-1]
        counted = [answer.usage for answer in gateway.counted if answer.usage is not None]
    rows = read_rows()
    assert len(rows) >= 4
    assert all(row.initiator for row in rows)
    assert sum((row.usage for row in rows), Usage()) == sum(counted, Usage())
    if backend != "anthropic-messages":  # whose model list has no prices
        assert sum(row.cost or 0 for row in rows) == sum(price(usage) for usage in counted) > 0


@pytest.mark.parametrize(
    ("agent", "backend"),
    [
        (CODEX, "openresponses"),
        (CODEX, "chat-completions"),
        (CLAUDE_CODE, "openresponses"),
        (CLAUDE_CODE, "anthropic-messages"),
        (OPENCODE, "chat-completions"),
        (OPENCODE, "anthropic-messages"),
        (COPILOT, "anthropic-messages"),  # its prompt has 1,900 tokens at least, so it is asked once
    ],
    ids=lambda value: value.name if isinstance(value, Agent) else value,
)
async def test_an_agent_gets_an_answer_of_a_real_model(
    agent: Agent, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path / "data"))
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    async with (
        LocalModel(context=CONTEXT) as model,
        Tap(model.url.removesuffix("/v1"), SERVER_DEFAULTS) as llama,
        local_server(llama.url, backend, api_key=None, persistent=True) as server,
    ):
        variables = {**set_up(agent, server.url, home, model.model_id), **agent.limits}
        if agent.shorten is not None:
            agent.shorten(home)
        output = await run_agent(agent.question, QUESTION, workspace, variables)
    assert not llama.failures, llama.failures[0].body
    answers = [" ".join(answer.text.split()) for answer in llama.answers]
    assert any(answer and answer in " ".join(output.split()) for answer in answers), output
    rows = read_rows()
    assert all(row.initiator for row in rows)
    counted = [answer.usage for answer in llama.answers]
    assert [count_tokens(row.usage) for row in rows] == [count_tokens(usage) for usage in counted]


def count_tokens(usage: Usage) -> tuple[int | None, int | None, int]:
    """Return the tokens of the prompt, those of the answer, and the cached ones."""
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0


def read_rows() -> list[UsageRow]:
    """Return the recorded requests, from the database."""
    return stored.read_rows(database_file())


def price(usage: Usage) -> Decimal:
    """Return what the gateway's own price list says that an answer costs."""
    pricing = {name: Decimal(value) for name, value in find_model(MODEL)["pricing"].items()}
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    fresh = (usage.input_tokens or 0) - cached - written
    cost = fresh * pricing["input"] + (usage.output_tokens or 0) * pricing["output"]
    return cost + cached * pricing["input_cache_read"] + written * pricing["input_cache_write"]
