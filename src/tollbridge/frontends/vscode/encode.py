"""From what a model said to what VS Code shows."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.wire import encode_marker
from tollbridge.types.errors import BridgeError, ContextTooLong, Kind, StreamError
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tollbridge.types.models import Model, Prices
from tollbridge.types.reasoning import PACK_MIME
from tollbridge.types.usage import Usage

MILLION = 1_000_000

# What a person can do, by the kind of failure; the gateway's own words come first.
ADVICE: dict[Kind, str] = {
    "authentication": "Check the account's API key with “Tollbridge: Set Up”.",
    "permission": "The key may not use this model.",
    "not_found": "“Tollbridge: Refresh Models” fetches the list again.",
    "rate_limited": "Wait a little and try again.",
    "context_too_long": "Start a new chat, or attach less.",
    "overloaded": "Try again in a moment.",
    "network": "Check the account's base URL and the network.",
    "timeout": "Try again, or raise tollbridge.timeouts.",
    "disconnected": "What was said is kept; try again.",
}

EFFORT_LABELS = {"xhigh": "Extra High"}
EFFORT_WORDS = {
    "none": "No thinking",
    "minimal": "As little thinking as possible",
    "low": "Quick answers",
    "medium": "A balance of speed and depth",
    "high": "Deep thinking",
    "xhigh": "Deeper thinking",
    "max": "As much thinking as the model can do",
}


def encode_parts(parts: Iterable[Part], model: str = "") -> list[wire.Part]:
    """`model` is whose answer it is: the host keeps it beside what must come back."""
    return [_part(part, model) for part in parts]


def encode_usage(usage: Usage | None) -> wire.Data | None:
    """The part that moves the host's context meter: only from numbers the gateway gave."""
    if usage is None or not usage.known or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached, reasoning = usage.cached_tokens, usage.reasoning_tokens
    body = wire.UsageJson(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens or usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=None if cached is None else wire.TokenDetails(cached_tokens=cached),
        completion_tokens_details=None
        if reasoning is None
        else wire.TokenDetails(reasoning_tokens=reasoning),
    )
    return wire.Data(wire.USAGE_MIME, msgspec.json.encode(body))


def encode_model_id(model_id: str) -> str:
    """A name the host can put between slashes of its own, no two models the same."""
    return model_id.replace("%", "%25").replace("/", "%2F")


def encode_model(model: Model) -> wire.ModelInfo:
    """`family` is the whole name without its maker: the host picks its prompts by how it begins."""
    identity, limits, can = model.identity, model.limits, model.capabilities
    prices = model.prices or Prices()
    return wire.ModelInfo(
        id=encode_model_id(model.id),
        model=model.id,
        name=model.name or identity.name,
        family=identity.name,
        version=identity.version or "1",
        max_input_tokens=limits.input,
        max_output_tokens=limits.output,
        context_window=limits.window,
        capabilities=wire.ModelCapabilities(tool_calling=can.tools, image_input=can.images),
        tooltip=model.description or model.id,
        detail=identity.creator or model.owner,
        input_cost=_per_million(prices.input),
        output_cost=_per_million(prices.output),
        cache_cost=_per_million(prices.cache_read),
        cache_write_cost=_per_million(prices.cache_write),
        price_category=prices.category,
        configuration_schema=_effort_picker(model.efforts),
    )


def encode_error(error: BridgeError) -> tuple[str, dict[str, Any]]:
    """A sentence for a person, and the facts for a program."""
    facts = {
        "kind": error.kind,
        "status": error.status,
        "code": error.code,
        "retryAfter": error.retry_after,
        "requestId": error.request_id,
    }
    if isinstance(error, ContextTooLong):
        facts |= {"tokens": error.tokens, "limit": error.limit}
    said = error.message.strip() or "The gateway gave no reason."
    said = said if said[-1] in ".!?”" else f"{said}."
    advice = ADVICE.get(error.kind, "")
    if error.kind == "rate_limited" and error.retry_after:
        advice = f"Try again in {error.retry_after:.0f} s."
    known = {name: value for name, value in facts.items() if value is not None}
    return f"{said} {advice}".strip(), known


def _part(part: Part, model: str) -> wire.Part:
    match part:
        case TextPart(text):
            return wire.Text(text)
        case ThinkingPart(text, id, metadata):
            return wire.Thinking(text, id, dict(metadata) if metadata else None)
        case ToolCallPart(call_id, name, given):
            return wire.ToolCall(call_id, name, _arguments(name, given))
        case DataPart(data, mime) if mime == PACK_MIME:
            return wire.Data(wire.MARKER_MIME, encode_marker(model, data))
        case DataPart(data, mime):
            return wire.Data(mime, data)
        case ToolResultPart(call_id):
            # The host drops it: the tools it runs are its own.
            raise StreamError(f"The gateway answered with the result of a tool call ({call_id}).")


def _arguments(name: str, given: Any) -> dict[str, Any]:
    """The host hands its tools an object, so a call without arguments has an empty one."""
    if isinstance(given, dict):
        return given
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    raise StreamError(f"The model called the tool {name} with arguments that are not a JSON object.")


def _per_million(price: Decimal | None) -> float | None:
    return None if price is None else float(price * MILLION)


def _effort_picker(efforts: tuple[str, ...]) -> wire.Configuration | None:
    if not efforts:
        return None
    return wire.Configuration(
        wire.ConfigurationProperties(
            wire.Effort(
                type="string",
                title="Thinking Effort",
                group="navigation",
                enum=efforts,
                enum_item_labels=tuple(EFFORT_LABELS.get(effort, effort.capitalize()) for effort in efforts),
                enum_descriptions=tuple(EFFORT_WORDS.get(effort, effort) for effort in efforts),
            )
        )
    )
