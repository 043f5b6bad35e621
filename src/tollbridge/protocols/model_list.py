"""What a gateway says of the providers behind a model: `GET /v1/models/{creator}/{model}/endpoints`.

The same facts as in the list of models, under other names, once for each provider. They fill the gaps that
the list leaves: a gateway may route to any provider, so the smallest limit and the highest price count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec

from tollbridge.types.errors import StreamError
from tollbridge.types.models import Model, Prices
from tollbridge.types.text import read_json

# SECTION What a gateway says of its models, read leniently: one odd entry never hides the others.

Path = tuple[str, ...]

# Where servers put the same fact, the most trustworthy first: what is loaded now, then what was promised.
WINDOW: tuple[Path, ...] = (
    ("meta", "n_ctx"),  # llama.cpp
    ("loaded_context_length",),  # LM Studio
    ("context_window",),  # Vercel AI Gateway
    ("context_length",),  # OpenRouter and kin
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
}
MODALITIES: tuple[Path, ...] = (
    ("modalities", "input"),
    ("architecture", "input_modalities"),
    ("input_modalities",),
)
# Other spellings of a capability, and the tag they mean.
TAG_OF_MODALITY = {"image": "vision", "file": "file-input", "pdf": "file-input"}
TAG_OF_CAPABILITY = {"vision": "vision", "tools": "tool-use", "tool_use": "tool-use", "thinking": "reasoning"}


def read_models(body: bytes) -> list[Model]:
    """The models of a `GET /v1/models` answer, each named once, in the gateway's order."""
    try:
        answer = read_json(body)
    except ValueError:
        raise StreamError("The gateway's list of models is not JSON.") from None
    entries = answer
    if isinstance(answer, dict):
        entries = answer.get("data", answer.get("models"))
    if not isinstance(entries, list):
        raise StreamError("The gateway's list of models has no `data` list.")
    found = {model.id: model for model in map(read_model, entries) if model}
    return list(found.values())


def read_model(entry: object) -> Model | None:
    """One entry of a list, or `None` where it names no model."""
    if isinstance(entry, str):
        entry = {"id": entry}
    if not isinstance(entry, dict):
        return None
    identifier = _text(entry, "id") or _text(entry, "name") or _text(entry, "model")
    if not identifier:
        return None
    return Model(
        id=identifier,
        name=_text(entry, "name"),
        description=_text(entry, "description"),
        owner=_text(entry, "owned_by"),
        type=_text(entry, "type") or _text(entry, "modelType"),  # as the AI SDK spells it
        created=_count(entry.get("created")),
        context_window=_first_count(entry, WINDOW),
        max_output_tokens=_first_count(entry, OUTPUT),
        tags=_tags(entry),
        parameters=frozenset(_texts(entry.get("supported_parameters"))),
        reasoning_efforts=_efforts(entry),
        prices=_prices(entry.get("pricing")),
    )


def _tags(entry: Mapping[str, Any]) -> frozenset[str]:
    tags = {tag for tag in _texts(entry.get("tags")) if tag}
    tags |= _translated(entry.get("capabilities"), TAG_OF_CAPABILITY)
    for path in MODALITIES:
        tags |= _translated(_at(entry, path), TAG_OF_MODALITY)
    if entry.get("reasoning_options"):
        tags.add("reasoning")
    return frozenset(tags)


def _efforts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    options = entry.get("reasoning_options")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict) and option.get("type") == "effort":
            return tuple(_texts(option.get("values")))
    return ()


def _prices(pricing: object) -> Prices | None:
    if not isinstance(pricing, dict):
        return None
    found = {
        field: next((price for name in names if (price := _price(pricing.get(name))) is not None), None)
        for field, names in PRICES.items()
    }
    return Prices(**found) if any(price is not None for price in found.values()) else None


def _price(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return None
    # A negative price is how some gateways say "it depends".
    return price if price.is_finite() and price >= 0 else None


def _at(entry: Mapping[str, Any], path: Path) -> object:
    value: object = entry
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _first_count(entry: Mapping[str, Any], paths: Iterable[Path]) -> int | None:
    return next((count for path in paths if (count := _count(_at(entry, path)))), None)


def _count(value: object) -> int | None:
    """A positive whole number; gateways write 0 for what they do not know."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if number > 0 else None


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _translated(value: object, table: Mapping[str, str]) -> set[str]:
    if isinstance(value, dict):
        value = [name for name, on in value.items() if on]
    return {table[name] for name in _texts(value) if name in table}


# SECTION What a gateway says of the providers behind a model: `GET /v1/models/{creator}/{model}/endpoints`.
#
# The same facts as in the list of models, under other names, once for each provider. They fill the gaps that
# the list leaves: a gateway may route to any provider, so the smallest limit and the highest price count.

_ACTIVE = 0
_Number = TypeVar("_Number", int, Decimal)


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """What the active providers of a model have in common."""

    providers: tuple[str, ...] = ()
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None
    tags: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()


def read_endpoints(body: bytes) -> Endpoints:
    """Read leniently: one odd provider never hides the others."""
    try:
        answer = read_json(body)
    except ValueError:
        raise StreamError("The gateway's list of endpoints is not JSON.") from None
    data = answer.get("data", answer) if isinstance(answer, dict) else None
    listed = data.get("endpoints") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(listed, list):
        raise StreamError("The gateway's list of endpoints has no `endpoints`.")
    active = [
        entry for entry in listed if isinstance(entry, dict) and entry.get("status", _ACTIVE) == _ACTIVE
    ]
    found = [model for entry in active if (model := read_model({**entry, "id": "endpoint"}))]
    about = read_model({"id": "model", "architecture": data.get("architecture")})
    caching = (
        {"implicit-caching"} if any(entry.get("supports_implicit_caching") for entry in active) else set()
    )
    return Endpoints(
        providers=tuple(name for entry in active if isinstance(name := entry.get("provider_name"), str)),
        context_window=_least(model.context_window for model in found),
        max_output_tokens=_least(model.max_output_tokens for model in found),
        prices=_dearest([model.prices for model in found if model.prices]),
        tags=frozenset((about.tags if about else set()) | caching).union(*(model.tags for model in found)),
        parameters=frozenset().union(*(model.parameters for model in found)),
    )


def fill_from_endpoints(model: Model, endpoints: Endpoints) -> Model:
    """The model with what the list left out. What the list says stays."""
    return msgspec.structs.replace(
        model,
        context_window=model.context_window or endpoints.context_window,
        max_output_tokens=model.max_output_tokens or endpoints.max_output_tokens,
        prices=model.prices or endpoints.prices,
        tags=model.tags | endpoints.tags,
        parameters=model.parameters or endpoints.parameters,
    )


def has_gaps(model: Model) -> bool:
    """Whether the list left out what one needs to know to talk to a model."""
    known = model.context_window and model.max_output_tokens and model.prices and model.parameters
    return model.is_chat_model and not known


def _dearest(prices: list[Prices]) -> Prices | None:
    if not prices:
        return None
    fields = Prices.__struct_fields__
    return Prices(**{name: _most(getattr(price, name) for price in prices) for name in fields})


def _least(numbers: Iterable[_Number | None]) -> _Number | None:
    return min((number for number in numbers if number is not None), default=None)


def _most(numbers: Iterable[_Number | None]) -> _Number | None:
    return max((number for number in numbers if number is not None), default=None)
