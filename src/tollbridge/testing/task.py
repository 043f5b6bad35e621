"""A task that the scripted model solves in several steps, with the tools of an editor or an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tollbridge.protocols.openresponses.schema import FunctionTool
from tollbridge.testing.conversation import PATH_NAMES, find_short_request, quote, read_text
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Block, Call, Say
from tollbridge.testing.values import make_value

# The file in the request: "Fix the bug in tolls.py".
_TASK_FILE = re.compile(r"[\w./-]*[\w-]\.py\b")
_WORKSPACE = re.compile(r"workspace with the following folders:\s*- (\S+)")
# The bug: a line that says what should be there instead.
_BUG = re.compile(r"^(?P<wrong>[^\n#]*# should be: (?P<right>[^\n]+))", re.MULTILINE)
# Parts of parameter names.
_OLD = re.compile(r"old", re.IGNORECASE)
_NEW = re.compile(r"new", re.IGNORECASE)
_LINES = re.compile(r"line|offset|range", re.IGNORECASE)
_COMMAND = re.compile(r"\Acommand\Z")
_PASSED = "all examples passed"


class BugFix:
    """Fixes a bug as an agent does: reads the file, edits it, runs its examples and checks their output.

    The bug is a line with a comment `# should be: …`; the examples are those in the file's docstrings. Tools
    are recognized by their parameters, so that every editor and agent can run it. The last user message
    names the file.
    """

    def __init__(self, request: AcceptedRequest) -> None:
        items = request.items
        start = max(index for index, item in enumerate(items) if item.get("role") == "user")
        outputs = {
            item["call_id"]: read_text(item["output"])
            for item in items[start:]
            if item["type"] == "function_call_output"
        }
        self._results = [
            (item["name"], outputs.get(item["call_id"], ""))
            for item in items[start:]
            if item["type"] == "function_call"
        ]
        self._tools = request.tools
        match = _TASK_FILE.search(find_short_request(items))
        self._name = match[0] if match else "tolls.py"
        folder = _WORKSPACE.search("\n".join(read_text(item.get("content")) for item in items))
        is_relative = folder is not None and not self._name.startswith("/")
        self._path = f"{folder[1]}/{self._name}" if folder and is_relative else self._name

    def next_block(self) -> Block:
        """Return the next call, or the report."""
        read = self._find((PATH_NAMES, _LINES), "read", "view")
        edit = self._find((PATH_NAMES, _OLD, _NEW), "edit", "replace")
        run = self._find((_COMMAND,), "terminal", "bash", "shell")
        if read is None or edit is None or run is None:
            return Say("I need tools that read a file, edit a file and run a command.")
        content = self._result(read)
        if content is None:
            return self._call(read)
        bug = _BUG.search(content)
        if bug is None:
            return Say(f"I read {self._name} and found no line with a comment “should be”.")
        # Some tools put a number and a tab or an arrow before each line.
        wrong, right = bug["wrong"].replace("→", "\t").split("\t")[-1].strip(), bug["right"].strip()
        if self._result(edit) is None:
            return self._call(edit, old=wrong, new=right)
        command = f"python3 -m doctest {self._path} && echo {_PASSED}"
        output = self._result(run)
        if output is None:
            return self._call(run, command=command)
        verdict = "All its examples pass." if _PASSED in output else f"Its examples fail: {quote(output)}"
        return Say(f"I read {self._name}, replaced `{wrong}` by `{right}` and ran its examples. {verdict}")

    def _find(self, patterns: Sequence[re.Pattern[str]], *words: str) -> FunctionTool | None:
        """Return a tool with a parameter for each pattern, preferably with one of the words in its name."""

        def has_parameters(tool: FunctionTool) -> bool:
            properties = (tool.parameters or {}).get("properties")
            names = properties if isinstance(properties, Mapping) else {}
            return all(any(map(pattern.search, names)) for pattern in patterns)

        tools = [tool for tool in self._tools if has_parameters(tool) and "notebook" not in tool.name]
        named = (tool for tool in tools if any(word in tool.name.lower() for word in words))
        return next(named, tools[0] if tools else None)

    def _result(self, tool: FunctionTool) -> str | None:
        """Return the last result of a tool, or None if it was not called yet."""
        return next((output for name, output in reversed(self._results) if name == tool.name), None)

    def _call(self, tool: FunctionTool, old: str = "", new: str = "", command: str = "") -> Call:
        def hint(name: str) -> str:
            if name == "command":
                return command
            if PATH_NAMES.search(name):
                return self._path
            return old if _OLD.search(name) else new if _NEW.search(name) else "Fix the bug"

        arguments = make_value(tool.parameters or {"type": "object"}, hint)
        if isinstance(arguments, dict):
            for name in arguments:
                if "end" in name.lower() or "limit" in name.lower():
                    arguments[name] = 200  # the last line to read, or the number of lines
        return Call(tool.name, msgspec.json.encode(arguments).decode())
