"""Which account is used: the one that was named last and loudest."""

from __future__ import annotations

import msgspec

from tollbridge.config.loading import LoadedSettings, SettingsUnusable
from tollbridge.config.schema import DEFAULT_ACCOUNT, AccountSettings
from tollbridge.types.urls import VERCEL_URL, Backend


class Account(msgspec.Struct, frozen=True):
    """An account with nothing left open. `by_default` says that nobody named it."""

    name: str
    base_url: str
    backend: Backend
    key: str
    by_default: bool = False
    # Whether it is the one in use, to which `TOLLBRIDGE_API_KEY` belongs.
    selected: bool = True
    # The key itself, where it was looked up. It is never shown or stored.
    api_key: str | None = None

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.base_url!r})"


def resolve_account(loaded: LoadedSettings) -> Account:
    """A base URL is a gateway of its own; against an account's name, the stronger layer wins."""
    settings = loaded.settings
    if settings.base_url and settings.account:
        if loaded.rank("base_url") == loaded.rank("account"):
            raise SettingsUnusable(
                f"{loaded.origin('base_url')} and {loaded.origin('account')} name two gateways. "
                "Leave one of them out."
            )
        by_url = loaded.outranks("base_url", "account")
    else:
        by_url = bool(settings.base_url)
    if by_url and settings.base_url:
        return _complete(loaded, DEFAULT_ACCOUNT, AccountSettings(base_url=settings.base_url))
    name = settings.account or _only(loaded)
    return named_account(loaded, name) if name else _vercel(loaded)


def named_account(loaded: LoadedSettings, name: str) -> Account:
    accounts = loaded.settings.accounts
    if name in accounts:
        return _complete(loaded, name, accounts[name])
    if name == DEFAULT_ACCOUNT:
        return _vercel(loaded)
    known = f"Known are: {', '.join(accounts)}." if accounts else "None is set up."
    raise SettingsUnusable(f"There is no account “{name}” in {loaded.path}. {known}")


def all_accounts(loaded: LoadedSettings) -> list[Account]:
    """Those of the settings, and the one in use where it is none of them."""
    used = resolve_account(loaded)
    named = [named_account(loaded, name) for name in loaded.settings.accounts]
    others = [msgspec.structs.replace(one, selected=False) for one in named if one != used]
    return [used, *others]


def _only(loaded: LoadedSettings) -> str | None:
    """Where nobody chose: the default account, or the only one there is."""
    accounts = loaded.settings.accounts
    if DEFAULT_ACCOUNT in accounts:
        return DEFAULT_ACCOUNT
    if len(accounts) > 1:
        names = ", ".join(accounts)
        raise SettingsUnusable(
            f"There are several accounts ({names}). Choose one with --account, or set `account`."
        )
    return next(iter(accounts), None)


def _vercel(loaded: LoadedSettings) -> Account:
    return msgspec.structs.replace(
        _complete(loaded, DEFAULT_ACCOUNT, AccountSettings(base_url=VERCEL_URL)), by_default=True
    )


def _complete(loaded: LoadedSettings, name: str, account: AccountSettings) -> Account:
    """A backend given with a flag or in the environment is for this run, whatever the account says."""
    asked = loaded.settings.backend
    for_now = loaded.rank("backend") in ("flags", "environment")
    backend = (asked if for_now else None) or account.backend or asked or "openresponses"
    return Account(name, account.base_url.rstrip("/"), backend, account.key)
