"""The system keyring, which holds the keys of `tollbridge login`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tollbridge.config.schema import Account
from tollbridge.transport.files import data_folder, make_folder, replace_file
from tollbridge.types.errors import RequestError
from tollbridge.types.text import read_json, write_json


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
        raise KeyringUnusable(
            "The system keyring requires the `keyring` package: pip install keyring. Without it, set "
            "TOLLBRIDGE_API_KEY."
        ) from None
    try:
        return getattr(keyring, function)("tollbridge", entry, *arguments)
    except keyring.errors.NoKeyringError:
        raise KeyringUnusable(
            "No usable system keyring found (is it running and unlocked?). Set TOLLBRIDGE_API_KEY instead."
        ) from None
    except keyring.errors.KeyringLocked:
        raise KeyringUnusable("The system keyring is locked. Unlock it and try again.") from None
    except (keyring.errors.KeyringError, RuntimeError, OSError) as error:
        # Only the type of the error: the message of a backend may contain the key.
        raise KeyringUnusable(f"The system keyring failed ({type(error).__name__}).") from None
