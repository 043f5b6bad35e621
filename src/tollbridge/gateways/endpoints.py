"""What a gateway says of the providers behind a model: `GET /v1/models/{creator}/{model}/endpoints`.

The same facts as in the list of models, under other names, once for each provider. They fill the gaps that
the list leaves: a gateway may route to any provider, so the smallest limit and the highest price count.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TypeVar

import msgspec

from tollbridge.core.errors import StreamError
from tollbridge.core.json import read_json
from tollbridge.core.models import Model, Prices
from tollbridge.gateways.catalog import read_model

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


def enriched(model: Model, endpoints: Endpoints) -> Model:
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
