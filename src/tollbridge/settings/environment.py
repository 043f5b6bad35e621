"""The settings that the environment can hold, and how they are read from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tollbridge.settings.checking import SettingsUnusable

_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("say 1 or 0")
    return _BOOLEANS[text.lower()]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("that is not a number of seconds") from None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# The setting each variable holds, and how it is read. Keys are not settings: see keys.py.
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TOLLBRIDGE_ACCOUNT": ("account", str),
    "TOLLBRIDGE_BASE_URL": ("base_url", str),
    "TOLLBRIDGE_BACKEND": ("backend", str),
    "TOLLBRIDGE_MODEL": ("model", str),
    "TOLLBRIDGE_ALLOW": ("allow", _names),
    "TOLLBRIDGE_DENY": ("deny", _names),
    "TOLLBRIDGE_FAVOURITES": ("favourites", _names),
    "TOLLBRIDGE_PROXY": ("proxy", str),
    "TOLLBRIDGE_ALLOW_HTTP": ("allow_http", _boolean),
    "TOLLBRIDGE_CONTEXT_MANAGEMENT": ("context_management", _boolean),
    "TOLLBRIDGE_COUNT_AT_GATEWAY": ("count_at_gateway", _boolean),
    "TOLLBRIDGE_RECORD": ("record", str),
    "TOLLBRIDGE_RECORD_REDACT": ("record_redact", _boolean),
    "TOLLBRIDGE_TIMEOUT_CONNECT": ("timeouts.connect", _seconds),
    "TOLLBRIDGE_TIMEOUT_IDLE": ("timeouts.idle", _seconds),
    "TOLLBRIDGE_TIMEOUT_TOTAL": ("timeouts.total", _seconds),
}
_VARIABLE_OF = {setting: variable for variable, (setting, _) in VARIABLES.items()}


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """What the environment sets. A variable that is empty sets nothing."""
    table: dict[str, Any] = {}
    for variable, (setting, read) in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text:
            continue
        group, _, name = setting.rpartition(".")
        inside = table.setdefault(group, {}) if group else table
        try:
            inside[name] = read(text)
        except ValueError as error:
            raise SettingsUnusable(f"{variable}: {error}.") from None
    return table


def locate(setting: str) -> str:
    return f"environment {_VARIABLE_OF[setting]}" if setting in _VARIABLE_OF else "environment"
