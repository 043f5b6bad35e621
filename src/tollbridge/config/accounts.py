"""Resolve the account to use: command line, environment, settings file, editor, default."""

from __future__ import annotations

import msgspec

from tollbridge.config.errors import SettingsUnusable
from tollbridge.config.loading import RANKS, LoadedSettings, Rank
from tollbridge.config.names import quote_name
from tollbridge.config.schema import DEFAULT_ACCOUNT, Account, AccountSettings, Headers, SecretHeader
from tollbridge.protocols import DEFAULT_BACKEND
from tollbridge.types.urls import VERCEL_URL


def resolve_account(loaded: LoadedSettings) -> Account:
    """Return the account to use.

    A base URL selects a gateway without an account. If both a base URL and an account are set, the value
    from the source with the higher priority wins.

    Raises:
        SettingsUnusable: If one source sets both a base URL and an account, if the account is not
            configured, or if there are several accounts and none is selected.
    """
    settings = loaded.settings
    url_rank, account_rank = RANKS.index(loaded.rank("base_url")), RANKS.index(loaded.rank("account"))
    if settings.base_url and settings.account and url_rank == account_rank:
        raise SettingsUnusable(
            f"{loaded.origin('base_url')} and {loaded.origin('account')} conflict. Remove one of them."
        )
    if settings.base_url and (not settings.account or url_rank < account_rank):
        return _unnamed_account(loaded, settings.base_url)
    name = settings.account or _default_account_name(loaded)
    return named_account(loaded, name) if name else _vercel_account(loaded)


def named_account(loaded: LoadedSettings, name: str) -> Account:
    """Return the account with this name.

    Raises:
        SettingsUnusable: If no account with this name is configured.
    """
    accounts = loaded.settings.accounts
    if name in accounts:
        return _complete_account(loaded, name, accounts[name])
    if name == DEFAULT_ACCOUNT:
        return _vercel_account(loaded)
    if not accounts:
        raise SettingsUnusable(
            f'Account "{name}" not found in {loaded.path} (no accounts configured).',
            f"Add it with `tollbridge config set accounts.{quote_name(name)}.base_url URL`, "
            "or choose no account.",
        )
    raise SettingsUnusable(
        f'Account "{name}" not found in {loaded.path}. Configured accounts: {", ".join(accounts)}.'
    )


def all_accounts(loaded: LoadedSettings) -> list[Account]:
    """Return the account in use, unless the settings select none, and the other accounts of the settings."""
    accounts = [named_account(loaded, name) for name in loaded.settings.accounts]
    try:
        selected = resolve_account(loaded)
    except SettingsUnusable:
        return accounts
    others = [msgspec.structs.replace(account, selected=False) for account in accounts if account != selected]
    return [selected, *others]


def _default_account_name(loaded: LoadedSettings) -> str | None:
    """Return `default` if it is configured, else the only configured account, else `None`."""
    accounts = loaded.settings.accounts
    if DEFAULT_ACCOUNT in accounts:
        return DEFAULT_ACCOUNT
    if len(accounts) > 1:
        names = ", ".join(accounts)
        raise SettingsUnusable(
            f"Several accounts are configured ({names}). Choose one with --account, or set `account`."
        )
    return next(iter(accounts), None)


def _vercel_account(loaded: LoadedSettings) -> Account:
    return msgspec.structs.replace(_unnamed_account(loaded, VERCEL_URL), by_default=True)


def _unnamed_account(loaded: LoadedSettings, base_url: str) -> Account:
    """Return the account for a gateway that the settings name without one.

    A header is not sent to a gateway that another source chose: it may be a secret.
    """
    settings = loaded.settings
    headers = _headers_of(loaded, loaded.rank("base_url")) if settings.base_url else settings.headers
    return _complete_account(loaded, DEFAULT_ACCOUNT, AccountSettings(base_url=base_url, headers=headers))


def _complete_account(loaded: LoadedSettings, name: str, account: AccountSettings) -> Account:
    """Resolve the backend: a flag or variable overrides the account, the account overrides other sources."""
    backend = loaded.settings.backend
    overrides_account = loaded.rank("backend") in ("flags", "environment")
    backend = (backend if overrides_account else None) or account.backend or backend or DEFAULT_BACKEND
    # The headers of the command line are for the gateway in use, whatever it is.
    headers = {**account.headers, **_headers_of(loaded, "flags")}
    base_url = account.base_url.rstrip("/")
    return Account(name, base_url, backend, account.key, headers=headers, auth=account.auth)


def _headers_of(loaded: LoadedSettings, rank: Rank) -> Headers:
    """Return the headers of the settings that come from one source."""
    headers: dict[str, str | SecretHeader] = {}
    for name, value in loaded.settings.headers.items():
        setting = f"headers.{quote_name(name)}"
        if rank == min(loaded.rank(setting), loaded.rank(f"{setting}.secret"), key=RANKS.index):
            headers[name] = value
    return headers
