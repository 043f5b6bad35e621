"""Convert the parts and the usage of answers to VS Code's."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.markers import encode_marker
from tollbridge.types.errors import StreamError
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    PACK_MIME,
    DataPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

# The billionths of a credit in a US dollar. A credit, the unit of prices in VS Code, is a cent.
NANO_CREDITS = 100 * 1_000_000_000


def encode_parts(parts: Iterable[Part], model: str = "") -> list[wire.Part]:
    """Return the parts for VS Code, which stores the model with the reasoning that must be sent back.

    Raises:
        StreamError: VS Code cannot represent a part.
    """
    return [_encode_part(part, model) for part in parts]


def _encode_part(part: Part, model: str) -> wire.Part:
    match part:
        case TextPart(text):
            return wire.Text(text)
        case ThinkingPart(text, id, metadata):
            return wire.Thinking(text, id, dict(metadata) if metadata else None)
        case ToolCallPart(call_id, name, arguments):
            return wire.ToolCall(call_id, name, _encode_arguments(name, arguments))
        case DataPart(data, mime) if mime == PACK_MIME:
            return wire.Data(wire.MARKER_MIME, encode_marker(model, data))
        case DataPart(data, mime):
            return wire.Data(mime, data)
        case ToolResultPart(call_id):
            # VS Code would drop it, because it executes all tools itself.
            raise StreamError(f"The gateway sent a tool result ({call_id}), which VS Code cannot show.")


def _encode_arguments(name: str, arguments: Any) -> dict[str, Any]:
    """Return the arguments as an object, because VS Code passes an object to its tools."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    raise StreamError(f"The model called the tool {name} with arguments that are not a JSON object.")


def encode_usage(usage: Usage | None, cost: Decimal | None = None) -> wire.Data | None:
    """Return the part that updates VS Code's context meter, or `None` if the gateway did not report usage.

    The usage is what the context window contains. A cost, in US dollars, is shown as credits.
    """
    if usage is None or not usage.known or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached, reasoning = usage.cached_tokens, usage.reasoning_tokens
    body = wire.UsageJson(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens or usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=None if cached is None else wire.TokenDetails(cached_tokens=cached),
        completion_tokens_details=None if reasoning is None else wire.TokenDetails(None, reasoning),
        copilot_usage=None if cost is None else wire.CreditUsage(round(cost * NANO_CREDITS)),
    )
    return wire.Data(wire.USAGE_MIME, msgspec.json.encode(body))
