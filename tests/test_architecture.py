"""ARCHITECTURE.md and CHANGELOG.md list what really exists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from tollbridge.cli import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tollbridge"


def test_every_package_and_module_is_in_the_tree_of_the_architecture() -> None:
    drawn = re.search(r"^src/tollbridge/\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.M | re.S)
    assert drawn is not None
    listed = re.findall(r"^  ([a-z_]+(?:/|\.py)) ", drawn[1], re.M)
    packages = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__main__.py", "_version.py"}
    assert sorted(listed) == sorted(packages | modules)


def test_every_package_and_module_has_a_layer() -> None:
    layered = [name for layer in _contracts()[0]["layers"] for name in layer.split(" | ")]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "_version"}
    assert sorted(layered) == sorted(f"tollbridge.{name}" for name in packages | modules)


def test_the_architecture_lists_the_layers_that_are_checked() -> None:
    rules = (ROOT / "ARCHITECTURE.md").read_text().partition("## Dependency rules")[2].partition("\n## ")[0]
    listed = [re.findall(r"`([a-z_]+)`", line) for line in re.findall(r"^\d+\. (.*)$", rules, re.M)]
    checked = [layer.replace("tollbridge.", "").split(" | ") for layer in _contracts()[0]["layers"]]
    assert [sorted(layer) for layer in listed] == [sorted(layer) for layer in checked]


def test_the_embedded_gateway_may_use_only_the_codecs_and_the_types() -> None:
    layers, gateway = _contracts()
    below_the_entry_points = {name for layer in layers["layers"][1:] for name in layer.split(" | ")}
    # The codecs use the policy.
    allowed = {"tollbridge.policy", "tollbridge.protocols", "tollbridge.types", *gateway["source_modules"]}
    assert set(gateway["forbidden_modules"]) == below_the_entry_points - allowed


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def test_the_list_of_async_modules_is_complete() -> None:
    sentence = re.search(
        r"^Only these packages and modules are async: (.*?)\.$",
        (ROOT / "ARCHITECTURE.md").read_text(),
        re.M | re.S,
    )
    assert sentence is not None
    named = set(re.findall(r"`([a-z/_.]+)`", sentence[1]))
    modules = [path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if _is_async(path)]
    places = {path.as_posix() if path.as_posix() in named else path.parts[0] for path in modules}
    assert places == named


def _is_async(path: Path) -> bool:
    source = path.read_text()
    # Only a file with one of these words has to be parsed.
    return bool(re.search(r"\b(?:async|await)\b", source)) and any(
        isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        for node in ast.walk(ast.parse(source))
    )


def test_the_changelog_names_every_command() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    (line,) = re.findall(r"^- The command line: (.*)\.$", changelog, re.M)
    later = re.findall(r"^- The command `([a-z]+)`", changelog, re.M)
    assert sorted([*re.findall(r"`([a-z]+)`", line), *later]) == sorted(COMMANDS)
