"""Which of the offered tools the scripted model calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tollbridge.gateway import prompt
from tollbridge.gateway.turns import Turn
from tollbridge.gateway.wire import FunctionTool

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Words of a tool's name that a request for it need not contain.
_FILLERS = frozenset({"get", "set", "the", "a", "to", "of", "do", "copilot", "mcp"})


def choose_tools(turn: Turn, asked: Collection[str]) -> list[FunctionTool]:
    tools, mode = _allowed(turn)
    if mode == "none" or not tools:
        return []
    if mode == "auto" and prompt.results(turn.items):
        return []  # what was asked for has been done; now it is told
    request = prompt.wish(turn.items)
    named = [tool for tool in tools if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", request)]
    wanted = named or [tool for tool in tools if _is_asked_for(tool.name, request)]
    if not wanted and (mode == "required" or {"tool", "parallel"} & set(asked)):
        wanted = list(tools)
    if not wanted:
        return []
    if "parallel" in asked and turn.body.parallel_tool_calls is not False:
        others = [tool for tool in tools if tool not in wanted]
        return ([*wanted, *others] * 2)[:2]
    return wanted[:1]


def _allowed(turn: Turn) -> tuple[Sequence[FunctionTool], str]:
    """The tools that `tool_choice` leaves, and whether one must be called."""
    choice = turn.body.tool_choice or "auto"
    if not isinstance(choice, Mapping):
        return turn.tools, choice
    if choice["type"] == "function":
        return [tool for tool in turn.tools if tool.name == choice["name"]], "required"
    names = {tool["name"] for tool in choice["tools"]}
    return [tool for tool in turn.tools if tool.name in names], choice.get("mode") or "auto"


def _is_asked_for(name: str, request: str) -> bool:
    """Whether every telling word of the name begins a word of the request, as "directory" for `list_dir`."""
    words = [word.lower() for word in _WORD.findall(name)]
    telling = [word for word in words if word not in _FILLERS]
    said = [word.lower() for word in re.findall(r"\w+", request)]
    return bool(telling) and all(any(word.startswith(part) for word in said) for part in telling)
