"""Layers of settings laid over each other: flags, environment, file, editor, defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from tollbridge.core.places import config_file
from tollbridge.settings import environment as variables
from tollbridge.settings.checking import Table, check, quoted
from tollbridge.settings.file import read_file, split_name
from tollbridge.settings.model import Settings

Rank = Literal["flags", "environment", "file", "editor", "defaults"]
# The strongest first.
RANKS: tuple[Rank, ...] = ("flags", "environment", "file", "editor", "defaults")


class Layer(msgspec.Struct, frozen=True):
    """What one source says; `locate` tells where in it a setting stands."""

    rank: Rank
    table: Table
    locate: Callable[[str], str]


class Loaded(msgspec.Struct, frozen=True):
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


def load(
    flags: Table | None = None,
    *,
    editor: Table | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """The settings in force. Raises `SettingsError` for what cannot be, naming the setting and the place."""
    path = config_file(environ)
    file = read_file(path, required=bool(environ.get("TOLLBRIDGE_CONFIG")))
    layers = [
        Layer("editor", editor or {}, lambda _: "editor"),
        Layer("file", file.table, file.locate) if file else None,
        Layer("environment", variables.read_environment(environ), variables.locate),
        Layer("flags", _given(flags or {}), _locate_flag),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, Layer] = {}
    for layer in filter(None, layers):  # the weakest first
        check(layer.table, layer.locate)
        _lay(layer.table, merged)
        origins |= {name: layer for name, _ in leaves(layer.table)}
    # Each layer was sound by itself, and so is what they come to.
    return Loaded(msgspec.convert(merged, Settings), origins, path)


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
