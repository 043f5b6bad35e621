"""Real agents complete a task with file edits and several tool rounds through `tollbridge serve`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.agents.agents import (
    AFTER,
    ANSWER,
    BEFORE,
    CLAUDE_CODE,
    CODEX,
    COPILOT,
    OPENCODE,
    TASK,
    Agent,
    ScriptedAgentModel,
    run_agent,
    set_up,
)
from tests.frontends.http.servers import local_server

from tollbridge.testing import Gateway
from tollbridge.types.urls import Backend
from tollbridge.types.usage import Usage

REQUESTED = bool(os.environ.get("CI") or os.environ.get("AGENTS"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(420),
    pytest.mark.skipif(
        not REQUESTED,
        reason="the agents (800 MB from npm) were left out; run them with `make test AGENTS=1`",
    ),
]


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions", "anthropic-messages"])
@pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE, COPILOT, OPENCODE], ids=lambda agent: agent.name)
async def test_an_agent_completes_a_task(agent: Agent, backend: Backend, tmp_path: Path) -> None:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "notes.txt").write_text(BEFORE)
    model = ScriptedAgentModel(agent.steps(workspace))
    async with Gateway(model=model) as gateway, local_server(gateway.url, backend) as server:
        output = await run_agent(agent, TASK, workspace, set_up(agent, server.url, home))
        assert (workspace / "notes.txt").read_text() == AFTER, output
        assert ANSWER in output
        assert model.rounds == 3
        assert BEFORE.strip() in model.results[0]
        assert AFTER.strip() in model.results[-1]
        assert len(server.engine.usage.records) >= 4
        assert server.engine.usage.total() == sum(
            (answer.usage or Usage() for answer in gateway.counted), Usage()
        )
        assert all(record.initiator for record in server.engine.usage.records)
