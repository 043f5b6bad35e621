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
        # Counts up with every change of any weights, so that others know when to forget a sum.
        self.lesson = 0

    def refresh(self, *, force: bool = False) -> None:
        changes = self._store.changes()
        if force or changes != self._changes:
            self._changes = changes
            self._weights.clear()
            self.lesson += 1

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
        family, prior = family_of(model), self.prior(model)
        text = self._store.learned(f"text {family.name}")
        extra = self._store.learned(f"extra {model}")
        return Weights(
            (text and Block.unpack(text, len(prior.text.weights))) or prior.text.copy(),
            (extra and Block.unpack(extra, len(Extra))) or prior.extra.copy(),
        )

    def keep(self, model: str, weights: Weights) -> None:
        family = family_of(model).name
        self._store.put_learned(f"text {family}", weights.text.pack())
        self._store.put_learned(f"extra {model}", weights.extra.pack())
        # Other models of the family read the text's weights anew.
        self._weights = {model: weights}
        self.lesson += 1

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
