"""Decode model lists (`GET /v1/models`) and the endpoints of a model.

Both are read leniently: an invalid value counts as unknown, and an entry that cannot be read is left out and
does not affect the others. Texts, lists and numbers have limits, so that no entry makes the program slow.

`GET /v1/models/{creator}/{model}/endpoints` lists the providers of a model, with the same properties as in
the model list under other names. They supply values that the list lacks. A gateway can route a request to
any provider, so the lowest limit and the highest price are used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from tollbridge.types.errors import StreamError
from tollbridge.types.events import parse_amount
from tollbridge.types.models import ID_LIMIT, TOKEN_LIMIT, Model, Prices, PriceTier, identify
from tollbridge.types.text import join_escaped_surrogates, read_json, replace_surrogates

log = logging.getLogger(__name__)

Path = tuple[str, ...]

# The largest gateways list about a thousand models. Further entries are ignored.
MODEL_LIMIT = 5_000
# Longer names and descriptions are truncated (characters). A model whose id is longer than `ID_LIMIT` is left
# out, because a part of an id is not an id.
NAME_LIMIT = 200
DESCRIPTION_LIMIT = 2_000
# Names of capabilities, parameters and efforts: how many, and how long.
TAG_LIMIT = 100
TAG_LENGTH_LIMIT = 100
# The digits of a number that is a text.
_DIGIT_LIMIT = 40
# Prices outside this range, in powers of ten of US dollars per token, are wrong.
_PRICE_EXPONENTS = range(-30, 4)

# Where servers put the same value, the most reliable first: the loaded size before the advertised one.
WINDOW: tuple[Path, ...] = (
    ("meta", "n_ctx"),  # llama.cpp
    ("loaded_context_length",),  # LM Studio
    ("context_window",),  # Vercel AI Gateway
    ("context_length",),  # OpenRouter and others
    ("max_model_len",),  # vLLM
    ("max_context_length",),
    ("top_provider", "context_length"),
)
OUTPUT: tuple[Path, ...] = (
    ("max_tokens",),
    ("max_output_tokens",),
    ("max_completion_tokens",),
    ("top_provider", "max_completion_tokens"),
)
PRICES: dict[str, tuple[str, ...]] = {
    "input": ("input", "prompt"),
    "output": ("output", "completion"),
    "cache_read": ("input_cache_read",),
    "cache_write": ("input_cache_write",),
    "cache_write_long": ("input_cache_write_1h",),  # OpenRouter
    "reasoning": ("internal_reasoning",),  # OpenRouter
    "image": ("image",),
    "web_search": ("web_search",),
}
# The prices for long prompts at Vercel AI Gateway: a list of `{cost, min, max}` for each price. OpenRouter
# has `overrides`, a list of price objects.
TIERS = {
    "input": "input_tiers",
    "output": "output_tiers",
    "cache_read": "input_cache_read_tiers",
    "cache_write": "input_cache_write_tiers",
}
_TIER_LIMIT = 10
# A web search costs about a cent. Gateways that list a price of a dollar or more mean a thousand searches.
_SEARCHES = 1_000
# Anthropic's price of a cache write that lasts an hour, in input prices. Few lists have it.
_LONG_WRITE = 2
MODALITIES: tuple[Path, ...] = (
    ("modalities", "input"),
    ("architecture", "input_modalities"),
    ("input_modalities",),
)
# The tag for a modality or a capability.
TAG_OF_MODALITY = {"image": "vision", "file": "file-input", "pdf": "file-input"}
TAG_OF_CAPABILITY = {"vision": "vision", "tools": "tool-use", "tool_use": "tool-use", "thinking": "reasoning"}


class _List(msgspec.Struct, frozen=True):
    """A model list whose entries are not decoded yet. `models` is Ollama's name."""

    data: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    models: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


_decode_list = msgspec.json.Decoder(_List | list[msgspec.Raw]).decode


def read_models(body: bytes) -> list[Model]:
    """Return the models of a `GET /v1/models` response, in the order of the gateway, without duplicates.

    Raises:
        StreamError: The body is not a model list.
    """
    entries = _split_list(body)
    models: dict[str, Model] = {}
    unreadable: list[str] = []  # the reasons
    for entry in entries[:MODEL_LIMIT]:
        try:
            model = read_model(read_json(bytes(entry)))
        except Exception as error:  # noqa: BLE001 - one entry, whatever it contains, never hides the others
            unreadable.append(f"{type(error).__name__}: {error}"[:NAME_LIMIT])
            continue
        if model:
            models[model.id] = model
    if unreadable:
        log.warning("ignored %d unreadable entries of the model list (%s)", len(unreadable), unreadable[0])
    if len(entries) > MODEL_LIMIT:
        log.warning("the model list has %d entries; only the first %d are used", len(entries), MODEL_LIMIT)
    return list(models.values())


def read_only_page(body: bytes) -> tuple[list[Model], None]:
    """Return the models of a list that has no further pages."""
    return read_models(body), None


def _split_list(body: bytes) -> list[msgspec.Raw]:
    """Return the entries of a model list as JSON text.

    Splitting is fast, so that a large list can be decoded entry by entry on another thread.
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            answer = _decode_list(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # also because of a lone surrogate in any entry
            answer = _decode_list(join_escaped_surrogates(body))
    except msgspec.ValidationError:
        raise StreamError("The gateway's model list has no `data` list.") from None
    except (msgspec.DecodeError, RecursionError):
        raise StreamError("The gateway's model list is not JSON.") from None
    if not isinstance(answer, list):
        answer = answer.models if isinstance(answer.data, msgspec.UnsetType) else answer.data
    if not isinstance(answer, list):
        raise StreamError("The gateway's model list has no `data` list.")
    return answer


def read_model(entry: object) -> Model | None:
    """Return the model of one list entry, or `None` if the entry has no valid model id."""
    if isinstance(entry, str):
        entry = {"id": entry}
    if not isinstance(entry, dict):
        return None
    identifier = _text(entry, "id") or _text(entry, "name") or _text(entry, "model")
    if not identifier or len(identifier) > ID_LIMIT:
        return None
    return Model(
        id=identifier,
        name=_text(entry, "name", NAME_LIMIT),
        description=_text(entry, "description", DESCRIPTION_LIMIT),
        owner=_text(entry, "owned_by", NAME_LIMIT),
        # The second is the AI SDK's name.
        type=_text(entry, "type", NAME_LIMIT) or _text(entry, "modelType", NAME_LIMIT),
        created=_parse_count(entry.get("created")),
        context_window=_first_count(entry, WINDOW),
        max_output_tokens=_first_count(entry, OUTPUT),
        tags=_read_tags(entry),
        parameters=frozenset(_texts(entry.get("supported_parameters"))),
        reasoning_efforts=_read_efforts(entry),
        prices=_read_prices(entry.get("pricing"), identifier),
    )


def _read_tags(entry: Mapping[str, Any]) -> frozenset[str]:
    tags = {tag for tag in _texts(entry.get("tags")) if tag}
    tags |= _map_names(entry.get("capabilities"), TAG_OF_CAPABILITY)
    for path in MODALITIES:
        tags |= _map_names(_get_path(entry, path), TAG_OF_MODALITY)
    if entry.get("reasoning_options"):
        tags.add("reasoning")
    return frozenset(tags)


def _read_efforts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    options = entry.get("reasoning_options")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict) and option.get("type") == "effort":
            return tuple(_texts(option.get("values")))
    return ()


def _read_prices(pricing: object, model_id: str) -> Prices | None:
    if not isinstance(pricing, dict):
        return None
    prices: dict[str, Any] = {
        field: next((price for name in names if (price := _parse_price(pricing.get(name))) is not None), None)
        for field, names in PRICES.items()
    }
    tiers = _read_tiers(pricing)
    for tier in tiers:
        if tier.min_input == 0:  # some models have their prices only here
            for field in TIERS:
                prices[field] = getattr(tier, field) if prices[field] is None else prices[field]
    if all(price is None for price in prices.values()):
        return None
    if prices["web_search"] is not None and prices["web_search"] >= 1:
        prices["web_search"] /= _SEARCHES
    if "prompt" in pricing:  # OpenRouter: the price is that of an image in the input
        prices["image"] = None
    if not prices["reasoning"]:  # OpenRouter's 0 means that there is no extra price
        prices["reasoning"] = None
    if prices["cache_write_long"] is None and prices["input"] is not None and identify(model_id).is_claude:
        prices["cache_write_long"] = _LONG_WRITE * prices["input"]
    return Prices(**prices, tiers=tuple(tier for tier in tiers if tier.min_input))


def _read_tiers(pricing: Mapping[str, Any]) -> list[PriceTier]:
    tiers: dict[int, dict[str, Decimal]] = {}
    for field, name in TIERS.items():
        for entry in _entries(pricing.get(name)):
            price, start = _parse_price(entry.get("cost")), _parse_count(entry.get("min")) or 0
            if price is not None:
                tiers.setdefault(start, {})[field] = price
    for entry in _entries(pricing.get("overrides")):
        start = _parse_count(entry.get("min_prompt_tokens")) or 0
        if not start or any(name.startswith("utc") for name in entry):  # prices by the time of day
            continue
        for field in TIERS:
            for name in PRICES[field]:
                if (price := _parse_price(entry.get(name))) is not None:
                    tiers.setdefault(start, {})[field] = price
    return [PriceTier(start, **prices) for start, prices in sorted(tiers.items())]


def _entries(value: object) -> list[Mapping[str, Any]]:
    entries = value[:_TIER_LIMIT] if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _parse_price(value: object) -> Decimal | None:
    # Some gateways use a negative price for a variable price, which is unknown.
    price = parse_amount(value)
    return price if not price or price.adjusted() in _PRICE_EXPONENTS else None


def _get_path(entry: Mapping[str, Any], path: Path) -> object:
    value: object = entry
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _first_count(entry: Mapping[str, Any], paths: Iterable[Path]) -> int | None:
    return next((count for path in paths if (count := _parse_count(_get_path(entry, path)))), None)


def _parse_count(value: object) -> int | None:
    """Return a positive integer of a plausible size, or `None`. Gateways use 0 for unknown values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > _DIGIT_LIMIT:
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number <= TOKEN_LIMIT else None


def _text(entry: Mapping[str, Any], key: str, limit: int | None = None) -> str | None:
    value = entry.get(key)
    return replace_surrogates(value[:limit].strip()) or None if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return [replace_surrogates(text) for text in texts[:TAG_LIMIT] if len(text) <= TAG_LENGTH_LIMIT]


def _map_names(value: object, table: Mapping[str, str]) -> set[str]:
    if isinstance(value, dict):
        value = [name for name, on in list(value.items())[:TAG_LIMIT] if on]
    return {table[name] for name in _texts(value) if name in table}


_Number = TypeVar("_Number", int, Decimal)


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The combined properties of the active providers of a model."""

    providers: tuple[str, ...] = ()
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None
    tags: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()


def read_endpoints(body: bytes) -> Endpoints:
    """Return the combined properties of the active providers in an endpoints response.

    Raises:
        StreamError: The body is not an endpoints response.
    """
    try:
        answer = read_json(body)
    except ValueError:
        raise StreamError("The gateway's list of endpoints is not JSON.") from None
    data = answer.get("data", answer) if isinstance(answer, dict) else None
    entries = data.get("endpoints") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(entries, list):
        raise StreamError("The gateway's list of endpoints has no `endpoints`.")
    entries = [entry for entry in entries[:TAG_LIMIT] if isinstance(entry, dict)]
    active = [entry for entry in entries if entry.get("status", 0) == 0]
    models = [model for entry in active if (model := read_model({**entry, "id": "endpoint"}))]
    shared = read_model({"id": "model", "architecture": data.get("architecture")})
    caching = (
        {"implicit-caching"} if any(entry.get("supports_implicit_caching") for entry in active) else set()
    )
    return Endpoints(
        providers=tuple(name for entry in active if (name := _text(entry, "provider_name", NAME_LIMIT))),
        context_window=min(_known(model.context_window for model in models), default=None),
        max_output_tokens=min(_known(model.max_output_tokens for model in models), default=None),
        prices=_max_prices([model.prices for model in models if model.prices]),
        tags=frozenset((shared.tags if shared else set()) | caching).union(*(model.tags for model in models)),
        parameters=frozenset().union(*(model.parameters for model in models)),
    )


def fill_from_endpoints(model: Model, endpoints: Endpoints) -> Model:
    """Return the model with missing values taken from its endpoints."""
    return msgspec.structs.replace(
        model,
        context_window=model.context_window or endpoints.context_window,
        max_output_tokens=model.max_output_tokens or endpoints.max_output_tokens,
        prices=model.prices or endpoints.prices,
        tags=model.tags | endpoints.tags,
        parameters=model.parameters or endpoints.parameters,
    )


def has_gaps(model: Model) -> bool:
    """Return whether a chat model lacks a value that its endpoints can supply."""
    is_complete = model.context_window and model.max_output_tokens and model.prices and model.parameters
    return model.is_chat_model and not is_complete


def _max_prices(prices: list[Prices]) -> Prices | None:
    if not prices:
        return None
    highest: dict[str, Any] = {
        name: max(_known(getattr(price, name) for price in prices), default=None)
        for name in Prices.__struct_fields__
        if name not in ("tiers", "source")
    }
    tiers = max((price.tiers for price in prices), key=lambda tiers: max(map(_tier_price, tiers), default=0))
    return Prices(**highest, tiers=tiers)


def _tier_price(tier: PriceTier) -> Decimal:
    return (tier.input or Decimal(0)) + (tier.output or Decimal(0))


def _known(numbers: Iterable[_Number | None]) -> list[_Number]:
    return [number for number in numbers if number is not None]
