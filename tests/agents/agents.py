"""Real agents from npm, run offline against `tollbridge serve`, with a model that follows a script.

The task is the same for every agent: read a file, edit it, check the result, and report. The script calls
the agent's own tools, so each agent really reads and writes the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.interop.node import installed
from workshop.node import environment

from tollbridge.cli.agents import AGENTS, ServerAddress, write_setup
from tollbridge.testing import Call
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Say, ScriptedAnswer

MODEL = "tollbridge/demo"
TASK = "In notes.txt, replace the word red by green. Then check the file."
BEFORE, AFTER = "The bridge is red.\n", "The bridge is green.\n"
ANSWER = "Done: notes.txt says that the bridge is green."
RUN_SECONDS = 180
QUESTION, SYSTEM = "What is a bridge? Answer in one sentence.", "Answer in one sentence."
CONTEXT, ANSWER_LIMIT = 4096, 200  # tokens

Step = tuple[str, Mapping[str, Any]]


class Agent(msgspec.Struct, frozen=True):
    """How to run an agent.

    Attributes:
        name: Its name in `tollbridge serve --print-config`.
        command: The program in `node_modules` and its arguments, before the prompt.
        question: The same for a question without tools, with the shortest prompt that the agent allows.
        steps: Returns the tool calls that do the task, for a workspace.
        environment: Variables that keep it offline.
        shorten: Changes the settings in a home folder so that prompts and answers are short.
        limits: Variables that make prompts and answers short.
    """

    name: str
    command: tuple[str, ...]
    question: tuple[str, ...]
    steps: Callable[[Path], Sequence[Step]]
    environment: Mapping[str, str] = {}
    shorten: Callable[[Path], None] | None = None
    limits: Mapping[str, str] = {}


def _codex_steps(_: Path) -> Sequence[Step]:
    return (
        ("exec_command", {"cmd": "cat notes.txt"}),
        ("exec_command", {"cmd": "sed -i s/red/green/ notes.txt"}),
        ("exec_command", {"cmd": "cat notes.txt"}),
    )


def _claude_steps(workspace: Path) -> Sequence[Step]:
    file = str(workspace / "notes.txt")
    return (
        ("Read", {"file_path": file}),
        ("Edit", {"file_path": file, "old_string": "red", "new_string": "green"}),
        ("Bash", {"command": "cat notes.txt", "description": "Check the file"}),
    )


def _opencode_steps(workspace: Path) -> Sequence[Step]:
    file = str(workspace / "notes.txt")
    return (
        ("read", {"filePath": file}),
        ("edit", {"filePath": file, "oldString": "red", "newString": "green"}),
        ("bash", {"command": "cat notes.txt", "description": "Check the file"}),
    )


def _copilot_steps(workspace: Path) -> Sequence[Step]:
    file = str(workspace / "notes.txt")
    return (
        ("view", {"path": file}),
        ("edit", {"path": file, "old_str": "red", "new_str": "green"}),
        ("bash", {"command": "cat notes.txt", "description": "Check the file"}),
    )


# Tools of Codex that can be switched off. One, for questions to the user, stays.
_CODEX_FEATURES = (
    *("shell_tool", "unified_exec", "multi_agent", "goals", "view_image", "skill_search", "plugins", "apps"),
)
_CODEX_SETTINGS = """\
web_search = "disabled"
include_permissions_instructions = false
include_environment_context = false
skills = {{ include_instructions = false, bundled = {{ enabled = false }} }}
features = {{ {features} }}
model_instructions_file = {file}
"""


def _shorten_codex(home: Path) -> None:
    instructions, settings = home / "instructions.md", home / ".codex" / "config.toml"
    instructions.write_text(SYSTEM)
    features = ", ".join(f"{name} = false" for name in _CODEX_FEATURES)
    added = _CODEX_SETTINGS.format(features=features, file=json.dumps(str(instructions)))
    settings.write_text(added + settings.read_text())


def _shorten_opencode(home: Path) -> None:
    file = home / ".config" / "opencode" / "opencode.json"
    settings = json.loads(file.read_text())
    plain = {"mode": "primary", "prompt": SYSTEM, "tools": {"*": False}}
    settings["agent"] = {"plain": plain, "title": {"disable": True}}
    for model in settings["provider"]["tollbridge"]["models"].values():
        model["limit"] = {"context": CONTEXT, "output": ANSWER_LIMIT}
    file.write_text(json.dumps(settings))


CODEX = Agent(
    "codex",
    (".bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    (".bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    _codex_steps,
    shorten=_shorten_codex,
)
CLAUDE_CODE = Agent(
    "claude-code",
    (
        "@anthropic-ai/claude-code-linux-x64/claude",
        *("--permission-mode", "acceptEdits", "--allowedTools", "Read,Edit,Bash", "--print"),
    ),
    (
        "@anthropic-ai/claude-code-linux-x64/claude",
        *("--system-prompt", SYSTEM, "--tools", "", "--disable-slash-commands", "--print"),
    ),
    _claude_steps,
    {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"},
    limits={"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(ANSWER_LIMIT)},
)
COPILOT = Agent(
    "copilot",
    (".bin/copilot", "--allow-all-tools", "--allow-all-paths", "--no-color", "--prompt"),
    (
        ".bin/copilot",
        *("--available-tools=none", "--disable-builtin-mcps", "--no-custom-instructions", "--no-ask-user"),
        *("--no-color", "--prompt"),
    ),
    _copilot_steps,
    {"COPILOT_AUTO_UPDATE": "false"},
    limits={"COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(ANSWER_LIMIT)},
)
OPENCODE = Agent(
    "opencode",
    ("opencode-linux-x64/bin/opencode", "run"),
    ("opencode-linux-x64/bin/opencode", "run", "--agent", "plain"),
    _opencode_steps,
    {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    shorten=_shorten_opencode,
)


class ScriptedAgentModel:
    """A model that calls the next tool of the script after each tool result.

    Agents also send requests without tools, for example to name the conversation: those get a short text.

    Attributes:
        rounds: The number of tool calls that were made.
        results: The texts of the tool results that were received.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.rounds = 0
        self.results: list[str] = []

    def __call__(self, request: AcceptedRequest) -> ScriptedAnswer:
        names = {tool.name for tool in request.tools}
        outputs = [item for item in request.items if item["type"] == "function_call_output"]
        if not names & {name for name, _ in self._steps}:
            return ScriptedAnswer(blocks=(Say("Edit of notes"),))
        self.results = [str(item["output"]) for item in outputs]
        if len(outputs) >= len(self._steps):
            return ScriptedAnswer(blocks=(Say(ANSWER),))
        name, arguments = self._steps[len(outputs)]
        self.rounds = max(self.rounds, len(outputs) + 1)
        return ScriptedAnswer(blocks=(Call(name, msgspec.json.encode(arguments).decode()),))


def set_up(agent: Agent, url: str, home: Path, model: str = MODEL) -> dict[str, str]:
    """Write the settings of an agent into an empty home folder, and return its environment."""
    variables = {
        "HOME": str(home),
        "PATH": environment()["PATH"],
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "CODEX_HOME": str(home / ".codex"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        **agent.environment,
    }
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        setup = AGENTS[agent.name](ServerAddress(url=url, model=model))
        if setup.file is not None:
            write_setup(setup)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if setup.file is None:  # settings are commands such as `export NAME=value`
        for line in setup.text.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            variables[name] = value
    return variables


async def run_agent(
    command: Sequence[str], prompt: str, workspace: Path, variables: Mapping[str, str]
) -> str:
    """Run an agent in a workspace and return its output. Its processes are ended if it takes too long."""
    program, *arguments = command
    folder = installed(Path(__file__).parent) / "node_modules"
    process = await asyncio.create_subprocess_exec(
        folder / program,
        *arguments,
        prompt,
        cwd=workspace,
        env=dict(variables),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    return output.decode(errors="replace")
