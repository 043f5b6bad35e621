"""Find an account's API key in the environment or the system keyring, and refresh Vercel's OIDC tokens.

A key is never a setting: settings only name its source. Keys are looked up for each use and are not cached.
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

from tollbridge.config.loading import SettingsUnusable
from tollbridge.config.schema import Account
from tollbridge.transport.files import data_folder, make_folder, replace_file
from tollbridge.transport.loading import load_http_client
from tollbridge.types.errors import BridgeError, NotAuthenticated, RequestError
from tollbridge.types.text import is_valid_key, read_json, write_json
from tollbridge.types.urls import VERCEL_HOST, is_loopback

# --- Finding a key ---

API_KEY_VARIABLE = "TOLLBRIDGE_API_KEY"
OIDC_VARIABLE = "VERCEL_OIDC_TOKEN"
# Other programs use these variables too. Their keys are only sent to Vercel AI Gateway or to this machine,
# unless an account names the variable (`key = "environment:AI_GATEWAY_API_KEY"`).
VERCEL_VARIABLES = ("AI_GATEWAY_API_KEY", OIDC_VARIABLE)


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


# --- The system keyring, used by `tollbridge login` ---

KEYRING_SERVICE = "tollbridge"
KEYRING_NOT_INSTALLED = (
    "The system keyring requires the `keyring` package: pip install keyring. Without it, set "
    "TOLLBRIDGE_API_KEY."
)
NO_KEYRING_BACKEND = (
    "No usable system keyring found (is it running and unlocked?). Set TOLLBRIDGE_API_KEY instead."
)


class KeyringUnusable(RequestError):
    """Raised when the system keyring cannot be used. The message says what to do."""

    advice = ""


def keyring_entry(account: Account) -> str:
    """Return the name of the account's keyring entry.

    It contains the base URL, so that a key is not sent to another host if the account's URL changes.
    """
    return f"{account.name} at {account.base_url}"


def get_key(account: Account) -> str | None:
    return read_keyring(keyring_entry(account))


def read_keyring(entry: str) -> str | None:
    """Return the value of an entry in Tollbridge's part of the keyring, or `None`."""
    value = _call_keyring("get_password", entry)
    return value if isinstance(value, str) else None


def set_key(account: Account, key: str) -> None:
    _call_keyring("set_password", keyring_entry(account), key)
    _save_logins([*list_logins(), keyring_entry(account)])


def delete_key(account: Account) -> bool:
    """Delete the account's key from the keyring. Return whether there was one."""
    exists = get_key(account) is not None
    if exists:
        _call_keyring("delete_password", keyring_entry(account))
    _save_logins([name for name in list_logins() if name != keyring_entry(account)])
    return exists


def list_logins() -> list[str]:
    """Return the names of the keyring entries, from a file: reading the keyring itself takes a second."""
    try:
        names = read_json(_logins_file().read_bytes())
    except (OSError, ValueError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _save_logins(names: list[str]) -> None:
    path = _logins_file()
    try:
        make_folder(path.parent)
        replace_file(path, write_json(sorted(set(names))).encode())
    except OSError as error:
        raise KeyringUnusable(f"Cannot write {path}: {error.strerror}.") from None


def _logins_file() -> Path:
    return data_folder() / "logins.json"


def _call_keyring(function: str, entry: str, *arguments: str) -> Any:
    # Imported here: the package is optional, and slow to load.
    try:
        import keyring
        import keyring.errors
    except ImportError:
        raise KeyringUnusable(KEYRING_NOT_INSTALLED) from None
    try:
        return getattr(keyring, function)(KEYRING_SERVICE, entry, *arguments)
    except keyring.errors.NoKeyringError:
        raise KeyringUnusable(NO_KEYRING_BACKEND) from None
    except keyring.errors.KeyringLocked:
        raise KeyringUnusable("The system keyring is locked. Unlock it and try again.") from None
    except (keyring.errors.KeyringError, RuntimeError, OSError) as error:
        # Only the type of the error: the message of a backend may contain the key.
        raise KeyringUnusable(f"The system keyring failed ({type(error).__name__}).") from None


# --- Expiry of tokens ---

# Tokens that expire within this many seconds count as expired.
EXPIRY_MARGIN = 60.0


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


# --- Refreshing Vercel's OIDC tokens ---
#
# The protocol is that of the packages `@vercel/oidc` 4.0 and `@vercel/cli-config` 0.3. The Vercel CLI stores
# its login in `com.vercel.cli/auth.json` in the data directory (`token`, `expiresAt` in seconds). A linked
# project has `.vercel/project.json` (`projectId`, `orgId`). `POST /v1/projects/{projectId}/token` returns a
# new token for it.

VERCEL_API = "https://api.vercel.com"
_REFRESH_ADVICE = "Run `vercel env pull` and load the new token, or set AI_GATEWAY_API_KEY."


class TokenRefresher:
    """Replaces expired OIDC tokens. New tokens are only held in memory.

    Args:
        api: The base URL of Vercel's API. The login of the Vercel CLI is sent there and nowhere else.
        environ: Environment variables, for the directory of the login.
        folder: A folder in the linked project; the current folder by default.
    """

    def __init__(
        self, api: str = VERCEL_API, environ: Mapping[str, str] = os.environ, folder: Path | None = None
    ) -> None:
        self._api = api
        self._environ = environ
        self._folder = folder
        self._new_key: Key | None = None

    async def refresh(self, key: Key | None) -> Key | None:
        """Return the key, or a new one if it is an OIDC token that has expired.

        Raises:
            NotAuthenticated: If the token has expired and cannot be refreshed.
        """
        if key is None or not is_expired_oidc(key):
            return key
        if self._new_key is None or is_expired(self._new_key.value):
            self._new_key = await self._request_token()
        return self._new_key

    async def _request_token(self) -> Key:
        project = find_project(self._folder or Path.cwd())
        login = find_login(self._environ)
        if project is None or login is None:
            missing = (
                "this directory is not linked to a Vercel project"
                if project is None
                else "the Vercel CLI is not logged in"
            )
            raise NotAuthenticated(
                f"The token in {OIDC_VARIABLE} has expired, and {missing}. {_REFRESH_ADVICE}"
            )
        project_id, team = project
        query = urlencode({"source": "vercel-oidc-refresh", **({"teamId": team} if team else {})})
        url = f"{self._api}/v1/projects/{quote(project_id, safe='')}/token?{query}"
        try:
            async with load_http_client()() as http, http.send("POST", url, _headers(login)) as response:
                status, body = response.status, await response.read(1 << 20)
        except BridgeError as error:
            raise NotAuthenticated(
                f"The token in {OIDC_VARIABLE} has expired and could not be refreshed: "
                f"{error.message} {_REFRESH_ADVICE}"
            ) from None
        token = _token_in(body) if status < 400 else None
        if token is None:
            raise NotAuthenticated(
                f"The token in {OIDC_VARIABLE} has expired, and Vercel did not return a new one "
                f"(HTTP {status}). {_REFRESH_ADVICE}",
                status=status,
            )
        return Key(token, "Vercel CLI login")


def find_project(folder: Path) -> tuple[str, str | None] | None:
    """Return the IDs of the Vercel project and its team that a folder, or a parent, is linked to."""
    for candidate in (folder, *folder.parents):
        project = _read_object(candidate / ".vercel" / "project.json")
        if project is not None:
            project_id = project.get("projectId")
            team = project.get("orgId")
            if not isinstance(project_id, str):
                return None
            return project_id, team if isinstance(team, str) else None
    return None


def find_login(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the token of the Vercel CLI, or `None` if it is missing or expired. It is not refreshed."""
    login = _read_object(_vercel_data_folder(environ) / "com.vercel.cli" / "auth.json") or {}
    token, expires_at = login.get("token"), login.get("expiresAt")
    if isinstance(expires_at, int | float) and expires_at < time.time() + EXPIRY_MARGIN:
        return None
    return token if isinstance(token, str) and token else None


def _vercel_data_folder(environ: Mapping[str, str]) -> Path:
    """Return the data directory as the Vercel CLI computes it, which differs from platformdirs."""
    if environ.get("XDG_DATA_HOME"):
        return Path(environ["XDG_DATA_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "xdg.data"
    return Path.home() / ".local" / "share"


def _read_object(path: Path) -> dict[str, Any] | None:
    try:
        value = read_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _token_in(body: bytes) -> str | None:
    try:
        value = read_json(body)
    except ValueError:
        return None
    token = value.get("token") if isinstance(value, dict) else None
    return token if isinstance(token, str) and token else None


def _headers(login: str) -> dict[str, str]:
    return {"authorization": f"Bearer {login}", "accept": "application/json", "user-agent": "tollbridge"}
