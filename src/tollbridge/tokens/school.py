"""Where the weights of every model are kept, between the store and their use."""

from __future__ import annotations

import msgspec

from tollbridge.tokens.estimate import Toolset
from tollbridge.tokens.families import Family, family_of
from tollbridge.tokens.learner import Block, Extra, Weights, extra_prior, text_prior
from tollbridge.tokens.memory import LedgerStore


class School:
    """Weights are shared: what another process learned is taken over at the next `refresh`."""

    def __init__(self, store: LedgerStore, without: frozenset[str] = frozenset()) -> None:
        self._store = store
        self._without = without
        self._changes = store.changes()
        self._weights: dict[str, Weights] = {}
        self._priors: dict[str, Weights] = {}
        self._stored: dict[str, bytes | None] = {}  # as last read or written, by name
        self._prices: dict[str, tuple[float, ...]] = {}  # of a text, by family
        # Counts up whenever a text may count otherwise than before, so that others know when to forget.
        self.lesson = 0

    def refresh(self, *, force: bool = False) -> None:
        """Others write into the store all the time, and rarely what prices anything: that is compared."""
        changes = self._store.changes()
        if not force and changes == self._changes:
            return
        self._changes = changes
        if force or any(self._store.learned(name) != data for name, data in self._stored.items()):
            models = list(self._weights)
            self._weights.clear()
            self._stored.clear()
            for model in models:
                self.weights(model)

    def weights(self, model: str) -> Weights:
        found = self._weights.get(model)
        if found is None:
            found = self._weights[model] = self._load(model)
        return found

    def prior(self, model: str) -> Weights:
        """The weights before anything was learned."""
        found = self._priors.get(model)
        if found is None:
            family = family_of(model)
            found = Weights(text_prior(family, self._without), extra_prior(family.overheads))
            self._priors[model] = found
        return found

    def _load(self, model: str) -> Weights:
        family, prior = family_of(model).name, self.prior(model)
        text, extra = (self._read(name) for name in (f"text {family}", f"extra {model}"))
        weights = Weights(
            (text and Block.unpack(text, len(prior.text.weights))) or prior.text.copy(),
            (extra and Block.unpack(extra, len(Extra))) or prior.extra.copy(),
        )
        self._compare(family, weights)
        return weights

    def _read(self, name: str) -> bytes | None:
        found = self._stored[name] = self._store.learned(name)
        return found

    def _compare(self, family: str, weights: Weights) -> None:
        prices = weights.text_prices
        if self._prices.setdefault(family, prices) != prices:
            self._prices[family] = prices
            self.lesson += 1

    def keep(self, model: str, weights: Weights) -> None:
        family = family_of(model).name
        for name, block in ((f"text {family}", weights.text), (f"extra {model}", weights.extra)):
            data = self._stored[name] = block.pack()
            self._store.put_learned(name, data)
        # Other models of the family read the text's weights anew.
        self._weights = {model: weights}
        self._compare(family, weights)

    def forget(self, model: str) -> Weights:
        """Start this model, and its family, from the prior again."""
        prior = self.prior(model)
        return Weights(prior.text.copy(), prior.extra.copy())

    def toolset(self, family: Family, key: bytes) -> Toolset | None:
        data = self._store.learned(_toolset_name(family, key))
        try:
            return msgspec.msgpack.decode(data, type=Toolset) if data else None
        except msgspec.MsgspecError:
            return None

    def keep_toolset(self, family: Family, key: bytes, toolset: Toolset) -> None:
        name = _toolset_name(family, key)
        if self._store.learned(name) is None:
            self._store.put_learned(name, msgspec.msgpack.encode(toolset))


def _toolset_name(family: Family, key: bytes) -> str:
    return f"tools {family.name} {key.hex()}"
