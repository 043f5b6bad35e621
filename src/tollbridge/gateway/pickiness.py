"""What servers refuse though the protocol has it: rules that a scenario puts up, by name.

The refusals say nothing: no field, no reason. Only who has asked before knows what to leave out. (`rejects`
has the servers that do say.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.rejects import Body, items_of

# Fields that may be refused as such.
FIELDS = ("include", "max_output_tokens", "metadata", "parallel_tool_calls", "store", "temperature")
_CALLS = ("function_call", "function_call_output")


def _messages(body: Body) -> Iterator[Mapping[str, Any]]:
    return (item for item in items_of(body) if "role" in item)


def _parts(body: Body) -> Iterator[Mapping[str, Any]]:
    for item in items_of(body):
        content = item.get("content") or item.get("output")
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


def _results(body: Body) -> Iterator[Any]:
    return (item.get("output") for item in items_of(body) if item.get("type") == "function_call_output")


def _has(field: str, body: Body) -> bool:
    return field in body


# Whether a body breaks the rule.
RULES: dict[str, Callable[[Body], bool]] = {
    "developer": lambda body: any(item["role"] == "developer" for item in _messages(body)),
    "system": lambda body: any(item["role"] == "system" for item in _messages(body)),
    "instructions": lambda body: "instructions" in body,
    "arrays": lambda body: any(isinstance(item.get("content"), list) for item in _messages(body)),
    "strings": lambda body: any(isinstance(item.get("content"), str) for item in _messages(body)),
    "calls": lambda body: any(item.get("type") in _CALLS for item in items_of(body)),
    "rich results": lambda body: any(isinstance(each, list) for each in _results(body)),
    "images": lambda body: any(part.get("type") == "input_image" for part in _parts(body)),
    "files": lambda body: any(part.get("type") == "input_file" for part in _parts(body)),
    "reasoning": lambda body: any(item.get("type") == "reasoning" for item in items_of(body)),
    "flat tools": lambda body: any("name" in tool for tool in body.get("tools") or ()),
    **{field: partial(_has, field) for field in FIELDS},
}


def check_rules(names: Iterable[str], body: object) -> None:
    """Refuses the body that breaks one of the rules named."""
    if not isinstance(body, Mapping):
        return
    if any(RULES[name](body) for name in names):
        raise Refused(400, "invalid_request", "Bad request.")


def unnested(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose tools came as chat completions name them, as the protocol does."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    flat = [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in tools]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and "function" in choice:
        choice = {"type": "function", **choice["function"]}
    return {**body, "tools": flat, **({} if choice is None else {"tool_choice": choice})}
