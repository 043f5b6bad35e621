"""The last list of each account, on disk, so that there are models before the network answers."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from tollbridge.protocols.model_list import Endpoints
from tollbridge.types.models import Model

log = logging.getLogger(__name__)

# A list of this size is not a list of models.
SIZE_LIMIT = 32 * 1024 * 1024
# Lists kept; the oldest go. A person has a handful of gateways.
FILE_LIMIT = 32
# A draft of this age is of a process that was killed: to write one takes a moment.
_DRAFT_SECONDS = 60.0
_FORMAT = 1


class ModelSource(Protocol):
    """What the catalogue needs of a client."""

    base_url: str

    async def models(self, *, api_key: str | None = None) -> list[Model]: ...

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None: ...


class Asked(msgspec.Struct, frozen=True):
    """When a gateway was asked for the endpoints of a model, and what it said."""

    at: float
    found: Endpoints | None = None


class CachedModels(msgspec.Struct, frozen=True, kw_only=True):
    """A list, with its gaps filled. `no_endpoints` is when the gateway was found to know nothing of them,
    and `asked` what it said of each model's."""

    base_url: str
    fetched: float
    models: tuple[Model, ...]
    no_endpoints: float | None = None
    asked: Mapping[str, Asked] = {}
    account: str = ""
    format: int = _FORMAT

    @property
    def age(self) -> float:
        """Seconds; a clock that was set back makes a list old, not young for ever."""
        age = time.time() - self.fetched
        return age if age >= 0 else float("inf")


class CatalogCache:
    """A folder of lists, one an account. What cannot be read is missing; what cannot be written is let be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, base_url: str, account: str = "") -> CachedModels | None:
        try:
            with self._path(base_url, account).open("rb") as file:
                kept = msgspec.json.decode(file.read(SIZE_LIMIT), type=CachedModels)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        meant = (base_url, account, _FORMAT)
        return kept if (kept.base_url, kept.account, kept.format) == meant else None

    def put(self, kept: CachedModels) -> None:
        path = self._path(kept.base_url, kept.account)
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(kept))
            draft.replace(path)  # at once: a reader sees the old list or the new one
            self._trim()
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            log.info("the list of models could not be kept in %s: %s", self._folder, error.strerror)

    def _trim(self) -> None:
        lists = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in lists[:-FILE_LIMIT]:
            path.unlink(missing_ok=True)
        for draft in self._folder.glob("*.[0-9]*"):
            if draft.stat().st_mtime < time.time() - _DRAFT_SECONDS:
                draft.unlink(missing_ok=True)

    def _path(self, base_url: str, account: str) -> Path:
        """By the account's name: nothing on disk is made of its key."""
        name = hashlib.sha256(f"{base_url}\n{account}".encode()).hexdigest()[:20]
        return self._folder / f"{name}.json"
