"""Keys in the operating system's keyring, for people at a terminal. Loaded only when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tollbridge.core.errors import RequestError
from tollbridge.core.json import read_json, write_json
from tollbridge.core.places import data_folder

if TYPE_CHECKING:
    from tollbridge.settings.accounts import Chosen

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


def entry(account: Chosen) -> str:
    """Bound to the address: an account that moves to another host does not take its key along."""
    return f"{account.name} at {account.base_url}"


def get_key(account: Chosen) -> str | None:
    found = _asked("get_password", account)
    return found if isinstance(found, str) else None


def set_key(account: Chosen, key: str) -> None:
    _asked("set_password", account, key)
    _remember([*logins(), entry(account)])


def delete_key(account: Chosen) -> bool:
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


def _asked(verb: str, account: Chosen, *rest: str) -> Any:
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
