"""Cache of model lists on disk, one file per account, so that models are available before the first fetch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from hashlib import blake2s, sha256
from pathlib import Path
from typing import Protocol

import msgspec

from tollbridge.catalog.limits import LIMITS
from tollbridge.protocols.model_list import Endpoints
from tollbridge.transport.files import make_folder, make_private, replace_file
from tollbridge.types.models import Model, Prices

log = logging.getLogger(__name__)

# Increase it when the fields change: files of another format are not read.
_FORMAT = 3
# Bytes of the tag of an API key: enough to tell two keys apart, too few to confirm a guess.
_TAG_SIZE = 4


class ModelSource(Protocol):
    """The part of a client that the catalog uses."""

    base_url: str

    async def models(self, *, api_key: str | None = None) -> list[Model]: ...

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None: ...


class CachedEndpoints(msgspec.Struct, frozen=True):
    """The endpoints of a model, and when they were fetched; `None` if the gateway does not know them."""

    fetched: float
    endpoints: Endpoints | None = None


class CachedModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models of a gateway, as listed for one account, with missing fields filled from their endpoints.

    Attributes:
        fetched: When the list was fetched (seconds since the epoch).
        no_endpoints: When the gateway answered that it has no endpoints resource.
        endpoints: The endpoints of models whose listing had missing fields, by model id.
        key_salt: A random value for the tag, in hexadecimal.
        key_tag: A short digest of the API key that the list was fetched with. Another key of the account can
            be another person's.
    """

    base_url: str
    fetched: float
    models: tuple[Model, ...]
    no_endpoints: float | None = None
    endpoints: Mapping[str, CachedEndpoints] = {}
    account: str = ""
    key_salt: str = ""
    key_tag: str = ""
    format: int = _FORMAT

    @property
    def age(self) -> float:
        """Seconds since the fetch; infinite if the clock was set back, so that the list is fetched again."""
        age = time.time() - self.fetched
        return age if age >= 0 else float("inf")

    def with_key(self, api_key: str | None) -> CachedModels:
        """Return the list with the tag of the key that it was fetched with."""
        salt = os.urandom(blake2s.SALT_SIZE).hex()
        return msgspec.structs.replace(self, key_salt=salt, key_tag=_key_tag(api_key, salt))

    def belongs_to(self, api_key: str | None) -> bool:
        """Return whether the list was fetched with this key."""
        return bool(self.key_tag) and self.key_tag == _key_tag(api_key, self.key_salt)


def _key_tag(api_key: str | None, salt: str) -> str:
    key = (api_key or "").encode("utf-8", "surrogatepass")
    try:
        return blake2s(key, salt=bytes.fromhex(salt), digest_size=_TAG_SIZE).hexdigest()
    except ValueError:  # a damaged file
        return ""


class CatalogCache:
    """A directory of model lists, one file per account.

    A file that cannot be read counts as missing; a list that cannot be written is not cached.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, base_url: str, account: str = "") -> CachedModels | None:
        """Return the cached list of an account."""
        cached = self._read(self._path(base_url, account))
        return cached if cached and (cached.base_url, cached.account) == (base_url, account) else None

    def all(self, base_url: str) -> list[CachedModels]:
        """Return the cached lists of all accounts of a gateway, the oldest first."""
        matching = [cached for cached in self._read_all() if cached.base_url == base_url]
        return sorted(matching, key=lambda cached: cached.fetched)

    def model_ids(self) -> set[str]:
        """Return the models in the cached lists of all gateways."""
        return {model.id for cached in self._read_all() for model in cached.models}

    def _read_all(self) -> list[CachedModels]:
        return list(filter(None, map(self._read, self._folder.glob("*.json"))))

    def put(self, models: CachedModels, api_key: str | None = None) -> None:
        """Write a list with a tag of the key it was fetched with. It replaces the previous one atomically."""
        try:
            make_folder(self._folder)
            replace_file(self._path(models.base_url, models.account), _encode(models.with_key(api_key)))
            self._trim()
        except OSError as error:
            log.info("cannot write the list of models to %s: %s", self._folder, error.strerror)

    def _read(self, path: Path) -> CachedModels | None:
        try:
            with path.open("rb") as file:
                cached = msgspec.json.decode(file.read(LIMITS.file_size), type=CachedModels)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        make_private(path)
        return cached if cached.format == _FORMAT else None

    def _trim(self) -> None:
        paths = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in paths[: -LIMITS.files]:
            path.unlink(missing_ok=True)
        for temporary in self._folder.glob("*.[0-9]*"):
            if temporary.stat().st_mtime < time.time() - LIMITS.temporary:
                temporary.unlink(missing_ok=True)

    def _path(self, base_url: str, account: str) -> Path:
        """Return the file of an account. Its name depends on the account's name, never on its key."""
        name = sha256(f"{base_url}\n{account}".encode("utf-8", "replace")).hexdigest()[:20]
        return self._folder / f"{name}.json"


def _encode(models: CachedModels) -> bytes:
    """Encode a list. A model that cannot be encoded is left out."""
    try:
        return msgspec.json.encode(models)
    except (ValueError, TypeError, OverflowError):
        valid = tuple(filter(_is_valid, models.models))
        log.warning("left %d invalid models out of the cache", len(models.models) - len(valid))
        ids = {model.id for model in valid}
        endpoints = {name: answer for name, answer in models.endpoints.items() if name in ids}
        return msgspec.json.encode(msgspec.structs.replace(models, models=valid, endpoints=endpoints))


def _is_valid(model: Model) -> bool:
    try:
        msgspec.json.encode(model)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


class CachedPrices:
    """Looks up current prices in the cached model lists."""

    def __init__(self, folder: Path) -> None:
        self._cache = CatalogCache(folder)
        self._prices: dict[tuple[str, str], dict[str, Prices]] = {}

    def __call__(self, base_url: str, account: str, model: str) -> Prices | None:
        """Return the prices of a model; `None` if they are unknown."""
        key = base_url, account
        if key not in self._prices:
            # The account's own list counts. Lists of other accounts of the gateway are better than nothing.
            lists = [*self._cache.all(base_url), self._cache.get(*key)]
            models = [listed for entry in lists if entry for listed in entry.models]
            self._prices[key] = {listed.id: listed.prices for listed in models if listed.prices}
        return self._prices[key].get(model)
