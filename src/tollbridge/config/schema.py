"""How the network is used, as the settings have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tollbridge.types.messages import ChatRequest
from tollbridge.types.urls import VERCEL_URL, Backend

if TYPE_CHECKING:
    from tollbridge.transport.http import Timeouts


# SECTION Patterns that name models: `anthropic/*`, `*-preview`. Upper and lower case are one.

_Value = TypeVar("_Value")


def matches(pattern: str, model: str) -> bool:
    """`*` is anything, `/` too; `?` one character. A name without its maker is enough: `gpt-5`."""
    pattern, model = pattern.lower(), model.lower()
    return fnmatchcase(model, pattern) or (
        "/" not in pattern and fnmatchcase(model.rpartition("/")[2], pattern)
    )


def any_matches(patterns: Iterable[str], model: str) -> bool:
    return any(matches(pattern, model) for pattern in patterns)


def matching(table: Mapping[str, _Value], model: str) -> list[_Value]:
    """The values whose patterns name the model, the most general first: the last word is the closest."""
    found = [(pattern, value) for pattern, value in table.items() if matches(pattern, model)]
    found.sort(key=lambda item: _closeness(item[0]))
    return [value for _, value in found]


def _closeness(pattern: str) -> tuple[bool, int]:
    """How closely a pattern names a model: without wildcards, then by the letters it gives."""
    return not set("*?[") & set(pattern), len(pattern.replace("*", ""))


# SECTION The settings: every value Tollbridge can be told, with its default.

DEFAULT_ACCOUNT = "default"


class SettingsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the settings file. What it does not know is a mistake of whoever wrote it."""


class TimeoutSettings(SettingsTable, frozen=True, kw_only=True):
    """Seconds. `idle` is how long a gateway may be silent; 0 is no bound, for `idle` and `total`."""

    connect: float = 15.0
    idle: float = 300.0
    total: float = 0.0


class AccountSettings(SettingsTable, frozen=True, kw_only=True):
    """Whom to ask. `key` says where its key comes from, and is never the key itself."""

    base_url: str = VERCEL_URL
    backend: Backend | None = None
    # auto, keyring, none, or environment:NAME
    key: str = "auto"


class CapabilitySettings(SettingsTable, frozen=True, kw_only=True):
    """What a model can do, where the gateway is wrong about it; `None` leaves it to the gateway."""

    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    reasoning: bool | None = None


class ModelSettings(SettingsTable, frozen=True, kw_only=True):
    """What is set for the models that a pattern names."""

    name: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    capabilities: CapabilitySettings = CapabilitySettings()
    # Fields of the request (`temperature`, `reasoning_effort`, `service_tier`…) where the editor sets none.
    parameters: Mapping[str, Any] = {}
    # By provider: `gateway`, `anthropic`, `openai`, `google`… Each is a JSON object, sent as it is.
    provider_options: Mapping[str, Any] = {}


class Settings(SettingsTable, frozen=True, kw_only=True):
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
    timeouts: TimeoutSettings = TimeoutSettings()
    accounts: Mapping[str, AccountSettings] = {}
    models: Mapping[str, ModelSettings] = {}

    @property
    def record_folder(self) -> Path | None:
        """`~` is the person's home, as a shell would have it."""
        return Path(self.record).expanduser() if self.record else None


# SECTION The parameters of a request that settings may preset, and what they may be.

# Those that a request knows by name; all others are sent as they are given.
PRESETS = frozenset(
    {
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "reasoning_effort",
        "reasoning_summary",
        "temperature",
        "top_p",
    }
)
_NEVER = frozenset({"model", "messages", "input", "tools", "stream"})
_FIELDS = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}


def about_preset(name: str, value: object) -> str | None:
    """What is wrong with a parameter, if anything is."""
    if name in _NEVER:
        return "it cannot be preset: it is the editor's"
    if name in PRESETS:
        try:
            msgspec.convert(value, _FIELDS[name])
        except msgspec.ValidationError as error:
            return str(error)
    return None


# SECTION How the network is used, as the settings have it.


def http_timeouts(settings: Settings) -> Timeouts:
    """In the settings 0 is no bound; the client says `None` for that."""
    # Not at the top: it loads aiohttp, and settings are read long before anything is asked.
    from tollbridge.transport.http import Timeouts

    times = settings.timeouts
    return Timeouts(connect=times.connect, idle=times.idle or None, total=times.total or None)
