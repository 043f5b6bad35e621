"""The parameters of a request that settings may preset, and what they may be."""

from __future__ import annotations

import msgspec

from tollbridge.core.messages import ChatRequest

# Those that a request knows by name; all others are sent as they are given.
PRESETS = frozenset(
    {
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "reasoning_effort",
        "reasoning_summary",
        "temperature",
        "top_p",
    }
)
_NEVER = frozenset({"model", "messages", "input", "tools", "stream"})
_FIELDS = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}


def about_preset(name: str, value: object) -> str | None:
    """What is wrong with a parameter, if anything is."""
    if name in _NEVER:
        return "it cannot be preset: it is the editor's"
    if name in PRESETS:
        try:
            msgspec.convert(value, _FIELDS[name])
        except msgspec.ValidationError as error:
            return str(error)
    return None
