"""Layers of settings laid over each other: flags, environment, file, editor, defaults."""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.paths import config_file
from tollbridge.config.schema import AccountSettings, ModelSettings, Settings, about_preset
from tollbridge.types.errors import RequestError
from tollbridge.types.text import write_json
from tollbridge.types.urls import USERINFO_ERROR, VERCEL_URL, has_userinfo

# SECTION Settings checked: a mistake is told with the name of the setting and the place where it stands.

Table = Mapping[str, Any]
# From a setting's name to where it stands: `the file /…/config.toml, line 3`.
Locate = Callable[[str], str]

_WHERE = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_ENTRIES: dict[str, type[AccountSettings | ModelSettings]] = {
    "accounts": AccountSettings,
    "models": ModelSettings,
}
_KEY_SOURCE = re.compile(r"auto|keyring|none|environment:[A-Za-z_][A-Za-z0-9_]*")


class SettingsUnusable(RequestError):
    """Settings that make no sense as a whole: a file, a variable, an account. `advice` is what is left to say
    where the message does not say what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class SettingsError(RequestError):
    """A setting that cannot be; `setting` is its name."""

    def __init__(self, setting: str, complaint: str, place: str) -> None:
        super().__init__(f"{setting}: {complaint} ({place})")
        self.setting = setting


def validate_settings(table: Table, locate: Locate) -> Settings:
    """The settings a table holds, all of them sound."""
    for group, shape in _ENTRIES.items():
        entries = table.get(group, {})
        # One by one, so that a complaint can name the entry it is about.
        for name, entry in entries.items() if isinstance(entries, Mapping) else ():
            _converted(entry, shape, f"{group}.{quoted(name)}", locate)
    settings: Settings = _converted(table, Settings, "", locate)
    for setting, complaint in _complaints(settings):
        raise SettingsError(setting, complaint, locate(setting))
    return settings


def quoted(name: str) -> str:
    """A name as it stands in the file's headings: bare where it can be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _converted(table: object, shape: type[Any], prefix: str, locate: Locate) -> Any:
    try:
        return msgspec.convert(table, shape)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _WHERE.search(text)
        path = found[1] if found else ""
        complaint = _WHERE.sub("", text)
        unknown = _UNKNOWN.match(complaint)
        if unknown:
            complaint = f"there is no such setting.{_meant(unknown[1], shape, path)}"
            path = f"{path}.{unknown[1]}" if path else unknown[1]
        setting = ".".join(step for step in (prefix, path) if step) or "the settings"
        raise SettingsError(setting, complaint, locate(setting)) from None


def _meant(name: str, shape: type[Any], path: str) -> str:
    for step in filter(None, path.split(".")):
        shape = next((f.type for f in msgspec.structs.fields(shape) if f.name == step), shape)
    names = [field.name for field in msgspec.structs.fields(shape)]
    close = difflib.get_close_matches(name, names, 1)
    return f" Did you mean {close[0]}?" if close else f" There are: {', '.join(names)}."


def _complaints(settings: Settings) -> list[tuple[str, str]]:
    found: list[tuple[str, str | None]] = [
        ("base_url", _about_gateway(settings.base_url)),
        ("proxy", _about_proxy(settings.proxy)),
        ("record", _about_folder(settings)),
        *(
            (f"timeouts.{name}", None if 0 <= seconds < math.inf else "a time is a number not less than 0")
            for name, seconds in msgspec.structs.asdict(settings.timeouts).items()
        ),
        *(item for name, account in settings.accounts.items() for item in _about_account(name, account)),
        *(item for name, model in settings.models.items() for item in _about_model(name, model)),
    ]
    return [(setting, complaint) for setting, complaint in found if complaint]


def _about_account(name: str, account: AccountSettings) -> list[tuple[str, str | None]]:
    source = None
    if not _KEY_SOURCE.fullmatch(account.key):
        # What stands there may be the key itself, so it is not repeated.
        source = "it says where the key comes from: auto, keyring, none or environment:NAME; never the key"
    prefix = f"accounts.{quoted(name)}"
    return [(f"{prefix}.base_url", _about_gateway(account.base_url)), (f"{prefix}.key", source)]


def _about_model(name: str, model: ModelSettings) -> list[tuple[str, str | None]]:
    prefix = f"models.{quoted(name)}"
    sizes = {"context_window": model.context_window, "max_output_tokens": model.max_output_tokens}
    objects: dict[str, Any] = {
        f"{prefix}.parameters": model.parameters,
        **{f"{prefix}.provider_options.{quoted(of)}": given for of, given in model.provider_options.items()},
    }
    return [
        *(
            (f"{prefix}.{size}", "it must be more than 0")
            for size, n in sizes.items()
            if n is not None and n < 1
        ),
        *((place, _about_json(value)) for place, value in objects.items()),
        *(
            (f"{prefix}.parameters.{quoted(parameter)}", about_preset(parameter, value))
            for parameter, value in model.parameters.items()
        ),
    ]


def _about_gateway(url: str | None) -> str | None:
    """A proxy may want a password in its address; a gateway's is written down in many places."""
    return USERINFO_ERROR if url is not None and has_userinfo(url) else _about_url(url, VERCEL_URL)


def _about_proxy(url: str | None) -> str | None:
    """The editor's own setting, `http.proxy`, may name one that only the editor can use."""
    if url is not None and url.lower().startswith("socks"):
        return "SOCKS proxies are not supported. Set one of http or https for Tollbridge alone (`proxy`)"
    return _about_url(url, "http://proxy.example:3128")


def _about_folder(settings: Settings) -> str | None:
    if "\0" in (settings.record or ""):
        return "the name of a folder has no U+0000 in it"
    try:
        settings.record_folder  # noqa: B018 - read for what it says of a home that is nobody's
    except RuntimeError:
        return "there is no such home. Write the whole path of the folder"
    return None


def _about_url(url: str | None, example: str) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return "that is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"that is not an http or https URL. For example: {example}"
    return None


def _about_json(value: object) -> str | None:
    """TOML also has dates, and numbers that JSON lacks; a gateway takes neither."""
    if not isinstance(value, Mapping):
        return f"it must be a JSON object, not {type(value).__name__}"
    for item in _leaves(value):
        if item is not None and not isinstance(item, (str, int, float, bool)):
            return f"a {type(item).__name__} cannot be sent as JSON"
        if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            return "JSON has no such number"
    try:
        write_json(value)
    except ValueError as error:
        return f"it cannot be sent as JSON: {error}"
    return None


def _leaves(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


# SECTION The settings that the environment can hold, and how they are read from it.

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


# SECTION The settings file: TOML, and the line each setting stands on.

# A settings file of a person is a page or two.
SIZE_LIMIT = 1024 * 1024


class SettingsFile:
    """What a file says, and where."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _unusable(path, f"is not TOML: {error}") from None
        except RecursionError:
            raise _unusable(path, "is nested too deeply") from None
        self._lines = find_lines(text)

    def locate(self, setting: str) -> str:
        """Where a setting stands, or the table it should stand in."""
        name = setting
        while name:
            if name in self._lines:
                return f"the file {self.path}, line {self._lines[name]}"
            name = _joined(split_name(name)[:-1])
        return f"the file {self.path}"


def read_file(path: Path, *, required: bool = False) -> SettingsFile | None:
    """The file, or `None` where there is none and none was asked for."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if required:
            advice = "Make it, or name another with TOLLBRIDGE_CONFIG."
            raise SettingsUnusable(f"There is no settings file {path}.", advice) from None
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    if len(data) > SIZE_LIMIT:
        raise _unusable(path, f"is larger than {SIZE_LIMIT >> 20} MiB")
    try:
        return SettingsFile(path, data.decode())
    except UnicodeDecodeError as error:
        raise _unusable(path, f"is not UTF-8 text (byte {error.start})") from None


def _unusable(path: Path, why: str) -> SettingsUnusable:
    advice = "Correct it, or name another with TOLLBRIDGE_CONFIG."
    return SettingsUnusable(f"The settings file {path} {why}.", advice)


def find_lines(text: str) -> dict[str, int]:
    """The line of every setting and table, by its full name. Lines inside long strings may be taken for
    settings that do not exist, which nobody asks for."""
    lines: dict[str, int] = {}
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = split_name(stripped.strip("[").partition("]")[0])
            lines.setdefault(_joined(table), number)
        elif "=" in stripped and not stripped.startswith("#"):
            name = split_name(_before_equals(stripped))
            for depth in range(1, len(name) + 1):
                lines.setdefault(_joined([*table, *name[:depth]]), number)
    return lines


def split_name(name: str) -> list[str]:
    """`models."a/b.c".name` is three steps."""
    steps: list[str] = [""]
    quote = ""
    for character in name:
        if quote:
            if character == quote:
                quote = ""
            else:
                steps[-1] += character
        elif character in "\"'":
            quote = character
        elif character == ".":
            steps.append("")
        elif not character.isspace():
            steps[-1] += character
    return steps


def _joined(steps: list[str]) -> str:
    return ".".join(quoted(step) for step in steps)


def _before_equals(line: str) -> str:
    quote = ""
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "=":
            return line[:place]
    return line


# SECTION Layers of settings laid over each other: flags, environment, file, editor, defaults.

Rank = Literal["flags", "environment", "file", "editor", "defaults"]
# The strongest first.
RANKS: tuple[Rank, ...] = ("flags", "environment", "file", "editor", "defaults")


class Layer(msgspec.Struct, frozen=True):
    """What one source says; `locate` tells where in it a setting stands."""

    rank: Rank
    table: Table
    locate: Callable[[str], str]


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings in force. `origins` has, for each that someone set, the layer it came from."""

    settings: Settings
    origins: Mapping[str, Layer]
    # The file that was read, or where one would be.
    path: Path

    def rank(self, setting: str) -> Rank:
        layer = self.origins.get(setting)
        return "defaults" if layer is None else layer.rank

    def origin(self, setting: str) -> str:
        """Where a value came from, for people."""
        layer = self.origins.get(setting)
        return "default" if layer is None else layer.locate(setting)

    def outranks(self, setting: str, other: str) -> bool:
        return RANKS.index(self.rank(setting)) < RANKS.index(self.rank(other))


def load_settings(
    flags: Table | None = None,
    *,
    editor: Table | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedSettings:
    """The settings in force. Raises `SettingsError` for what cannot be, naming the setting and the place."""
    path = config_file(environ)
    file = read_file(path, required=bool(environ.get("TOLLBRIDGE_CONFIG")))
    layers = [
        Layer("editor", editor or {}, lambda _: "editor"),
        Layer("file", file.table, file.locate) if file else None,
        Layer("environment", read_environment(environ), locate),
        Layer("flags", _given(flags or {}), _locate_flag),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, Layer] = {}
    for layer in filter(None, layers):  # the weakest first
        validate_settings(layer.table, layer.locate)
        _lay(layer.table, merged)
        origins |= {name: layer for name, _ in leaves(layer.table)}
    # Each layer was sound by itself, and so is what they come to.
    return LoadedSettings(msgspec.convert(merged, Settings), origins, path)


def leaves(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its full name. A table that is empty is a value too."""
    for name, value in table.items():
        full = f"{prefix}{quoted(name)}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{full}.")
        else:
            yield full, value


def _lay(table: Table, under: dict[str, Any]) -> None:
    """Tables are joined; everything else, lists too, takes the place of what was there."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            below = under.get(name)
            joined = dict(below) if isinstance(below, Mapping) else {}
            _lay(value, joined)
            under[name] = joined
        else:
            under[name] = value


def _given(flags: Table) -> dict[str, Any]:
    """Flags that were not given say nothing."""
    return {name: value for name, value in flags.items() if value is not None}


def _locate_flag(setting: str) -> str:
    return f"option --{split_name(setting)[-1].replace('_', '-')}"
