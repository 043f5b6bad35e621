"""Convert models to what VS Code's model picker shows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from decimal import Decimal
from urllib.parse import quote

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.types.models import Model, Prices

log = logging.getLogger(__name__)

MILLION = 1_000_000
# The fewest tokens that the system prompt and the tools of VS Code's agent take.
AGENT_PROMPT = 16_000

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


def _to_credits(price: Decimal | None) -> float | None:
    """Return a price per token as VS Code shows it: in credits, which are cents, per million tokens."""
    return None if price is None else float(price * MILLION * 100)


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


def _encode_efforts(efforts: tuple[str, ...], default: str | None) -> wire.Choice | None:
    if not efforts:
        return None
    choices = (wire.DEFAULT_EFFORT, *efforts)
    return wire.Choice(
        type="string",
        title="Thinking Effort",
        group="navigation",
        enum=choices,
        enum_item_labels=tuple(EFFORT_LABELS.get(effort, effort.capitalize()) for effort in choices),
        enum_descriptions=tuple(EFFORT_DESCRIPTIONS.get(effort, effort) for effort in choices),
        default=default,
    )


def _encode_context_sizes(model: Model) -> wire.Choice | None:
    """Return the schema of the context size: the longest prompt, after which VS Code summarizes the chat."""
    sizes = model.context_sizes
    if not sizes:
        return None
    # The label of the largest size is the window, as models are advertised.
    window = model.context_size or model.limits.window
    return wire.Choice(
        type="number",
        title="Context Size",
        group="tokens",
        enum=sizes,
        enum_item_labels=(*map(_format_size, sizes[:-1]), _format_size(window)),
        enum_descriptions=(*("Summarise earlier, at lower cost" for _ in sizes[:-1]), "Longer sessions"),
        default=sizes[-1],
    )


def _format_size(tokens: int) -> str:
    """Return a number of tokens in thousands or millions, such as 200K or 1.1M."""
    if tokens >= MILLION:
        return f"{tokens / MILLION:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.0f}K"
