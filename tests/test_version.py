"""One version everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tollbridge._version import __version__


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
