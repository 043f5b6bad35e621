"""The settings: their schema, the model name patterns in it, and what they add to a request.

Also the account with all of its fields resolved, and the rules for extra request headers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from tollbridge.protocols import Backend
from tollbridge.transport.retry import Timeouts
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import identify
from tollbridge.types.text import write_json
from tollbridge.types.urls import VERCEL_HOST, VERCEL_URL

_Value = TypeVar("_Value")

DEFAULT_ACCOUNT = "default"
# More than parallel agents send, and far less than a program that repeats a failing request.
DEFAULT_REQUESTS_PER_MINUTE = 300


# --- The settings ---


class SettingsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the tables in the settings file. Unknown fields are errors."""


class TimeoutSettings(SettingsTable, frozen=True, kw_only=True):
    """Timeouts in seconds.

    `idle` is the longest time without data from the gateway. For `idle` and `total`, 0 means no limit.
    """

    connect: float = 15.0
    idle: float = 300.0
    total: float = 0.0


class SecretHeader(SettingsTable, frozen=True, kw_only=True):
    """The source of a header's value: `environment:NAME` or `keyring:NAME`; never the value itself."""

    secret: str


# Extra request headers by name. The value is a text, or the source of a secret.
Headers = Mapping[str, str | SecretHeader]


class AccountSettings(SettingsTable, frozen=True, kw_only=True):
    """A gateway, the source of its API key, and extra headers for its requests.

    `key` is `auto`, `keyring`, `none` or `environment:NAME`; it never contains the key itself. `auth` is how
    the key is sent, if the protocol leaves a choice (`Protocol.auth`).
    """

    base_url: str = VERCEL_URL
    backend: Backend | None = None
    key: str = "auto"
    headers: Headers = {}
    auth: str | None = None


class CapabilitySettings(SettingsTable, frozen=True, kw_only=True):
    """Corrections to the capabilities that a gateway reports for a model; `None` keeps its value."""

    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    reasoning: bool | None = None


class ModelSettings(SettingsTable, frozen=True, kw_only=True):
    """Settings for the models that match a pattern.

    Attributes:
        context_size: The longest prompt that editors should send, in tokens; they summarise a conversation
            before it gets longer. By default, the context window less room for an answer.
        parameters: Default request fields (`temperature`, `reasoning_effort`, `service_tier`…), used unless
            the editor sets them.
        provider_options: A JSON object per provider (`gateway`, `anthropic`, `openai`, `google`…), sent
            unchanged.
    """

    name: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    context_size: int | None = None
    capabilities: CapabilitySettings = CapabilitySettings()
    parameters: Mapping[str, Any] = {}
    provider_options: Mapping[str, Any] = {}


class AccountBudgets(SettingsTable, frozen=True, kw_only=True):
    """The budgets of one account in US dollars; `None` is no limit."""

    day: Decimal | None = None
    month: Decimal | None = None


class BudgetSettings(SettingsTable, frozen=True, kw_only=True):
    """Limits of what requests may cost, in US dollars; `None` is no limit. See docs/budgets.md.

    Attributes:
        day: The limit of a calendar day, by the local clock.
        month: The limit of a calendar month.
        conversation: The limit of each conversation.
        cost_per_hour: The limit of the last 60 minutes, against programs that run away.
        requests_per_minute: The limit of attempts within 60 seconds; 0 is no limit. By default it is
            `DEFAULT_REQUESTS_PER_MINUTE` if any budget is set, and otherwise none.
        unknown_prices: What to do with a request whose price is not known while a budget is set.
        accounts: The budgets of single accounts, by account name or base URL.
    """

    day: Decimal | None = None
    month: Decimal | None = None
    conversation: Decimal | None = None
    cost_per_hour: Decimal | None = None
    requests_per_minute: int | None = None
    unknown_prices: Literal["refuse", "allow"] = "refuse"
    accounts: Mapping[str, AccountBudgets] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is anything to check before a request is sent."""
        limits = [self.day, self.month, self.conversation, self.cost_per_hour]
        limits += [limit for account in self.accounts.values() for limit in (account.day, account.month)]
        return bool(self.requests_per_minute) or any(limit is not None for limit in limits)


class Settings(SettingsTable, frozen=True, kw_only=True):
    """All settings.

    Attributes:
        base_url: A gateway to use without an account; `backend` is its protocol, `headers` are its headers.
        aliases: Model names that callers of the local server use, with the gateway's names for them.
        context_management: Use Anthropic's context editing for long conversations with Claude models on
            Vercel AI Gateway.
        count_at_gateway: Use the gateway's token-count endpoint, if any, for each new conversation, in the
            background.
        prompt_caching: Ask gateways and providers that need it to cache prompts.
        keep_conversations: Keep the conversations of `ask` and `chat`, for `--continue` and `tollbridge log`.
        prompt_history: Keep the prompts of `chat` for the next one.
        record: The folder for recordings; nothing is recorded if it is unset or empty.
        record_redact: Remove message content from recordings.
        budgets: Limits of what requests may cost.
        models: Settings by model name or pattern.
    """

    account: str | None = None
    base_url: str | None = None
    backend: Backend | None = None
    headers: Headers = {}
    model: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    favourites: tuple[str, ...] = ()
    aliases: Mapping[str, str] = {}
    proxy: str | None = None
    allow_http: bool = False
    context_management: bool = True
    count_at_gateway: bool = True
    prompt_caching: bool = True
    keep_conversations: bool = False
    prompt_history: bool = True
    record: str | None = None
    record_redact: bool = False
    timeouts: TimeoutSettings = TimeoutSettings()
    budgets: BudgetSettings = BudgetSettings()
    accounts: Mapping[str, AccountSettings] = {}
    models: Mapping[str, ModelSettings] = {}

    @property
    def record_folder(self) -> Path | None:
        """The folder for recordings, with `~` expanded.

        Raises:
            RuntimeError: If the home directory cannot be determined.
        """
        return Path(self.record).expanduser() if self.record else None


def http_timeouts(settings: Settings) -> Timeouts:
    """Convert the timeout settings to those of the HTTP client, which uses `None` for no limit."""
    timeouts = settings.timeouts
    return Timeouts(connect=timeouts.connect, idle=timeouts.idle or None, total=timeouts.total or None)


class Account(msgspec.Struct, frozen=True):
    """An account with all of its fields resolved.

    Attributes:
        key: Where the API key comes from: `auto`, `keyring`, `none` or `environment:NAME`.
        by_default: True if no source names an account or a gateway, so Vercel AI Gateway is used.
        selected: True for the account in use. Only this account may use `TOLLBRIDGE_API_KEY`.
        headers: Extra headers for its requests. Secret ones have the source of their value.
        auth: How the key is sent, if the protocol leaves a choice; by default as the protocol says.
        anonymous: True if the name does not identify the account at the gateway. Its model lists are kept in
            memory only.
    """

    name: str
    base_url: str
    backend: Backend
    key: str
    by_default: bool = False
    selected: bool = True
    auth: str | None = None
    anonymous: bool = False
    # The key itself, if it was looked up. It is never shown or stored.
    api_key: str | None = None
    headers: Headers = {}

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.base_url!r})"

    @property
    def list_name(self) -> str | None:
        """The name under which the model list is cached on disk; `None` if it is not."""
        return None if self.anonymous else self.name


# --- Patterns for model names: `anthropic/*`, `*-preview` ---


def matches(pattern: str, model: str) -> bool:
    """Return whether a model name matches a pattern, ignoring case.

    `*` matches any characters, including `/`; `?` matches one character. A pattern without `/` also matches
    the name without its provider: `gpt-5` matches `openai/gpt-5`.
    """
    pattern, model = pattern.lower(), model.lower()
    return fnmatchcase(model, pattern) or (
        "/" not in pattern and fnmatchcase(model.rpartition("/")[2], pattern)
    )


def any_matches(patterns: Iterable[str], model: str) -> bool:
    return any(matches(pattern, model) for pattern in patterns)


def matching(table: Mapping[str, _Value], model: str) -> list[_Value]:
    """Return the values whose patterns match the model, from the most general to the most specific."""
    entries = [(pattern, value) for pattern, value in table.items() if matches(pattern, model)]
    entries.sort(key=lambda entry: _specificity(entry[0]))
    return [value for _, value in entries]


def _specificity(pattern: str) -> tuple[bool, int]:
    """Return a sort key: patterns without wildcards are the most specific, then the longer ones."""
    return not set("*?[") & set(pattern), len(pattern.replace("*", ""))


# --- Request parameters in the settings ---

# The parameters that are fields of `ChatRequest`; all others are sent unchanged.
REQUEST_PARAMETERS = frozenset(
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
_EDITOR_PARAMETERS = frozenset({"model", "messages", "input", "tools", "stream"})
_REQUEST_TYPES = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}


def parameter_error(name: str, value: object) -> str | None:
    """Return why a request parameter is not valid in the settings, or `None` if it is valid."""
    if name in _EDITOR_PARAMETERS:
        return "cannot be set here; the editor controls it"
    if name in REQUEST_PARAMETERS:
        try:
            msgspec.convert(value, _REQUEST_TYPES[name])
        except msgspec.ValidationError as error:
            return describe_mismatch(str(error))
    return None


# --- Messages about values of the wrong type ---

_TYPE_MISMATCH = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
# The types as msgspec names them, for people who do not know Python.
_TYPE_NAMES = {
    "array": "a list",
    "bool": "a boolean",
    "decimal": "a number",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "a table",
    "str": "a string",
}
# The types whose values are named instead, if one is expected.
_VALUES = {"bool": "true or false"}


def describe_mismatch(message: str) -> str:
    """Rewrite a validation message of msgspec without Python's type names.

    For example, "Expected `float | null`, got `str`" becomes "expected a number, got a string".
    """
    return _TYPE_MISMATCH.sub(
        lambda match: f"expected {_type_names(match[1], _VALUES)}, got {_type_names(match[2])}",
        message.replace("Invalid decimal string", "expected a number"),
    )


def _type_names(union: str, values: Mapping[str, str] = {}) -> str:
    names = union.split(" | ")
    if len(names) > 1:
        names = [name for name in names if name != "null"]  # TOML has no null
    return " or ".join(values.get(name) or _TYPE_NAMES.get(name, f"a {name}") for name in names)


# --- The parameters and provider options that the settings add to a request ---

Json = dict[str, Any]
PROVIDER_OPTIONS = "providerOptions"
# Anthropic's context editing. Anthropic requires `clear_thinking` to be the first edit, and answers 400 if it
# is sent while thinking is off. To clear something makes the cached prompt behind it invalid. docs/cost.md
# derives how much must be cleared at once so that this pays, and why cached thinking is kept.
CLEAR_TRIGGER, CLEAR_AT_LEAST = 100_000, 40_000  # tokens
CLEAR_THINKING: Json = {"type": "clear_thinking_20251015"}
KEEP_THINKING: Json = {**CLEAR_THINKING, "keep": "all"}
CLEAR_TOOL_USES: Json = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": CLEAR_TRIGGER},
}
CLEAR_MANY_TOOL_USES: Json = {
    **CLEAR_TOOL_USES,
    "clearAtLeast": {"type": "input_tokens", "value": CLEAR_AT_LEAST},
}


def apply_settings(request: ChatRequest, settings: Settings, base_url: str) -> ChatRequest:
    """Return the request with the settings for its model added. Values that the editor set are kept.

    Raises:
        RequestError: If a parameter of the settings or the editor's `providerOptions` are not valid.
    """
    fields, extra = _model_parameters(settings, request.model)
    missing = {name: value for name, value in fields.items() if getattr(request, name) is None}
    request = msgspec.structs.replace(request, **missing)
    editor_extra = dict(request.extra or {})
    extra = {**extra, **editor_extra}
    editor_options = _require_object(editor_extra.get(PROVIDER_OPTIONS))
    options = merge_options(provider_options(request, settings, base_url), editor_options)
    if options:
        extra[PROVIDER_OPTIONS] = options
    return msgspec.structs.replace(request, extra=extra or None, cache_prompt=settings.prompt_caching)


def provider_options(request: ChatRequest, settings: Settings, base_url: str) -> Json:
    """Return the provider options for a request.

    These are the defaults, overridden by each matching pattern of the settings, the most specific last.
    """
    options: Json = {}
    if (
        settings.context_management
        and _supports_context_editing(request.model, base_url)
        and _may_reach(request, CLEAR_TRIGGER)
    ):
        thinking, tool_uses = CLEAR_THINKING, CLEAR_TOOL_USES
        if settings.prompt_caching:
            thinking, tool_uses = KEEP_THINKING, CLEAR_MANY_TOOL_USES
        edits = [tool_uses] if request.reasoning_effort in (None, "none") else [thinking, tool_uses]
        options = {"anthropic": {"contextManagement": {"edits": edits}}}
    for model in matching(settings.models, request.model):
        options = merge_options(options, model.provider_options)
    return options


def merge_options(base: Mapping[str, Any], override: Mapping[str, Any]) -> Json:
    """Merge two JSON objects recursively. Values other than objects are replaced."""
    merged: Json = dict(base)
    for name, value in override.items():
        base_value = merged.get(name)
        if isinstance(value, Mapping) and isinstance(base_value, Mapping):
            merged[name] = merge_options(base_value, value)
        else:
            merged[name] = value
    return merged


def _supports_context_editing(model: str, base_url: str) -> bool:
    """Only Vercel AI Gateway is known to pass the option on, and only Claude models accept it."""
    return identify(model).is_claude and urlsplit(base_url).hostname == VERCEL_HOST


def _may_reach(request: ChatRequest, tokens: int) -> bool:
    """Return whether a prompt can have this many tokens: a token has at least one byte."""
    size = 0
    for message in request.messages:
        size += len(write_json(message).encode("utf-8", "surrogatepass"))
        if size >= tokens:
            return True
    return size + len(write_json(request.tools).encode("utf-8", "surrogatepass")) >= tokens


def _model_parameters(settings: Settings, model: str) -> tuple[Json, Json]:
    """Return the parameters for a model: fields of `ChatRequest`, and those that are sent unchanged."""
    parameters: Json = {}
    for model_settings in matching(settings.models, model):
        parameters |= model_settings.parameters
    for name, value in parameters.items():
        error = parameter_error(name, value)
        if error:
            raise RequestError(f"Invalid parameter {name} for {model}: {error}.")
    fields = {name: value for name, value in parameters.items() if name in REQUEST_PARAMETERS}
    return fields, {name: value for name, value in parameters.items() if name not in REQUEST_PARAMETERS}


def _require_object(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(f"{PROVIDER_OPTIONS} must be a JSON object, not {type(value).__name__}.")
    return value


# --- Extra request headers ---

# Headers that belong to the connection or to the protocol, which a setting would break.
_RESERVED_HEADERS = frozenset(
    "accept accept-encoding connection content-encoding content-length content-type expect host keep-alive "
    "te trailer transfer-encoding upgrade".split()
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,4096}")
_HEADER_SOURCE = re.compile(r"environment:[A-Za-z_][A-Za-z0-9_]*|keyring:[\x21-\x7e]{1,200}")
# The names of headers that hold a key, and values that are one.
_SECRET_NAME = re.compile(
    r"authorization|cookie|credential|passw|secret|(^|[-_])(api)?key$|(^|[-_])token$", re.I
)
_SECRET_VALUE = re.compile(
    r"(?i:bearer|basic|token)\s+\S"  # the value of an authorization header
    r"|(sk|pk|rk|hf|gsk|vck|xai|gh[a-z]|xox[a-z])[-_]\w{8}"  # the prefixes of some providers
    r"|AIza\w{8}|eyJ[\w-]+\.[\w-]+\."  # Google's keys; JSON Web Tokens
)
_RANDOM_VALUE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w+/=-]{32,}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)

HEADER_ADVICE = 'Name its source instead: { secret = "environment:NAME" }, or "keyring:NAME"'


def header_problem(name: str, value: str | SecretHeader, advice: str = HEADER_ADVICE) -> str | None:
    """Return why a header is not valid in the settings, or `None`. The text does not contain the value.

    Args:
        name: The name of the header.
        value: Its value, or the source of its value.
        advice: What to do if the value looks like a key.
    """
    if not _HEADER_NAME.fullmatch(name):
        return "not a valid header name"
    if name.lower() in _RESERVED_HEADERS:
        return "cannot be set here; Tollbridge controls this header"
    if isinstance(value, SecretHeader):
        if not _HEADER_SOURCE.fullmatch(value.secret):
            # The value may be the secret itself, so the message does not repeat it.
            return "secret must be environment:NAME or keyring:NAME (not the value itself)"
        return None
    if not _HEADER_VALUE.fullmatch(value):
        return "must be 1 to 4096 printable ASCII characters"
    if _SECRET_NAME.search(name) or _looks_secret(value):
        return f"looks like a key, which settings must not contain. {advice}"
    return None


def _looks_secret(value: str) -> bool:
    if _SECRET_VALUE.match(value):
        return True
    return bool(_RANDOM_VALUE.fullmatch(value)) and not _UUID.fullmatch(value)


def plain_headers(headers: Headers) -> dict[str, str]:
    """Return the headers whose values are in the settings."""
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def find_secret_headers(headers: Headers, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of the secret headers, from the environment or the system keyring.

    Raises:
        SettingsUnusable: If a value is not set or has invalid characters. The message does not contain it.
        KeyringUnusable: If the keyring is needed and cannot be used.
    """
    return {
        name: _find_secret(name, header.secret, environ)
        for name, header in headers.items()
        if isinstance(header, SecretHeader)
    }


def _find_secret(name: str, source: str, environ: Mapping[str, str]) -> str:
    # Imported here: most accounts have no secret header, and this module is loaded with the settings.
    from tollbridge.config.keys import read_keyring
    from tollbridge.config.loading import SettingsUnusable

    kind, _, entry = source.partition(":")
    value = (environ.get(entry) if kind == "environment" else read_keyring(entry)) or ""
    value = value.strip()
    if not value:
        place = "environment variable" if kind == "environment" else "keyring entry"
        message = f"The header {name} needs the {place} {entry}, which is not set."
        raise SettingsUnusable(message, "Set it, or remove the header.")
    if not _HEADER_VALUE.fullmatch(value):
        raise SettingsUnusable(f"The value of {source} contains invalid characters.", "Set it again.")
    return value
