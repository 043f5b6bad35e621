"""The settings and their tables, and the account with all of its fields resolved."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec

from tollbridge.protocols import Backend
from tollbridge.transport.retry import Timeouts
from tollbridge.types.urls import VERCEL_URL

DEFAULT_ACCOUNT = "default"
# More than parallel agents send, and far less than a program that repeats a failing request.
DEFAULT_REQUESTS_PER_MINUTE = 300


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
        context_size: The longest prompt that editors should send, in tokens; they summarize a conversation
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
