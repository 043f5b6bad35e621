"""One version everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tollbridge.core.version import VERSION


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
