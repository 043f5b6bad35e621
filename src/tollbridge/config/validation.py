"""Validate the settings of one source, and describe what is wrong with the first invalid one."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.errors import SettingsError, describe_mismatch
from tollbridge.config.headers import header_problem
from tollbridge.config.names import quote_name
from tollbridge.config.parameters import parameter_error
from tollbridge.config.schema import (
    AccountBudgets,
    AccountSettings,
    BudgetSettings,
    Headers,
    ModelSettings,
    Settings,
)
from tollbridge.protocols import auth_choices
from tollbridge.types.text import write_json
from tollbridge.types.urls import USERINFO_ERROR, VERCEL_URL, has_userinfo

Table = Mapping[str, Any]
# Maps the full name of a setting to its location, for example `the file /…/config.toml, line 3`.
Locate = Callable[[str], str]

_ENTRY_TYPES: dict[str, type[AccountSettings | ModelSettings]] = {
    "accounts": AccountSettings,
    "models": ModelSettings,
}
_KEY_SOURCE = re.compile(r"auto|keyring|none|environment:[A-Za-z_][A-Za-z0-9_]*")
# Parts of msgspec's validation messages.
_ERROR_PATH = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
_INVALID_CHOICE = re.compile(r"Invalid enum value '(.*)'")

# The full name of a setting, and what is wrong with it; `None` if nothing is.
Problem = tuple[str, str | None]


def validate_settings(table: Table, locate: Locate) -> Settings:
    """Convert one layer to settings.

    Raises:
        SettingsError: If a setting is unknown or invalid. The message contains its location.
    """
    for group, entry_type in _ENTRY_TYPES.items():
        entries = table.get(group, {})
        # One by one, because msgspec does not say which entry of a mapping is invalid.
        for name, entry in entries.items() if isinstance(entries, Mapping) else ():
            _convert(entry, entry_type, f"{group}.{quote_name(name)}", locate)
    settings: Settings = _convert(table, Settings, "", locate)
    for setting, problem in _find_problems(settings):
        if problem:
            raise SettingsError(setting, problem, locate(setting))
    return settings


def _convert(table: object, table_type: type[Any], prefix: str, locate: Locate) -> Any:
    try:
        return msgspec.convert(table, table_type)
    except msgspec.ValidationError as error:
        message = str(error)
        path_match = _ERROR_PATH.search(message)
        path = path_match[1] if path_match else ""
        problem = describe_mismatch(_ERROR_PATH.sub("", message))
        if unknown := _UNKNOWN_FIELD.match(problem):
            problem = f"unknown setting. {_suggest_name(unknown[1], table_type, path)}"
            path = f"{path}.{unknown[1]}" if path else unknown[1]
        elif choice := _INVALID_CHOICE.match(problem):
            valid = ", ".join(_literal_values(_type_at(table_type, path)))
            problem = f'invalid value "{choice[1]}". Valid values: {valid}'
        setting = ".".join(name for name in (prefix, path) if name) or "the settings"
        raise SettingsError(setting, problem, locate(setting)) from None


def _suggest_name(name: str, table_type: type[Any], path: str) -> str:
    names = [field.name for field in msgspec.structs.fields(_type_at(table_type, path))]
    similar = difflib.get_close_matches(name, names, 1)
    return f'Did you mean "{similar[0]}"?' if similar else f"Valid settings: {', '.join(names)}."


def _type_at(table_type: type[Any], path: str) -> Any:
    """Return the type of the field at a dotted path inside a settings table."""
    current: Any = table_type
    for name in filter(None, path.split(".")):
        current = next(
            (field.type for field in msgspec.structs.fields(current) if field.name == name), current
        )
    return current


def _literal_values(annotation: Any) -> list[str]:
    """Return the values of the `Literal` in an annotation such as `Literal["a", "b"] | None`."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [value for argument in get_args(annotation) for value in _literal_values(argument)]


def _find_problems(settings: Settings) -> Iterator[Problem]:
    yield "base_url", _gateway_url_problem(settings.base_url)
    yield from _header_problems("", settings.headers)
    yield "proxy", _proxy_problem(settings.proxy)
    yield "record", _record_problem(settings)
    for name, seconds in msgspec.structs.asdict(settings.timeouts).items():
        yield f"timeouts.{name}", None if 0 <= seconds < math.inf else "must be a number ≥ 0"
    yield from _budget_problems("budgets", settings.budgets)
    for name, account in settings.accounts.items():
        yield from _account_problems(f"accounts.{quote_name(name)}", account)
    for name, model in settings.models.items():
        yield from _model_problems(f"models.{quote_name(name)}", model)


def _budget_problems(prefix: str, budgets: BudgetSettings | AccountBudgets) -> Iterator[Problem]:
    for name, value in msgspec.structs.asdict(budgets).items():
        if isinstance(value, int | Decimal):
            valid = value.is_finite() and value >= 0 if isinstance(value, Decimal) else value >= 0
            yield f"{prefix}.{name}", None if valid else "must be a number ≥ 0"
        elif isinstance(value, Mapping):
            for account, limits in value.items():
                yield from _budget_problems(f"{prefix}.{name}.{quote_name(account)}", limits)


def _account_problems(prefix: str, account: AccountSettings) -> Iterator[Problem]:
    yield f"{prefix}.base_url", _gateway_url_problem(account.base_url)
    if not _KEY_SOURCE.fullmatch(account.key):
        # The value may be the key itself, so the message does not repeat it.
        yield f"{prefix}.key", "must be auto, keyring, none or environment:NAME (not the key itself)"
    if account.auth is not None and account.auth not in (choices := auth_choices()):
        yield f"{prefix}.auth", f'invalid value "{account.auth}". Valid values: {", ".join(choices)}'
    yield from _header_problems(f"{prefix}.", account.headers)


def _header_problems(prefix: str, headers: Headers) -> Iterator[Problem]:
    for name, value in headers.items():
        yield f"{prefix}headers.{quote_name(name)}", header_problem(name, value)


def _model_problems(prefix: str, model: ModelSettings) -> Iterator[Problem]:
    for name in ("context_window", "max_output_tokens", "context_size"):
        tokens = getattr(model, name)
        if tokens is not None and tokens < 1:
            yield f"{prefix}.{name}", "must be greater than 0"
    yield f"{prefix}.parameters", _json_problem(model.parameters)
    for provider, options in model.provider_options.items():
        yield f"{prefix}.provider_options.{quote_name(provider)}", _json_problem(options)
    for name, value in model.parameters.items():
        yield f"{prefix}.parameters.{quote_name(name)}", parameter_error(name, value)


def _gateway_url_problem(url: str | None) -> str | None:
    """Reject user names and passwords: unlike a proxy's URL, a gateway's URL is stored in many places."""
    return USERINFO_ERROR if url is not None and has_userinfo(url) else url_problem(url, VERCEL_URL)


def _proxy_problem(url: str | None) -> str | None:
    # The editor's own setting, `http.proxy`, may be a SOCKS proxy, which only the editor supports.
    if url is not None and url.lower().startswith("socks"):
        return "SOCKS proxies are not supported. Set `proxy` to an http or https proxy for Tollbridge"
    return url_problem(url, "http://proxy.example:3128")


def _record_problem(settings: Settings) -> str | None:
    if "\0" in (settings.record or ""):
        return "path contains a NUL character"
    try:
        settings.record_folder  # noqa: B018 - raises if the home directory is unknown
    except RuntimeError:
        return "cannot expand ~; use an absolute path"
    return None


def url_problem(url: str | None, example: str) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a port
    except ValueError:
        return f"not a valid URL. Expected something like {example}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"not an http or https URL. Expected something like {example}"
    return None


def _json_problem(value: object) -> str | None:
    """Check that a value is a JSON object. TOML also has dates, NaN and Infinity, which JSON does not."""
    if not isinstance(value, Mapping):
        return f"must be a JSON object, not {type(value).__name__}"
    for item in _scalars(value):
        if item is not None and not isinstance(item, (str, int, float, bool)):
            return f"a {type(item).__name__} cannot be sent as JSON"
        if isinstance(item, float) and not math.isfinite(item):
            return "NaN and Infinity are not valid JSON"
    try:
        write_json(value)
    except ValueError as error:
        return f"cannot be sent as JSON: {error}"
    return None


def _scalars(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [scalar for item in value.values() for scalar in _scalars(item)]
    if isinstance(value, (list, tuple)):
        return [scalar for item in value for scalar in _scalars(item)]
    return [value]
