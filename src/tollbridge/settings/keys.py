"""Where an account's key comes from: the environment, then the keyring. A key is never a setting."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from tollbridge.core.addresses import VERCEL_HOST, is_here
from tollbridge.core.errors import RequestError
from tollbridge.core.texts import can_be_key
from tollbridge.settings import vault
from tollbridge.settings.accounts import Chosen
from tollbridge.settings.checking import SettingsUnusable
from tollbridge.settings.expiry import is_expired

OWN = "TOLLBRIDGE_API_KEY"
OIDC = "VERCEL_OIDC_TOKEN"
# Keys that others use too. They are for Vercel's gateway, or one on this machine, and go nowhere else
# unless an account says so (`key = "environment:AI_GATEWAY_API_KEY"`).
VERCELS = ("AI_GATEWAY_API_KEY", OIDC)


class Key(msgspec.Struct, frozen=True):
    """`source` may be shown; `value` may not, and no representation has it."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Key({self.source!r})"


def find_key(account: Chosen, environ: Mapping[str, str] = os.environ) -> Key | None:
    """The key of one account, looked up anew each time and kept nowhere."""
    if account.key == "none":
        return None
    _, _, variable = account.key.partition("environment:")
    if variable:
        found = _from_environment(environ, (variable,))
        if found is None:
            raise SettingsUnusable(
                f"The account “{account.name}” takes its key from {variable}, which is not set.",
                "Set it, or change the account's `key`.",
            )
        return found
    if account.key == "keyring":
        return _from_keyring(account)
    found = _from_environment(environ, variables_for(account))
    if found is not None and has_expired(found) and _host(account) != VERCEL_HOST:
        found = None  # only Vercel knows what to do with it, and a server on this machine may need no key
    if found is None and vault.entry(account) in vault.logins():
        found = _from_keyring(account)
    return found


def variables_for(account: Chosen) -> tuple[str, ...]:
    """The variables that may hold the account's key, the first that is set counts."""
    own = f"{OWN}_{re.sub('[^A-Z0-9]', '_', account.name.upper())}"
    host = _host(account)
    shared = VERCELS if host == VERCEL_HOST or is_here(host) else ()
    return own, *((OWN,) if account.selected else ()), *(shared if account.selected else ())


def describe_key(account: Chosen, environ: Mapping[str, str] = os.environ) -> str:
    """Where the key comes from, without the key: `set (environment TOLLBRIDGE_API_KEY)`."""
    try:
        key = find_key(account, environ)
    except RequestError as error:
        return f"not set: {error.message}"
    token = key
    if key is None and account.key == "auto":
        token = _from_environment(environ, variables_for(account))
    if token is not None and has_expired(token):
        return f"expired ({token.source})"
    return "not set" if key is None else f"set ({key.source})"


def has_expired(key: Key) -> bool:
    """Whether it is a token of Vercel's whose time is over."""
    return key.source == f"environment {OIDC}" and is_expired(key.value)


def clean_key(text: str, source: str) -> str:
    """The key without the blanks around it. It is never shown, so a bad one is named by its source."""
    key = text.strip()
    if not can_be_key(key):
        raise SettingsUnusable(f"{source} holds characters that no key has. Copy the key into it again.")
    return key


def _host(account: Chosen) -> str:
    return urlsplit(account.base_url).hostname or ""


def _from_environment(environ: Mapping[str, str], names: tuple[str, ...]) -> Key | None:
    for name in names:
        key = clean_key(environ.get(name, ""), name)
        if key:
            return Key(key, f"environment {name}")
    return None


def _from_keyring(account: Chosen) -> Key | None:
    key = vault.get_key(account)
    return Key(clean_key(key, "The keyring's entry"), "keyring") if key else None
