"""The settings: every value Tollbridge can be told, with its default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.core.addresses import VERCEL, Backend

DEFAULT_ACCOUNT = "default"


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the settings file. What it does not know is a mistake of whoever wrote it."""


class Timeouts(Shape, frozen=True, kw_only=True):
    """Seconds. `idle` is how long a gateway may be silent; 0 is no bound, for `idle` and `total`."""

    connect: float = 15.0
    idle: float = 300.0
    total: float = 0.0


class Account(Shape, frozen=True, kw_only=True):
    """Whom to ask. `key` says where its key comes from, and is never the key itself."""

    base_url: str = VERCEL
    backend: Backend | None = None
    # auto, keyring, none, or environment:NAME
    key: str = "auto"


class Abilities(Shape, frozen=True, kw_only=True):
    """What a model can do, where the gateway is wrong about it; `None` leaves it to the gateway."""

    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    reasoning: bool | None = None


class ModelSettings(Shape, frozen=True, kw_only=True):
    """What is set for the models that a pattern names."""

    name: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    capabilities: Abilities = Abilities()
    # Fields of the request (`temperature`, `reasoning_effort`, `service_tier`…) where the editor sets none.
    parameters: Mapping[str, Any] = {}
    # By provider: `gateway`, `anthropic`, `openai`, `google`… Each is a JSON object, sent as it is.
    provider_options: Mapping[str, Any] = {}


class Settings(Shape, frozen=True, kw_only=True):
    """Everything. `base_url` and `backend` name a gateway without an account."""

    account: str | None = None
    base_url: str | None = None
    backend: Backend | None = None
    model: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    favourites: tuple[str, ...] = ()
    proxy: str | None = None
    allow_http: bool = False
    # Anthropic's context editing, for Claude models on Vercel's gateway.
    context_management: bool = True
    # Ask a gateway that is known to count tokens how long each new conversation is, in the background.
    count_at_gateway: bool = True
    # Where recordings of turns go; none are made where it is not set, or empty.
    record: str | None = None
    record_redact: bool = False
    timeouts: Timeouts = Timeouts()
    accounts: Mapping[str, Account] = {}
    models: Mapping[str, ModelSettings] = {}

    @property
    def record_folder(self) -> Path | None:
        """`~` is the person's home, as a shell would have it."""
        return Path(self.record).expanduser() if self.record else None
