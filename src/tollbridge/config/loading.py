"""Load the settings: merge the layers flags, environment, file, editor and defaults, and validate each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from tollbridge.config.environment import locate_variable, read_environment
from tollbridge.config.file import read_file
from tollbridge.config.names import iter_values, split_name
from tollbridge.config.parameters import merge_options
from tollbridge.config.schema import Settings
from tollbridge.config.validation import Locate, Table, validate_settings
from tollbridge.transport.files import config_file

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
        Layer("file", file.table, file.locate),
        Layer("environment", read_environment(environ), locate_variable),
        Layer("flags", _remove_unset(config or {}), lambda _: "argument `config`"),
        Layer("flags", _remove_unset(flags or {}), _locate_flag),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, Layer] = {}
    for layer in layers:
        validate_settings(layer.table, layer.locate)
        merged = merge_options(merged, layer.table)
        origins |= {name: layer for name, _ in iter_values(layer.table)}
    # Every layer is valid, so the merged settings are valid too.
    return LoadedSettings(msgspec.convert(merged, Settings), origins, path)


def _remove_unset(flags: Table) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _locate_flag(setting: str) -> str:
    names = split_name(setting)
    return "option --header" if names[0] == "headers" else f"option --{names[-1].replace('_', '-')}"
