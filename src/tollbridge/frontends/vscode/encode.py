"""Encode parts, usage, models and errors for VS Code."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.wire import encode_marker
from tollbridge.types.errors import BridgeError, BudgetExceeded, ContextTooLong, Kind, StreamError
from tollbridge.types.messages import (
    PACK_MIME,
    DataPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.models import Model, Prices
from tollbridge.types.usage import Usage

log = logging.getLogger(__name__)

MILLION = 1_000_000
# The unit of prices in VS Code: a credit is a cent.
CREDITS = 100
NANO = 1_000_000_000
# The fewest tokens that the system prompt and the tools of VS Code's agent take.
AGENT_PROMPT = 16_000

# What the user can do, by the kind of the error. It is appended to the message of the gateway.
ADVICE: dict[Kind, str] = {
    "authentication": "Check the account's API key.",
    "permission": "The API key does not have access to this model.",
    "not_found": "Choose a model of the gateway's current list.",
    "rate_limited": "Try again later.",
    "budget_exceeded": "Change the budget with `tollbridge budget set`, or allow this request.",
    "context_too_long": "Start a new chat or remove attachments.",
    "overloaded": "Try again in a moment.",
    "network": "Check the account's base URL and the network.",
    "timeout": "Try again, or increase the timeouts.",
    "disconnected": "The partial answer was kept. Try again.",
}

# The same with the names of the extension's commands and settings.
VSCODE_ADVICE: dict[Kind, str] = {
    **ADVICE,
    "authentication": "Check the account's API key with “Tollbridge: Set Up”.",
    "not_found": "Run “Tollbridge: Refresh Models” to update the model list.",
    "budget_exceeded": "Choose “Allow Over Budget Today” to send it, or change tollbridge.budgets.",
    "timeout": "Try again, or increase tollbridge.timeouts.",
}

EFFORT_LABELS = {wire.DEFAULT_EFFORT: "Auto", "xhigh": "Extra High"}
EFFORT_DESCRIPTIONS = {
    wire.DEFAULT_EFFORT: "What the model does if nothing is set",
    "none": "No reasoning",
    "minimal": "Minimal reasoning",
    "low": "Little reasoning, faster answers",
    "medium": "Balance between speed and reasoning",
    "high": "Extensive reasoning",
    "xhigh": "Very extensive reasoning",
    "max": "Maximum reasoning",
}


def encode_parts(parts: Iterable[Part], model: str = "") -> list[wire.Part]:
    """Return the parts for VS Code.

    Args:
        parts: The parts of an answer.
        model: The model that answered. VS Code stores it with the reasoning that must be sent back.

    Raises:
        StreamError: VS Code cannot represent a part.
    """
    return [_encode_part(part, model) for part in parts]


def encode_usage(usage: Usage | None, cost: Decimal | None = None) -> wire.Data | None:
    """Return the part that updates VS Code's context meter, or `None` if the gateway did not report usage.

    Args:
        usage: What the context window contains.
        cost: The cost of the answer in US dollars, if VS Code should show it as credits.
    """
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
        copilot_usage=None if cost is None else wire.CreditUsage(round(cost * CREDITS * NANO)),
    )
    return wire.Data(wire.USAGE_MIME, msgspec.json.encode(body))


def encode_model_id(model_id: str) -> str:
    """Return an id without slashes, because VS Code uses slashes to separate its own prefix."""
    return model_id.replace("/", ":")


def encode_models(models: Iterable[Model]) -> list[wire.ModelInfo]:
    """Return the model information for VS Code. A model that cannot be encoded is left out and logged."""
    infos: dict[str, wire.ModelInfo] = {}
    for model in models:
        try:
            info = encode_model(model)
        except Exception as error:  # noqa: BLE001 - one model never hides the others
            log.warning("left the model %.100r out of the list: %s", model.id, type(error).__name__)
            continue
        if info.id in infos:  # VS Code would show one of the two: `a/b` and `a:b`
            info = msgspec.structs.replace(info, id=quote(model.id, safe=""))
        infos[info.id] = info
    return list(infos.values())


def encode_model(model: Model) -> wire.ModelInfo:
    """Return the model information for VS Code.

    `family` is the full name without the creator, because VS Code chooses its prompts by the start of it.
    """
    identity, limits, capabilities = model.identity, model.limits, model.capabilities
    prices, warnings = model.prices or Prices(), _find_warnings(model)
    # VS Code has one column for long prompts, so it shows the highest prices.
    long = prices.for_prompt(prices.tiers[-1].min_input) if prices.tiers else Prices()
    return wire.ModelInfo(
        id=encode_model_id(model.id),
        model=model.id,
        name=model.name or identity.name,
        family=identity.name,
        version=identity.version or "1",
        max_input_tokens=limits.input,
        max_output_tokens=limits.output,
        context_window=limits.window,
        max_context_window_tokens=limits.window,
        capabilities=wire.ModelCapabilities(tool_calling=capabilities.tools, image_input=capabilities.images),
        tooltip=" ".join(filter(None, (*warnings.values(), model.description or model.id))),
        detail=identity.creator or model.owner,
        input_cost=_to_credits(prices.input),
        output_cost=_to_credits(prices.output),
        cache_cost=_to_credits(prices.cache_read),
        cache_write_cost=_to_credits(prices.cache_write),
        long_context_input_cost=_to_credits(long.input),
        long_context_output_cost=_to_credits(long.output),
        long_context_cache_cost=_to_credits(long.cache_read),
        long_context_cache_write_cost=_to_credits(long.cache_write),
        pricing=_describe_prices(prices),
        price_category=prices.category,
        category="reasoning" if capabilities.reasoning else None,
        warning_text=warnings or None,
        info_text={"prices": f"Prices: {text}."} if (text := _describe_prices(prices)) else None,
        status_icon=wire.ThemeIcon("warning") if warnings else None,
        configuration_schema=_encode_configuration(model),
    )


def encode_error(
    error: BridgeError, advice_by_kind: Mapping[Kind, str] = VSCODE_ADVICE
) -> tuple[str, dict[str, Any]]:
    """Return the message for the user, and the `data` of the JSON-RPC error."""
    data = {
        "kind": error.kind,
        "status": error.status,
        "code": error.code,
        "retryAfter": error.retry_after,
        "requestId": error.request_id,
    }
    if isinstance(error, ContextTooLong):
        data |= {"tokens": error.tokens, "limit": error.limit}
    if isinstance(error, BudgetExceeded):
        figures = {name: getattr(error, name) for name in ("limit", "spent", "reserved", "estimate")}
        data |= {name: None if value is None else f"{value:f}" for name, value in figures.items()}
        data["budget"] = error.budget
    message = error.message.strip() or "The gateway gave no reason."
    message = message if message[-1] in ".!?”" else f"{message}."
    advice = advice_by_kind.get(error.kind, "") if error.advice is None else error.advice
    if error.kind == "rate_limited" and error.retry_after:
        advice = f"Try again in {error.retry_after:.0f} s."
    return f"{message} {advice}".strip(), {name: value for name, value in data.items() if value is not None}


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


def _to_credits(price: Decimal | None) -> float | None:
    """Return a price per token as VS Code shows it: in credits per million tokens."""
    return None if price is None else float(price * MILLION * CREDITS)


def _describe_prices(prices: Prices) -> str | None:
    """Return the prices in US dollars, as a text for users."""
    if prices.input is None or prices.output is None:
        return None
    amounts = {"in": prices.input, "cached": prices.cache_read, "out": prices.output}
    texts = (f"{_format_dollars(price)} {name}" for name, price in amounts.items() if price is not None)
    return f"{', '.join(texts)} per 1M tokens"


def _find_warnings(model: Model) -> dict[str, str]:
    """Return why VS Code cannot use a model, or not well, as texts by the name of the reason."""
    if not model.capabilities.tools:
        return {"tools": "Not offered in the chat: VS Code requires models that call tools."}
    if model.limits.window < AGENT_PROMPT:
        return {"window": f"The agent's own prompt and tools take more than {model.limits.window:,} tokens."}
    return {}


def _format_dollars(price: Decimal) -> str:
    dollars = (price * MILLION).normalize()
    return f"${dollars:.2f}" if dollars == round(dollars, 2) else f"${dollars:f}"


def _encode_configuration(model: Model) -> wire.Configuration | None:
    """Return the schema of what the user can choose next to the model's name, or `None` for nothing."""
    sizes = _encode_context_sizes(model)
    # VS Code shows the chosen values next to the model's name, or the title of a schema if nothing is chosen.
    # In a narrow chat, the name disappears beside two values or a title, and stays beside one value.
    efforts = _encode_efforts(model.efforts, None if sizes else wire.DEFAULT_EFFORT)
    if efforts is None and sizes is None:
        return None
    return wire.Configuration(wire.ConfigurationProperties(efforts, sizes))


def _encode_efforts(efforts: tuple[str, ...], default: str | None) -> wire.Effort | None:
    if not efforts:
        return None
    choices = (wire.DEFAULT_EFFORT, *efforts)
    return wire.Effort(
        type="string",
        title="Thinking Effort",
        group="navigation",
        enum=choices,
        enum_item_labels=tuple(EFFORT_LABELS.get(effort, effort.capitalize()) for effort in choices),
        enum_descriptions=tuple(EFFORT_DESCRIPTIONS.get(effort, effort) for effort in choices),
        default=default,
    )


def _encode_context_sizes(model: Model) -> wire.ContextSize | None:
    """Return the schema of the context size: the longest prompt, after which VS Code summarises the chat."""
    sizes = model.context_sizes
    if not sizes:
        return None
    largest = sizes[-1]
    # The label of the largest size is the window, as models are advertised.
    window = model.context_size or model.limits.window
    return wire.ContextSize(
        type="number",
        title="Context Size",
        group="tokens",
        enum=sizes,
        enum_item_labels=(*map(_format_size, sizes[:-1]), _format_size(window)),
        enum_descriptions=(*("Summarise earlier, at lower cost" for _ in sizes[:-1]), "Longer sessions"),
        default=largest,
    )


def _format_size(tokens: int) -> str:
    """Return a number of tokens in thousands or millions, such as 200K or 1.1M."""
    if tokens >= MILLION:
        return f"{tokens / MILLION:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.0f}K"
