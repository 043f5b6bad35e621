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
from tollbridge import CacheReport, Preflight
from tollbridge.transport.http import HttpResponse
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
# Types that are imported for type checkers only.
INTERNAL = {"HttpResponse": HttpResponse, "Preflight": Preflight, "CacheReport": CacheReport}
# What methods return that only Tollbridge itself calls.
NOT_EXPORTED = {
    "HttpResponse": "`send` is for the checks of `doctor`",
    "PassedResponse": "`forward` is for requests that pass unchanged through `serve`",
    "CacheTracker": "`cache_tracker` is for the observers of a turn",
    "Pending": "the methods of `UsageTracker` that record a row are for the observers of a turn",
}
ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.BridgeError)
}


PUBLIC = [name for name in dir(tollbridge) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted(NAMES | ERRORS))
def test_a_promised_name_is_public(name: str) -> None:
    assert getattr(tollbridge, name).__name__ == name
    assert name in PUBLIC


def test_the_stub_has_each_name_once_and_every_name_can_be_imported() -> None:
    tree = ast.parse((ROOT / "src/tollbridge/__init__.pyi").read_text())
    shown = [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(filter(None, shown)) == sorted([*PUBLIC, "__version__"])
    assert [name for name in PUBLIC if not hasattr(tollbridge, name)] == []


def own_classes(kind: Any) -> set[type]:
    """Return the classes of this package in a type hint."""
    if inspect.isclass(kind) and not typing.get_args(kind):
        return {kind} if kind.__module__.startswith("tollbridge.") else set()
    inner = kind if isinstance(kind, list) else typing.get_args(kind)
    return set().union(*(own_classes(each) for each in inner))


def test_what_a_public_method_returns_is_public() -> None:
    public = {getattr(tollbridge, name) for name in PUBLIC if inspect.isclass(getattr(tollbridge, name))}
    hidden: dict[str, str] = {}
    for name in PUBLIC:
        value = getattr(tollbridge, name)
        members = inspect.getmembers_static(value) if inspect.isclass(value) else [("", value)]
        for member, function in members:
            function = function.fget if isinstance(function, property) else function
            function = getattr(function, "__func__", function)
            if member.startswith("_") or not inspect.isfunction(function):
                continue
            returned = typing.get_type_hints(function, localns=INTERNAL).get("return")
            hidden |= {each.__name__: f"{name}.{member}" for each in own_classes(returned) - public}
    assert {each: method for each, method in hidden.items() if each not in NOT_EXPORTED} == {}


def public_callables() -> list[tuple[str, Any]]:
    """Every public class and function, and every public method of a public class, by its dotted name."""
    names: list[tuple[str, Any]] = []
    for name in PUBLIC:
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
    if (
        inspect.isclass(value)
        and inspect.isfunction(value.__init__)
        and not issubclass(value, Enum)
        and value is not tollbridge.Store
    ):
        target = value.__init__
    hints = typing.get_type_hints(target, localns=INTERNAL)
    typing.get_type_hints(value, localns=INTERNAL)
    if inspect.isfunction(target):
        parameters = [each for each in inspect.signature(target).parameters if each not in ("self", "cls")]
        assert [each for each in parameters if each not in hints] == []


def test_help_is_one_page_that_says_where_the_names_are() -> None:
    text = pydoc.plain(pydoc.render_doc(tollbridge))
    assert len(text.splitlines()) < 100
    assert "__init__.pyi" in text


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
        _ = tollbridge.Nonsense  # type: ignore[attr-defined]


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
