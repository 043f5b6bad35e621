"""What `import tollbridge` gives, and what it does not load."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import subprocess
import sys
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import tollbridge
from tollbridge.types import errors

ROOT = Path(__file__).resolve().parents[1]

NAMES = {
    *(
        "OpenResponsesClient",
        "OpenResponsesStreamAdapter",
        "translate_messages",
        "UsageTracker",
    ),
    *("TextPart", "ThinkingPart", "ToolCallPart", "ToolResultPart", "DataPart", "Message", "Role", "Usage"),
    *("ChatRequest", "Tool", "NamedTool", "OutputFormat", "Model", "Turn"),
    *(
        "Engine",
        "SyncEngine",
        "Answer",
        "ChatModelProvider",
        "HybridTokenEstimator",
        "VSCodeStreamAdapter",
    ),
    *("TextDelta", "ReasoningDelta", "ToolCall", "Finished", "Failed", "Account", "Settings", "Observer"),
    *("Timeouts", "RetryPolicy"),
}
ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.BridgeError)
}


@pytest.mark.parametrize("name", sorted(NAMES | ERRORS))
def test_a_promised_name_is_there_and_documented_as_public(name: str) -> None:
    assert getattr(tollbridge, name).__name__ == name
    assert name in tollbridge.__all__
    assert name in dir(tollbridge)


def test_the_docstring_of_the_package_lists_every_public_name_once() -> None:
    listed = tollbridge.__doc__.partition("The public names:\n")[2].rpartition("\n\n")[0]
    names = [name.strip() for line in listed.splitlines() for name in line.rpartition(":")[2].split(",")]
    assert sorted(filter(None, names)) == sorted(tollbridge.__all__)


def test_every_public_name_can_be_had() -> None:
    assert [name for name in tollbridge.__all__ if not hasattr(tollbridge, name)] == []


def test_type_checkers_are_shown_the_same_names() -> None:
    tree = ast.parse((ROOT / "src/tollbridge/__init__.py").read_text())
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname for node in guard.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert shown == set(tollbridge.__all__)


def public_callables() -> list[tuple[str, Any]]:
    """Every public class and function, and every public method of a public class, by its dotted name."""
    names: list[tuple[str, Any]] = []
    for name in tollbridge.__all__:
        value = getattr(tollbridge, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue  # a union or an alias of types
        names.append((name, value))
        for method in vars(value) if inspect.isclass(value) else ():
            member = getattr(value, method)
            if not method.startswith("_") and (inspect.isfunction(member) or inspect.ismethod(member)):
                names.append((f"{name}.{method}", member))
    return names


@pytest.mark.parametrize(("name", "value"), public_callables())
def test_a_public_name_has_a_docstring_a_signature_and_resolvable_type_hints(name: str, value: Any) -> None:
    assert inspect.getdoc(value), name
    assert inspect.signature(value) is not None
    target = value
    if inspect.isclass(value) and inspect.isfunction(value.__init__) and not issubclass(value, Enum):
        target = value.__init__
    hints = typing.get_type_hints(target)
    typing.get_type_hints(value)
    if inspect.isfunction(target):
        parameters = [each for each in inspect.signature(target).parameters if each not in ("self", "cls")]
        assert [each for each in parameters if each not in hints] == []


def test_help_works_and_names_everything_public() -> None:
    text = pydoc.plain(pydoc.render_doc(tollbridge))
    assert [name for name in tollbridge.__all__ if name not in text] == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("tollbridge.local", ("LocalModel", "SMOLLM2")),
        ("tollbridge.sidecar", ("main",)),
    ],
)
def test_a_documented_module_can_be_imported(module: str, names: tuple[str, ...]) -> None:
    imported = importlib.import_module(module)
    assert [name for name in names if not hasattr(imported, name)] == []


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'Nonsense'"):
        _ = tollbridge.Nonsense


@pytest.mark.parametrize(
    "name", ["OpenResponsesClient", "OpenResponsesStreamAdapter", "Message", "Usage", "Turn"]
)
def test_a_public_class_says_what_it_is(name: str) -> None:
    assert getattr(tollbridge, name).__doc__


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        timeout=60,
    )
    assert done.stderr == ""
    return {module.partition(".")[0] for module in done.stdout.split()}


@pytest.mark.io
@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import tollbridge", {"aiohttp", "rich", "click", "ssl", "asyncio", "msgspec", "truststore"}),
        # asyncio itself loads ssl
        (
            "import tollbridge.clients.protocols",
            {"aiohttp", "rich", "click", "truststore", "yarl", "sqlite3", "jsonschema"},
        ),
        (
            "from tollbridge import OpenResponsesStreamAdapter",
            {"aiohttp", "rich", "click", "truststore"},
        ),
        ("from tollbridge import Message, Role, TextPart", {"aiohttp", "rich", "click", "ssl", "asyncio"}),
    ],
)
def test_loading_a_name_loads_no_more_than_it_needs(statement: str, unloaded: set[str]) -> None:
    assert loaded_by(statement) & unloaded == set()
