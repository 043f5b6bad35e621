"""Find an account's API key in the environment or the system keyring.

A key is never a setting: settings only name its source. Keys are looked up for each use and are not cached.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.errors import SettingsUnusable
from tollbridge.config.keyring import get_key, keyring_entry, list_logins
from tollbridge.config.schema import Account
from tollbridge.types.errors import RequestError
from tollbridge.types.text import is_valid_key, read_json
from tollbridge.types.urls import VERCEL_HOST, is_loopback

API_KEY_VARIABLE = "TOLLBRIDGE_API_KEY"
OIDC_VARIABLE = "VERCEL_OIDC_TOKEN"
# Other programs use these variables too. Their keys are only sent to Vercel AI Gateway or to this machine,
# unless an account names the variable (`key = "environment:AI_GATEWAY_API_KEY"`).
VERCEL_VARIABLES = ("AI_GATEWAY_API_KEY", OIDC_VARIABLE)
# Tokens that expire within this many seconds count as expired.
EXPIRY_MARGIN = 60.0


class Key(msgspec.Struct, frozen=True):
    """An API key and its source. The source may be shown; the value is not part of the representation."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Key({self.source!r})"


def find_key(account: Account, environ: Mapping[str, str] = os.environ) -> Key | None:
    """Return the key of an account, or `None` if it has none.

    Raises:
        SettingsUnusable: If the account names a variable that is not set, or the key has invalid characters.
        KeyringUnusable: If the keyring is needed and cannot be used.
    """
    if account.key == "none":
        return None
    _, _, variable = account.key.partition("environment:")
    if variable:
        key = _key_from_environment(environ, (variable,))
        if key is None:
            raise SettingsUnusable(
                f'Account "{account.name}" reads its key from {variable}, which is not set.',
                "Set it, or change the account's `key`.",
            )
        return key
    if account.key == "keyring":
        return _key_from_keyring(account)
    key = _key_from_environment(environ, variables_for(account))
    if key is not None and is_expired_oidc(key) and _host(account) != VERCEL_HOST:
        key = None  # only Vercel can refresh it, and a server on this machine may not need a key
    if key is None and keyring_entry(account) in list_logins():
        key = _key_from_keyring(account)
    return key


def variables_for(account: Account) -> tuple[str, ...]:
    """Return the variables that can hold the account's key; the first that is set is used."""
    account_variable = f"{API_KEY_VARIABLE}_{re.sub('[^A-Z0-9]', '_', account.name.upper())}"
    if not account.selected:
        return (account_variable,)
    host = _host(account)
    shared = VERCEL_VARIABLES if host == VERCEL_HOST or is_loopback(host) else ()
    return account_variable, API_KEY_VARIABLE, *shared


def describe_key(account: Account, environ: Mapping[str, str] = os.environ) -> str:
    """Return the state and source of a key without the key: `set (environment TOLLBRIDGE_API_KEY)`."""
    try:
        key = find_key(account, environ)
    except RequestError as error:
        return f"not set: {error.message}"
    token = key
    if key is None and account.key == "auto":
        token = _key_from_environment(environ, variables_for(account))
    if token is not None and is_expired_oidc(token):
        return f"expired ({token.source})"
    return "not set" if key is None else f"set ({key.source})"


def clean_key(text: str, source: str) -> str:
    """Return a key without surrounding white space.

    Raises:
        SettingsUnusable: If the key has invalid characters. The message names the source, not the key.
    """
    key = text.strip()
    if not is_valid_key(key):
        raise SettingsUnusable(f"{source} contains invalid characters. Set it again.")
    return key


def _host(account: Account) -> str:
    return urlsplit(account.base_url).hostname or ""


def _key_from_environment(environ: Mapping[str, str], variables: tuple[str, ...]) -> Key | None:
    for variable in variables:
        key = clean_key(environ.get(variable, ""), variable)
        if key:
            return Key(key, f"environment {variable}")
    return None


def _key_from_keyring(account: Account) -> Key | None:
    key = get_key(account)
    return Key(clean_key(key, "The keyring entry"), "keyring") if key else None


def expiry(token: str) -> float | None:
    """Return when a JWT expires, in seconds since 1970, or `None` if it is not a JWT or has no `exp`."""
    sections = token.split(".")
    if len(sections) != 3:
        return None
    try:
        payload = read_json(base64.urlsafe_b64decode(sections[1] + "=" * (-len(sections[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expires_at = payload.get("exp") if isinstance(payload, dict) else None
    if not isinstance(expires_at, int | float) or isinstance(expires_at, bool):
        return None
    return float(expires_at)


def is_expired(token: str, now: float | None = None) -> bool:
    expires_at = expiry(token)
    return expires_at is not None and expires_at < (time.time() if now is None else now) + EXPIRY_MARGIN


def is_expired_oidc(key: Key) -> bool:
    """Return whether a key is an OIDC token of Vercel that has expired."""
    return key.source == f"environment {OIDC_VARIABLE}" and is_expired(key.value)
