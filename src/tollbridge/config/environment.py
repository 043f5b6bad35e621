"""Read settings from environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from tollbridge.config.errors import SettingsUnusable


def _parse_boolean(text: str) -> bool:
    is_true = text.lower() in ("1", "true", "yes", "on")
    if not is_true and text.lower() not in ("0", "false", "no", "off"):
        raise ValueError("use 1 or 0")
    return is_true


def _parse_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number of seconds") from None


def _parse_dollars(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("expected an amount in US dollars") from None


def _parse_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# The setting of each variable, and the function that parses its value. Keys are not settings: see keys.py.
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TOLLBRIDGE_ACCOUNT": ("account", str),
    "TOLLBRIDGE_BASE_URL": ("base_url", str),
    "TOLLBRIDGE_BACKEND": ("backend", str),
    "TOLLBRIDGE_MODEL": ("model", str),
    "TOLLBRIDGE_ALLOW": ("allow", _parse_list),
    "TOLLBRIDGE_DENY": ("deny", _parse_list),
    "TOLLBRIDGE_FAVOURITES": ("favourites", _parse_list),
    "TOLLBRIDGE_PROXY": ("proxy", str),
    "TOLLBRIDGE_ALLOW_HTTP": ("allow_http", _parse_boolean),
    "TOLLBRIDGE_CONTEXT_MANAGEMENT": ("context_management", _parse_boolean),
    "TOLLBRIDGE_COUNT_AT_GATEWAY": ("count_at_gateway", _parse_boolean),
    "TOLLBRIDGE_PROMPT_CACHING": ("prompt_caching", _parse_boolean),
    "TOLLBRIDGE_KEEP_CONVERSATIONS": ("keep_conversations", _parse_boolean),
    "TOLLBRIDGE_PROMPT_HISTORY": ("prompt_history", _parse_boolean),
    "TOLLBRIDGE_RECORD": ("record", str),
    "TOLLBRIDGE_RECORD_REDACT": ("record_redact", _parse_boolean),
    "TOLLBRIDGE_BUDGET_DAY": ("budgets.day", _parse_dollars),
    "TOLLBRIDGE_BUDGET_MONTH": ("budgets.month", _parse_dollars),
    "TOLLBRIDGE_BUDGET_CONVERSATION": ("budgets.conversation", _parse_dollars),
    "TOLLBRIDGE_TIMEOUT_CONNECT": ("timeouts.connect", _parse_seconds),
    "TOLLBRIDGE_TIMEOUT_IDLE": ("timeouts.idle", _parse_seconds),
    "TOLLBRIDGE_TIMEOUT_TOTAL": ("timeouts.total", _parse_seconds),
}
_VARIABLE_BY_SETTING = {setting: variable for variable, (setting, _) in VARIABLES.items()}


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the environment as a nested table. Empty variables are ignored.

    Raises:
        SettingsUnusable: If a variable cannot be parsed.
    """
    table: dict[str, Any] = {}
    for variable, (setting, parse) in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text:
            continue
        group, _, name = setting.rpartition(".")
        subtable = table.setdefault(group, {}) if group else table
        try:
            subtable[name] = parse(text)
        except ValueError as error:
            raise SettingsUnusable(f'Invalid value "{text}" in {variable}: {error}.') from None
    return table


def locate_variable(setting: str) -> str:
    variable = _VARIABLE_BY_SETTING.get(setting)
    return f"environment {variable}" if variable else "environment"
