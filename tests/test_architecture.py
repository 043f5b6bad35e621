"""The map and the changelog: what they list is what there is."""

from __future__ import annotations

import ast
import re
import tomllib
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


def test_everything_at_the_top_has_its_layer() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = [name for layer in contract["layers"] for name in layer.split(" | ")]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert sorted(layered) == sorted(f"tollbridge.{name}" for name in packages | modules)


def test_what_waits_is_named_in_the_map_and_nothing_else_is() -> None:
    told = re.search(
        r"^Only these wait for anything: (.*?)\.$", (ROOT / "ARCHITECTURE.md").read_text(), re.M | re.S
    )
    assert told is not None
    named = set(re.findall(r"`([a-z/_.]+)`", told[1]))
    waiting = [path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if _waits(path)]
    places = {path.as_posix() if path.as_posix() in named else path.parts[0] for path in waiting}
    assert places == named


def _waits(path: Path) -> bool:
    tree = ast.walk(ast.parse(path.read_text()))
    return any(
        isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith) for node in tree
    )


def test_the_changelog_names_every_command() -> None:
    (line,) = re.findall(r"^- The command line: (.*)\.$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert re.findall(r"`([a-z]+)`", line) == sorted(COMMANDS)
