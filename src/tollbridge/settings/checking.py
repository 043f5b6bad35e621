"""Settings checked: a mistake is told with the name of the setting and the place where it stands."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.core.addresses import NO_USERINFO, VERCEL, has_userinfo
from tollbridge.core.errors import RequestError
from tollbridge.core.json import write_json
from tollbridge.settings.model import Account, ModelSettings, Settings
from tollbridge.settings.presets import about_preset

Table = Mapping[str, Any]
# From a setting's name to where it stands: `the file /…/config.toml, line 3`.
Locate = Callable[[str], str]

_WHERE = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_ENTRIES: dict[str, type[Account | ModelSettings]] = {"accounts": Account, "models": ModelSettings}
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


def check(table: Table, locate: Locate) -> Settings:
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
        *(
            (f"timeouts.{name}", None if 0 <= seconds < math.inf else "a time is a number not less than 0")
            for name, seconds in msgspec.structs.asdict(settings.timeouts).items()
        ),
        *(item for name, account in settings.accounts.items() for item in _about_account(name, account)),
        *(item for name, model in settings.models.items() for item in _about_model(name, model)),
    ]
    return [(setting, complaint) for setting, complaint in found if complaint]


def _about_account(name: str, account: Account) -> list[tuple[str, str | None]]:
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
    return NO_USERINFO if url is not None and has_userinfo(url) else _about_url(url, VERCEL)


def _about_proxy(url: str | None) -> str | None:
    """The editor's own setting, `http.proxy`, may name one that only the editor can use."""
    if url is not None and url.lower().startswith("socks"):
        return "SOCKS proxies are not supported. Set one of http or https for Tollbridge alone (`proxy`)"
    return _about_url(url, "http://proxy.example:3128")


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
