"""The map and the changelog: what they list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from tollbridge.cli import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tollbridge"


def test_everything_at_the_top_stands_in_the_map() -> None:
    drawn = re.search(r"^src/tollbridge/\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.M | re.S)
    assert drawn is not None
    listed = re.findall(r"^  ([a-z_]+(?:/|\.py)) ", drawn[1], re.M)
    packages = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("[a-z]*.py")}
    assert sorted(listed) == sorted(packages | modules)


def test_the_changelog_names_every_command() -> None:
    (line,) = re.findall(r"^- The command line: (.*)\.$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert re.findall(r"`([a-z]+)`", line) == sorted(COMMANDS)
