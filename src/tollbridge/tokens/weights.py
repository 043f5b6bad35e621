"""The learned weights of every model and provider, cached between the store and their use."""

from __future__ import annotations

from functools import cached_property

import msgspec

from tollbridge.tokens.features import TokenTable, shipped_table
from tollbridge.tokens.learner import Block, TextWeights, Weights, extra_prior, text_prior, unpack_scale
from tollbridge.tokens.limits import LIMITS
from tollbridge.tokens.prompts import Toolset, scope_of
from tollbridge.tokens.records import LedgerChanges, LedgerStore
from tollbridge.tokens.tokenizers import Family, family_of

# A provider that serves a model for the first time starts from what was learned of the model elsewhere, with
# this share of the initial covariance added.
_NEW_PROVIDER_DOUBT = 0.1


class WeightStore:
    """The weights of every model and provider, cached between the store and their use.

    Processes share the weights: `refresh` reads what other processes have learned.
    """

    def __init__(self, store: LedgerStore, table: TokenTable | None = None) -> None:
        self._store = store
        self._given_table = table
        self.version = -1  # of the cached weights in the store; before the first `refresh`, unknown
        self._changes = LedgerChanges()
        self._weights: dict[tuple[str, str], Weights] = {}
        self._priors: dict[str, Weights] = {}
        self._stored: dict[str, bytes | None] = {}  # as last read or written, by name
        self._text_weights: dict[str, tuple[float, ...]] = {}  # `Weights.text_weights` by family
        # Incremented whenever the count of a text may have changed, so that callers can drop cached counts.
        self.revision = 0

    @cached_property
    def _table(self) -> TokenTable:
        return self._given_table or shipped_table()

    @cached_property
    def _table_digest(self) -> str:
        return self._table.digest

    def refresh(self) -> None:
        """Read the weights again if another process has changed them."""
        version = self._store.version()
        if version != self.version:
            self.version = version
            if any(self._store.learned(name) != data for name, data in self._stored.items()):
                self.reload()

    def begin(self) -> LedgerChanges:
        """Read what other processes have learned, and return an object that all changes are added to."""
        self.refresh()
        self._changes = LedgerChanges(self.version)
        return self._changes

    def forget(self) -> None:
        """Drop the cached weights, so that those of the store are read."""
        self._weights.clear()
        self._stored.clear()

    def reload(self) -> None:
        """Read all weights again that are cached, so that `revision` is right for them."""
        scopes = list(self._weights)
        self.forget()
        self.version = self._store.version()
        for model, provider in scopes:
            self.weights(model, provider)

    def weights(self, model: str, provider: str = "") -> Weights:
        """Return the weights of a model, as one provider serves it, or of its latest provider."""
        weights = self._weights.get((model, provider))
        if weights is None:
            weights = self._weights[model, provider] = self._load(model, provider)
        return weights

    def prior(self, model: str) -> Weights:
        """Return the weights before anything was learned."""
        weights = self._priors.get(model)
        if weights is None:
            family = family_of(model)
            text = TextWeights(text_prior(family, None if family.vocabulary else self._table))
            weights = self._priors[model] = Weights(text, extra_prior(family.overheads))
        return weights

    def providers(self, model: str) -> list[str]:
        """Return the latest providers of a model, the latest first."""
        return (self._read(f"providers {model}") or b"").decode().split("\n")

    def add_provider(self, model: str, provider: str) -> None:
        """Note that a provider has served a model. One without a name is forgotten when another has one."""
        previous = self.providers(model)
        if previous[0] != provider:
            latest = [provider, *(name for name in previous if name and name != provider)]
            self._save(f"providers {model}", "\n".join(latest[: LIMITS.providers]).encode())

    def _load(self, model: str, provider: str) -> Weights:
        family, prior = family_of(model), self.prior(model)
        data, is_own = self._read_scoped(self._text_name(family), provider)
        text = (TextWeights.unpack(data, prior.text.prior) if data else None) or prior.text.copy()
        if data and not is_own:
            text.block = text.block.widened(prior.text.block, _NEW_PROVIDER_DOUBT)
        data, is_own = self._read_scoped(f"extra {model}", provider)
        extra = (Block.unpack(data, len(prior.extra.values)) if data else None) or prior.extra.copy()
        if data and not is_own:
            extra = extra.widened(prior.extra, _NEW_PROVIDER_DOUBT)
        scale = unpack_scale(self._read_scoped(f"scale {model}", provider)[0] or b"")
        is_learned = self._read(f"extra {model}") is not None
        weights = Weights(text, extra, error_scale=scale, is_learned=is_learned)
        if not provider:
            self._update_text_weights(family.name, weights)
        return weights

    def _read_scoped(self, name: str, provider: str) -> tuple[bytes | None, bool]:
        """Return what was learned of a provider, or else of the latest one, and whether it is the former."""
        data = self._read(scope_of(name, provider))
        return (data, True) if data or not provider else (self._read(name), False)

    def _text_name(self, family: Family) -> str:
        # The parameters have a meaning only with the table they were learned with.
        return f"text {family.name}" if family.vocabulary else f"text {family.name} {self._table_digest}"

    def _read(self, name: str) -> bytes | None:
        if name not in self._stored:
            self._stored[name] = self._store.learned(name)
        return self._stored[name]

    def _save(self, name: str, data: bytes) -> None:
        self._stored[name] = self._changes.learned[name] = data

    def _update_text_weights(self, family: str, weights: Weights) -> None:
        text_weights = weights.text_weights
        if self._text_weights.setdefault(family, text_weights) != text_weights:
            self._text_weights[family] = text_weights
            self.revision += 1

    def save(self, model: str, provider: str, weights: Weights) -> None:
        """Change the weights of a model. Those of its text are shared by all models of its family."""
        family = family_of(model)
        rows = {
            self._text_name(family): weights.text.pack(),
            f"extra {model}": weights.extra.pack(),
            f"scale {model}": weights.pack_scale(),
        }
        for name, data in rows.items():
            self._save(name, data)
            if provider:
                self._save(scope_of(name, provider), data)
        # The other models of the family load the new text weights when they are used next.
        self._weights = {(model, provider): weights}
        self._update_text_weights(family.name, weights)

    def initial(self, model: str) -> Weights:
        """Return a modifiable copy of the prior, to learn this model and its family from the start again."""
        prior = self.prior(model)
        return Weights(prior.text.copy(), prior.extra.copy())

    def toolset(self, family: Family, key: bytes) -> Toolset | None:
        data = self._store.toolset(self._toolset_name(family, key))
        try:
            return msgspec.msgpack.decode(data, type=Toolset) if data else None
        except msgspec.MsgspecError:
            return None

    def save_toolset(self, family: Family, key: bytes, toolset: Toolset) -> None:
        name = self._toolset_name(family, key)
        if self._store.toolset(name) is None:
            self._changes.toolsets[name] = msgspec.msgpack.encode(toolset)

    def _toolset_name(self, family: Family, key: bytes) -> str:
        return f"{self._text_name(family)} {key.hex()}"
