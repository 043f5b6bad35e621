"""Prices of models that their gateway lists without any, from the optional package `genai-prices`.

The package is large (pydantic, and the prices of thousands of models), so it is imported by a thread when a
price is needed for the first time, and never at start-up. See docs/decisions/genai-prices.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.types.models import Model, Prices, PriceTier, identify
from tollbridge.types.urls import is_loopback

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

log = logging.getLogger(__name__)

_PACKAGE = "genai_prices"
# The package's names of creators, where they differ from those in model ids.
_PROVIDERS = {"xai": "x-ai", "mistralai": "mistral", "meta-llama": "meta", "moonshot": "moonshotai"}
# A gateway that lists other providers' models under their full ids.
_RESELLER = "openrouter"
_MILLION, _THOUSAND = Decimal(1_000_000), Decimal(1_000)
# The package's names of the prices that depend on the length of the prompt.
_TOKEN_PRICES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_long": "cache_write_1h_mtok",
}
# More models than gateways list; the cache is cleared then.
_MODEL_LIMIT = 10_000


class PriceLookup:
    """Finds prices once the package is loaded. Nothing waits for that: until then, prices are unknown."""

    def __init__(self) -> None:
        self._snapshot: DataSnapshot | None = None
        self._thread: Thread | None = None
        self._is_tried = False
        self._prices: dict[tuple[str, str], Prices | None] = {}

    def load(self) -> Thread | None:
        """Load the package in the background. Return its thread; `None` if it is not installed."""
        if not self._is_tried:
            self._is_tried = True
            if find_spec(_PACKAGE) is not None:
                self._thread = Thread(target=self._load, name="prices", daemon=True)
                self._thread.start()
        return self._thread

    def add_prices(self, models: Sequence[Model], base_url: str) -> tuple[Model, ...]:
        """Return the models of a list without prices with those that are known. It can take seconds."""
        return tuple(msgspec.structs.replace(model, prices=self.find(model.id, base_url)) for model in models)

    def find(self, model: str, base_url: str) -> Prices | None:
        """Return the prices of a model; `None` if they are unknown or not loaded yet.

        Models of this machine have no price, whatever others charge for a model of that name.
        """
        if is_loopback(urlsplit(base_url).hostname or ""):
            return None
        self.load()
        if self._snapshot is None:
            return None
        key = model, base_url
        if key not in self._prices:
            if len(self._prices) >= _MODEL_LIMIT:
                self._prices.clear()
            self._prices[key] = _find_prices(self._snapshot, model, base_url)
        return self._prices[key]

    def _load(self) -> None:
        try:
            from genai_prices.data_snapshot import get_snapshot

            self._snapshot = get_snapshot()
        except Exception as error:  # noqa: BLE001 - an optional package must not break anything
            log.warning("The prices of genai-prices cannot be read: %r", error)


def _find_prices(snapshot: DataSnapshot, model: str, base_url: str) -> Prices | None:
    """Look a model up at its gateway, then at its creator, then at a reseller with its full id."""
    identity = identify(model)
    creator = (identity.creator or "").lower()
    # The name of the model, and the provider or the URL.
    places: list[tuple[str, str | None, str | None]]
    places = [(model, None, base_url), (identity.name, None, base_url)]
    if creator:
        places += [(identity.name, _PROVIDERS.get(creator, creator), None), (model, _RESELLER, None)]
    else:
        places.append((model, None, None))
    for name, provider, url in places:
        try:
            _, info = snapshot.find_provider_model(name, None, provider, url)
            return _convert(info.get_prices(datetime.now(UTC)))
        except LookupError:
            continue
    return None


def _convert(price: Any) -> Prices | None:
    """Convert the package's prices per million tokens and per thousand searches."""
    fields: dict[str, Decimal] = {}
    tiers: dict[int, dict[str, Decimal]] = {}
    for field, name in _TOKEN_PRICES.items():
        value = getattr(price, name, None)
        if value is None:
            continue
        fields[field] = getattr(value, "base", value) / _MILLION
        for tier in getattr(value, "tiers", ()):
            if field in PriceTier.__struct_fields__:
                # A tier of the package begins above its start.
                tiers.setdefault(tier.start + 1, {})[field] = tier.price / _MILLION
    searches = getattr(price, "web_searches_kcount", None)
    if isinstance(searches, Decimal):
        fields["web_search"] = searches / _THOUSAND
    if "input" not in fields or "output" not in fields:
        return None
    ordered = tuple(PriceTier(start, **prices) for start, prices in sorted(tiers.items()))
    return Prices(**fields, tiers=ordered, source="genai-prices")
