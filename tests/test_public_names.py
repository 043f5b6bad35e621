"""What `import tollbridge` gives, and what it does not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tollbridge
from tollbridge.types import errors

ROOT = Path(__file__).resolve().parents[1]

NAMES = {
    *(
        "OpenResponsesClient",
        "OpenResponsesStreamAdapter",
        "StreamUsage",
        "translate_messages",
        "UsageTracker",
    ),
    *("TextPart", "ThinkingPart", "ToolCallPart", "ToolResultPart", "DataPart", "Message", "Role", "Usage"),
    *("ChatRequest", "Tool", "NamedTool", "OutputFormat", "Model", "Answer", "Bridge", "Turn"),
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


def test_every_public_name_can_be_had() -> None:
    assert [name for name in tollbridge.__all__ if not hasattr(tollbridge, name)] == []


def test_type_checkers_are_shown_the_same_names() -> None:
    tree = ast.parse((ROOT / "src/tollbridge/__init__.py").read_text())
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname for node in guard.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert shown == set(tollbridge.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'Nonsense'"):
        _ = tollbridge.Nonsense


@pytest.mark.parametrize(
    "name", ["OpenResponsesClient", "OpenResponsesStreamAdapter", "Message", "Usage", "Bridge"]
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
            "import tollbridge.clients.openresponses",
            {"aiohttp", "rich", "click", "truststore", "yarl", "sqlite3", "jsonschema"},
        ),
        (
            "from tollbridge import OpenResponsesStreamAdapter, Bridge",
            {"aiohttp", "rich", "click", "truststore"},
        ),
        ("from tollbridge import Message, Role, TextPart", {"aiohttp", "rich", "click", "ssl", "asyncio"}),
    ],
)
def test_loading_a_name_loads_no_more_than_it_needs(statement: str, unloaded: set[str]) -> None:
    assert loaded_by(statement) & unloaded == set()
