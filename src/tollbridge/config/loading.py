"""Load the settings: merge the layers flags, environment, file, editor and defaults, and validate each.

The file reads from the top down: errors, layers and merging, the environment, the settings file, validation,
and the account to use.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.schema import (
    DEFAULT_ACCOUNT,
    Account,
    AccountBudgets,
    AccountSettings,
    BudgetSettings,
    Headers,
    ModelSettings,
    Settings,
    describe_mismatch,
    header_problem,
    merge_options,
    parameter_error,
)
from tollbridge.protocols import DEFAULT_BACKEND, auth_choices
from tollbridge.transport.files import config_file
from tollbridge.types.errors import RequestError
from tollbridge.types.text import write_json
from tollbridge.types.urls import USERINFO_ERROR, VERCEL_URL, has_userinfo

Table = Mapping[str, Any]
# Maps the full name of a setting to its location, for example `the file /…/config.toml, line 3`.
Locate = Callable[[str], str]


# --- Errors ---


class SettingsUnusable(RequestError):
    """Raised when a settings file, an environment variable or an account cannot be used.

    `advice` says what to do, unless the message already does.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class SettingsError(RequestError):
    """Raised when a setting has an invalid value; `setting` is its full name, `problem` what is wrong."""

    def __init__(self, setting: str, problem: str, location: str) -> None:
        super().__init__(f"{setting}: {problem} ({location})")
        self.setting = setting
        self.problem = problem


# --- Layers ---

Rank = Literal["flags", "environment", "file", "editor", "defaults"]
# The highest priority first.
RANKS: tuple[Rank, ...] = ("flags", "environment", "file", "editor", "defaults")


class Layer(msgspec.Struct, frozen=True):
    """The settings of one source; `locate` returns the location of a setting in it."""

    rank: Rank
    table: Table
    locate: Locate


class LoadedSettings(msgspec.Struct, frozen=True):
    """The effective settings and their sources.

    Attributes:
        origins: The layer of each setting that is not a default, by the setting's full name.
        path: The settings file that was read, or its expected path if there is none.
    """

    settings: Settings
    origins: Mapping[str, Layer]
    path: Path

    def rank(self, setting: str) -> Rank:
        """Return the layer that a setting comes from."""
        layer = self.origins.get(setting)
        return "defaults" if layer is None else layer.rank

    def origin(self, setting: str) -> str:
        """Return the location that a setting comes from, as text for people."""
        layer = self.origins.get(setting)
        return "default" if layer is None else layer.locate(setting)

    def outranks(self, setting: str, other: str) -> bool:
        """Return whether a setting comes from a layer of higher priority than another setting."""
        return RANKS.index(self.rank(setting)) < RANKS.index(self.rank(other))


def load_settings(
    flags: Table | None = None,
    *,
    config: Table | None = None,
    editor: Table | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedSettings:
    """Load and merge the settings of all sources.

    Args:
        flags: Options of the command line; options that are `None` were not used.
        config: Settings that a program passes; they have the same rank as options.
        editor: Settings of the editor.
        environ: Environment variables, which also select the settings file.

    Raises:
        SettingsError: If a setting is invalid. The message names the setting and its location.
        SettingsUnusable: If the settings file or an environment variable cannot be read.
    """
    path = config_file(environ)
    file = read_file(path, required=bool(environ.get("TOLLBRIDGE_CONFIG")))
    layers = [  # the lowest priority first
        Layer("editor", editor or {}, lambda _: "editor"),
        Layer("file", file.table, file.locate) if file else None,
        Layer("environment", read_environment(environ), _locate_variable),
        Layer("flags", _remove_unset(config or {}), lambda _: "argument `config`"),
        Layer("flags", _remove_unset(flags or {}), _locate_flag),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, Layer] = {}
    for layer in filter(None, layers):
        validate_settings(layer.table, layer.locate)
        merged = merge_options(merged, layer.table)
        origins |= {name: layer for name, _ in iter_values(layer.table)}
    # Every layer is valid, so the merged settings are valid too.
    return LoadedSettings(msgspec.convert(merged, Settings), origins, path)


def iter_values(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a nested table with its full name. An empty table counts as a value."""
    for name, value in table.items():
        full_name = f"{prefix}{quote_name(name)}"
        if isinstance(value, Mapping) and value:
            yield from iter_values(value, f"{full_name}.")
        else:
            yield full_name, value


def _remove_unset(flags: Table) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _locate_flag(setting: str) -> str:
    names = split_name(setting)
    return "option --header" if names[0] == "headers" else f"option --{names[-1].replace('_', '-')}"


# --- Names of settings ---


def quote_name(name: str) -> str:
    """Return a name as it is written in TOML, in quotes unless it can be a bare key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def split_name(full_name: str) -> list[str]:
    """Split a dotted name, respecting quotes: `models."a/b.c".name` has three keys."""
    keys: list[str] = [""]
    quote = ""
    for character in full_name:
        if quote:
            if character == quote:
                quote = ""
            else:
                keys[-1] += character
        elif character in "\"'":
            quote = character
        elif character == ".":
            keys.append("")
        elif not character.isspace():
            keys[-1] += character
    return keys


def _join_name(keys: list[str]) -> str:
    return ".".join(quote_name(key) for key in keys)


# --- The environment ---

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


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("use 1 or 0")
    return _BOOLEANS[text.lower()]


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


def _locate_variable(setting: str) -> str:
    variable = _VARIABLE_BY_SETTING.get(setting)
    return f"environment {variable}" if variable else "environment"


# --- The settings file ---

# Settings files are a page or two; the limit stops a wrong path from being read into memory.
SIZE_LIMIT = 1024 * 1024


class SettingsFile:
    """A parsed settings file, with the line number of each setting.

    Raises:
        SettingsUnusable: If the text is not valid TOML.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _file_error(path, f"is not valid TOML: {error}") from None
        except RecursionError:
            raise _file_error(path, "is nested too deeply") from None
        self._lines = find_lines(text)

    def locate(self, setting: str) -> str:
        """Return the file and the line of a setting, or of the innermost table that contains it."""
        name = setting
        while name:
            if name in self._lines:
                return f"the file {self.path}, line {self._lines[name]}"
            name = _join_name(split_name(name)[:-1])
        return f"the file {self.path}"


def read_file(path: Path, *, required: bool = False) -> SettingsFile | None:
    """Read the settings file. Return `None` if it does not exist and is not required.

    Raises:
        SettingsUnusable: If the file cannot be read, or is missing although it is required.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if required:
            advice = "Create it, or set TOLLBRIDGE_CONFIG to another file."
            raise SettingsUnusable(f"Settings file {path} not found.", advice) from None
        return None
    except OSError as error:
        raise _file_error(path, f"cannot be read: {error.strerror}") from None
    if len(data) > SIZE_LIMIT:
        raise _file_error(path, f"is larger than {SIZE_LIMIT >> 20} MiB")
    try:
        return SettingsFile(path, data.decode())
    except UnicodeDecodeError as error:
        raise _file_error(path, f"is not UTF-8 text (byte {error.start})") from None


def _file_error(path: Path, problem: str) -> SettingsUnusable:
    advice = "Fix it, or set TOLLBRIDGE_CONFIG to another file."
    return SettingsUnusable(f"The settings file {path} {problem}.", advice)


def find_lines(text: str) -> dict[str, int]:
    """Return the line of every setting and table in a TOML text, by full name.

    Lines inside multi-line strings can look like settings. They add names that do not exist, which is
    harmless: only existing names are looked up.
    """
    lines: dict[str, int] = {}
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = split_name(stripped.strip("[").partition("]")[0])
            lines.setdefault(_join_name(table), number)
        elif "=" in stripped and not stripped.startswith("#"):
            keys = split_name(text_before_equals(stripped))
            for depth in range(1, len(keys) + 1):
                lines.setdefault(_join_name([*table, *keys[:depth]]), number)
    return lines


def text_before_equals(line: str) -> str:
    """Return the key of a line in the settings file, or the whole line if it has none."""
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "=":
            return line[:index]
    return line


# --- Validation ---

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


def _find_problems(settings: Settings) -> list[Problem]:
    return [
        ("base_url", _gateway_url_problem(settings.base_url)),
        *_header_problems("", settings.headers),
        ("proxy", _proxy_problem(settings.proxy)),
        ("record", _record_problem(settings)),
        *(
            (f"timeouts.{name}", None if 0 <= seconds < math.inf else "must be a number ≥ 0")
            for name, seconds in msgspec.structs.asdict(settings.timeouts).items()
        ),
        *_budget_problems("budgets", settings.budgets),
        *(
            problem
            for name, account in settings.accounts.items()
            for problem in _account_problems(name, account)
        ),
        *(problem for name, model in settings.models.items() for problem in _model_problems(name, model)),
    ]


def _budget_problems(prefix: str, budgets: BudgetSettings | AccountBudgets) -> list[Problem]:
    problems: list[Problem] = []
    for name, value in msgspec.structs.asdict(budgets).items():
        if isinstance(value, int | Decimal):
            valid = value.is_finite() and value >= 0 if isinstance(value, Decimal) else value >= 0
            problems.append((f"{prefix}.{name}", None if valid else "must be a number ≥ 0"))
        elif isinstance(value, Mapping):
            for account, limits in value.items():
                problems += _budget_problems(f"{prefix}.{name}.{quote_name(account)}", limits)
    return problems


def _account_problems(name: str, account: AccountSettings) -> list[Problem]:
    key_problem = None
    if not _KEY_SOURCE.fullmatch(account.key):
        # The value may be the key itself, so the message does not repeat it.
        key_problem = "must be auto, keyring, none or environment:NAME (not the key itself)"
    prefix = f"accounts.{quote_name(name)}"
    return [
        (f"{prefix}.base_url", _gateway_url_problem(account.base_url)),
        (f"{prefix}.key", key_problem),
        (f"{prefix}.auth", None if account.auth is None else _auth_problem(account.auth)),
        *_header_problems(f"{prefix}.", account.headers),
    ]


def _auth_problem(auth: str) -> str | None:
    choices = auth_choices()
    return None if auth in choices else f'invalid value "{auth}". Valid values: {", ".join(choices)}'


def _header_problems(prefix: str, headers: Headers) -> list[Problem]:
    return [
        (f"{prefix}headers.{quote_name(name)}", header_problem(name, value))
        for name, value in headers.items()
    ]


def _model_problems(name: str, model: ModelSettings) -> list[Problem]:
    prefix = f"models.{quote_name(name)}"
    limits = {
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "context_size": model.context_size,
    }
    objects: dict[str, Any] = {
        f"{prefix}.parameters": model.parameters,
        **{
            f"{prefix}.provider_options.{quote_name(provider)}": options
            for provider, options in model.provider_options.items()
        },
    }
    return [
        *(
            (f"{prefix}.{limit}", "must be greater than 0")
            for limit, tokens in limits.items()
            if tokens is not None and tokens < 1
        ),
        *((setting, _json_problem(value)) for setting, value in objects.items()),
        *(
            (f"{prefix}.parameters.{quote_name(parameter)}", parameter_error(parameter, value))
            for parameter, value in model.parameters.items()
        ),
    ]


def _gateway_url_problem(url: str | None) -> str | None:
    """Reject user names and passwords: unlike a proxy's URL, a gateway's URL is stored in many places."""
    return USERINFO_ERROR if url is not None and has_userinfo(url) else _url_problem(url, VERCEL_URL)


def _proxy_problem(url: str | None) -> str | None:
    # The editor's own setting, `http.proxy`, may be a SOCKS proxy, which only the editor supports.
    if url is not None and url.lower().startswith("socks"):
        return "SOCKS proxies are not supported. Set `proxy` to an http or https proxy for Tollbridge"
    return _url_problem(url, "http://proxy.example:3128")


def _record_problem(settings: Settings) -> str | None:
    if "\0" in (settings.record or ""):
        return "path contains a NUL character"
    try:
        settings.record_folder  # noqa: B018 - raises if the home directory is unknown
    except RuntimeError:
        return "cannot expand ~; use an absolute path"
    return None


def _url_problem(url: str | None, example: str) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
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


# --- The account to use: command line, environment, settings file, editor, default ---


def resolve_account(loaded: LoadedSettings) -> Account:
    """Return the account to use.

    A base URL selects a gateway without an account. If both a base URL and an account are set, the value
    from the source with the higher priority wins.

    Raises:
        SettingsUnusable: If one source sets both a base URL and an account, if the account is not
            configured, or if there are several accounts and none is selected.
    """
    settings = loaded.settings
    if settings.base_url and settings.account:
        if loaded.rank("base_url") == loaded.rank("account"):
            raise SettingsUnusable(
                f"{loaded.origin('base_url')} and {loaded.origin('account')} conflict. Remove one of them."
            )
        use_base_url = loaded.outranks("base_url", "account")
    else:
        use_base_url = bool(settings.base_url)
    if use_base_url and settings.base_url:
        gateway = AccountSettings(base_url=settings.base_url, headers=_gateway_headers(loaded))
        return _complete_account(loaded, DEFAULT_ACCOUNT, gateway)
    name = settings.account or _default_account_name(loaded)
    return named_account(loaded, name) if name else _vercel_account(loaded)


def named_account(loaded: LoadedSettings, name: str) -> Account:
    """Return the account with this name.

    Raises:
        SettingsUnusable: If no account with this name is configured.
    """
    accounts = loaded.settings.accounts
    if name in accounts:
        return _complete_account(loaded, name, accounts[name])
    if name == DEFAULT_ACCOUNT:
        return _vercel_account(loaded)
    if not accounts:
        raise SettingsUnusable(
            f'Account "{name}" not found in {loaded.path} (no accounts configured).',
            f"Add it with `tollbridge config set accounts.{quote_name(name)}.base_url URL`, "
            "or choose no account.",
        )
    raise SettingsUnusable(
        f'Account "{name}" not found in {loaded.path}. Configured accounts: {", ".join(accounts)}.'
    )


def all_accounts(loaded: LoadedSettings) -> list[Account]:
    """Return the account in use, followed by the other accounts of the settings."""
    selected = resolve_account(loaded)
    accounts = [named_account(loaded, name) for name in loaded.settings.accounts]
    others = [msgspec.structs.replace(account, selected=False) for account in accounts if account != selected]
    return [selected, *others]


def _default_account_name(loaded: LoadedSettings) -> str | None:
    """Return `default` if it is configured, else the only configured account, else `None`."""
    accounts = loaded.settings.accounts
    if DEFAULT_ACCOUNT in accounts:
        return DEFAULT_ACCOUNT
    if len(accounts) > 1:
        names = ", ".join(accounts)
        raise SettingsUnusable(
            f"Several accounts are configured ({names}). Choose one with --account, or set `account`."
        )
    return next(iter(accounts), None)


def _vercel_account(loaded: LoadedSettings) -> Account:
    gateway = AccountSettings(base_url=VERCEL_URL, headers=_gateway_headers(loaded))
    account = _complete_account(loaded, DEFAULT_ACCOUNT, gateway)
    return msgspec.structs.replace(account, by_default=True)


def _complete_account(loaded: LoadedSettings, name: str, account: AccountSettings) -> Account:
    """Resolve the backend: a flag or variable overrides the account, the account overrides other sources."""
    backend = loaded.settings.backend
    overrides_account = loaded.rank("backend") in ("flags", "environment")
    backend = (backend if overrides_account else None) or account.backend or backend or DEFAULT_BACKEND
    headers = {**account.headers, **_option_headers(loaded)}
    base_url = account.base_url.rstrip("/")
    return Account(name, base_url, backend, account.key, headers=headers, auth=account.auth)


def _gateway_headers(loaded: LoadedSettings) -> Headers:
    """Return the headers for a gateway that the settings name without an account.

    A header is not sent to a gateway that another source chose: it may be a secret.
    """
    settings = loaded.settings
    base_url_rank = loaded.rank("base_url")
    return {
        name: value
        for name, value in settings.headers.items()
        if not settings.base_url or _header_rank(loaded, name) == base_url_rank
    }


def _option_headers(loaded: LoadedSettings) -> Headers:
    """Return the headers of the command line, which are for the gateway in use, whatever it is."""
    headers = loaded.settings.headers
    return {name: value for name, value in headers.items() if _header_rank(loaded, name) == "flags"}


def _header_rank(loaded: LoadedSettings, name: str) -> Rank:
    setting = f"headers.{quote_name(name)}"
    return min(loaded.rank(setting), loaded.rank(f"{setting}.secret"), key=RANKS.index)
