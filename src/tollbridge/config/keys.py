"""Vercel's OIDC tokens: a new one, where one has expired, from the login of the Vercel CLI.

As the packages `@vercel/oidc` 4.0 and `@vercel/cli-config` 0.3 have it: the CLI keeps its login in
`com.vercel.cli/auth.json` in the place for data (`token`, `expiresAt` in seconds), a linked project has
`.vercel/project.json` (`projectId`, `orgId`), and `POST /v1/projects/{projectId}/token` makes a token for it.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tollbridge.config.accounts import Account
from tollbridge.config.loading import SettingsUnusable
from tollbridge.config.paths import data_folder
from tollbridge.types.errors import BridgeError, NotAuthenticated, RequestError
from tollbridge.types.text import is_valid_key, read_json, write_json
from tollbridge.types.urls import VERCEL_HOST, is_loopback

# SECTION When a token expires, as it says itself.

# A token that expires within this many seconds is not worth sending.
MARGIN = 60.0


def expiry(token: str) -> float | None:
    """When a token expires, in seconds since 1970; `None` where it does not say, or is no JWT."""
    pieces = token.split(".")
    if len(pieces) != 3:
        return None
    try:
        payload = read_json(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    when = payload.get("exp") if isinstance(payload, dict) else None
    return float(when) if isinstance(when, int | float) and not isinstance(when, bool) else None


def is_expired(token: str, now: float | None = None) -> bool:
    when = expiry(token)
    return when is not None and when < (time.time() if now is None else now) + MARGIN


# SECTION Keys in the operating system's keyring, for people at a terminal. Loaded only when it is used.

SERVICE = "tollbridge"
NOT_INSTALLED = (
    "Keys can be kept in the system's keyring once the package `keyring` is there: "
    "pip install keyring. Until then, set TOLLBRIDGE_API_KEY."
)
NO_BACKEND = (
    "This machine has no keyring that can be used (a desktop's keyring must be running and unlocked). "
    "Set TOLLBRIDGE_API_KEY instead."
)


class KeyringUnusable(RequestError):
    advice = ""  # the message says it


def entry(account: Account) -> str:
    """Bound to the address: an account that moves to another host does not take its key along."""
    return f"{account.name} at {account.base_url}"


def get_key(account: Account) -> str | None:
    found = _asked("get_password", account)
    return found if isinstance(found, str) else None


def set_key(account: Account, key: str) -> None:
    _asked("set_password", account, key)
    _remember([*logins(), entry(account)])


def delete_key(account: Account) -> bool:
    """Whether there was one."""
    found = get_key(account) is not None
    if found:
        _asked("delete_password", account)
    _remember([name for name in logins() if name != entry(account)])
    return found


def logins() -> list[str]:
    """The entries that were made, by name: asking the keyring itself takes a second."""
    try:
        found = read_json(_list().read_bytes())
    except (OSError, ValueError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _remember(names: list[str]) -> None:
    path = _list()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(write_json(sorted(set(names))), encoding="utf-8")
    except OSError as error:
        raise KeyringUnusable(f"{path} cannot be written: {error.strerror}.") from None


def _list() -> Path:
    return data_folder() / "logins.json"


def _asked(verb: str, account: Account, *rest: str) -> Any:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        raise KeyringUnusable(NOT_INSTALLED) from None
    try:
        return getattr(keyring, verb)(SERVICE, entry(account), *rest)
    except keyring.errors.NoKeyringError:
        raise KeyringUnusable(NO_BACKEND) from None
    except keyring.errors.KeyringLocked:
        raise KeyringUnusable("The system's keyring is locked. Unlock it and try again.") from None
    except (keyring.errors.KeyringError, RuntimeError, OSError) as error:
        # By the error's kind alone: a backend may quote what it was given.
        raise KeyringUnusable(f"The system's keyring failed ({type(error).__name__}).") from None


# SECTION Where an account's key comes from: the environment, then the keyring. A key is never a setting.

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


def find_key(account: Account, environ: Mapping[str, str] = os.environ) -> Key | None:
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
    if found is None and entry(account) in logins():
        found = _from_keyring(account)
    return found


def variables_for(account: Account) -> tuple[str, ...]:
    """The variables that may hold the account's key, the first that is set counts."""
    own = f"{OWN}_{re.sub('[^A-Z0-9]', '_', account.name.upper())}"
    host = _host(account)
    shared = VERCELS if host == VERCEL_HOST or is_loopback(host) else ()
    return own, *((OWN,) if account.selected else ()), *(shared if account.selected else ())


def describe_key(account: Account, environ: Mapping[str, str] = os.environ) -> str:
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
    if not is_valid_key(key):
        raise SettingsUnusable(f"{source} holds characters that no key has. Copy the key into it again.")
    return key


def _host(account: Account) -> str:
    return urlsplit(account.base_url).hostname or ""


def _from_environment(environ: Mapping[str, str], names: tuple[str, ...]) -> Key | None:
    for name in names:
        key = clean_key(environ.get(name, ""), name)
        if key:
            return Key(key, f"environment {name}")
    return None


def _from_keyring(account: Account) -> Key | None:
    key = get_key(account)
    return Key(clean_key(key, "The keyring's entry"), "keyring") if key else None


# SECTION Vercel's OIDC tokens: a new one, where one has expired, from the login of the Vercel CLI.
#
# As the packages `@vercel/oidc` 4.0 and `@vercel/cli-config` 0.3 have it: the CLI keeps its login in
# `com.vercel.cli/auth.json` in the place for data (`token`, `expiresAt` in seconds), a linked project has
# `.vercel/project.json` (`projectId`, `orgId`), and `POST /v1/projects/{projectId}/token` makes a token for it.

API = "https://api.vercel.com"
_WHAT_TO_DO = "Run `vercel env pull` and load the new token, or set AI_GATEWAY_API_KEY."


class TokenRefresher:
    """Makes expired tokens good. New ones are kept in memory, for this process alone.

    `api` is where the CLI's login is sent; it goes nowhere else.
    """

    def __init__(
        self, api: str = API, environ: Mapping[str, str] = os.environ, folder: Path | None = None
    ) -> None:
        self._api = api
        self._environ = environ
        self._folder = folder
        self._fresh: Key | None = None

    async def good(self, key: Key | None) -> Key | None:
        """The key, or a new one where it is a token that has expired."""
        if key is None or not has_expired(key):
            return key
        if self._fresh is None or is_expired(self._fresh.value):
            self._fresh = await self._refreshed()
        return self._fresh

    async def _refreshed(self) -> Key:
        project = find_project(self._folder or Path.cwd())
        login = find_login(self._environ)
        missing = "no project is linked here" if project is None else "the Vercel CLI is not logged in here"
        if project is None or login is None:
            raise NotAuthenticated(f"The token in {OIDC} has expired, and {missing}. {_WHAT_TO_DO}")
        # Not at the top: it loads aiohttp, and hardly any token has expired.
        from tollbridge.transport.http import HttpClient

        number, team = project
        query = urlencode({"source": "vercel-oidc-refresh", **({"teamId": team} if team else {})})
        url = f"{self._api}/v1/projects/{quote(number, safe='')}/token?{query}"
        try:
            async with HttpClient() as http, http.send("POST", url, _headers(login)) as reply:
                status, body = reply.status, await reply.read(1 << 20)
        except BridgeError as error:
            raise NotAuthenticated(
                f"The token in {OIDC} has expired, and no new one could be had: {error.message} {_WHAT_TO_DO}"
            ) from None
        token = _field(body, "token") if status < 400 else None
        if token is None:
            raise NotAuthenticated(
                f"The token in {OIDC} has expired, and Vercel gave no new one (HTTP {status}). {_WHAT_TO_DO}",
                status=status,
            )
        return Key(token, "Vercel CLI login")


def find_project(folder: Path) -> tuple[str, str | None] | None:
    """The Vercel project that a folder, or one above it, is linked to: its id and its team's."""
    for place in (folder, *folder.parents):
        linked = _read(place / ".vercel" / "project.json")
        if linked is not None:
            number = linked.get("projectId")
            team = linked.get("orgId")
            return (number, team if isinstance(team, str) else None) if isinstance(number, str) else None
    return None


def find_login(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Vercel CLI's own token, while it is good. Its login is not ours to renew."""
    login = _read(_data_folder(environ) / "com.vercel.cli" / "auth.json") or {}
    token, until = login.get("token"), login.get("expiresAt")
    if isinstance(until, int | float) and until < time.time() + MARGIN:
        return None
    return token if isinstance(token, str) and token else None


def _data_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("XDG_DATA_HOME"):
        return Path(environ["XDG_DATA_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "xdg.data"
    return Path.home() / ".local" / "share"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = read_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _field(body: bytes, name: str) -> str | None:
    try:
        found = read_json(body)
    except ValueError:
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and value else None


def _headers(login: str) -> dict[str, str]:
    return {"authorization": f"Bearer {login}", "accept": "application/json", "user-agent": "tollbridge"}
