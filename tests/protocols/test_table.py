"""The table of the protocols: what it says is true, and nothing else in Python names a protocol."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tollbridge.protocols import BACKENDS, DEFAULT_BACKEND, all_protocols, find_protocol
from tollbridge.protocols.protocol import Lazy, Protocol

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/tollbridge"
PROTOCOLS = all_protocols()
FOLDERS = {path.parent.name for path in (SRC / "protocols").glob("*/__init__.py")}

# What may import the folder of a protocol, besides the folders themselves, and why.
IMPORTS = {
    "clients/protocols.py": "the public classes, one per protocol",
    "doctor": "examines one protocol, and knows its events",
    "frontends/vscode/adapters.py": "the public adapters, one per protocol",
    "testing": "a server of these protocols, which is written by hand to be independent of the clients",
}
# What may contain the name of a protocol as a string, and why.
NAMES = {
    "clients/protocols.py": "the public classes, one per protocol",
}


def modules() -> list[Path]:
    """Return the modules that may not name a protocol: all but the table and the folders."""
    inside = [SRC / "protocols" / folder for folder in FOLDERS]
    return [
        path
        for path in sorted(SRC.rglob("*.py"))
        if path != SRC / "protocols/__init__.py" and path.parent not in inside
    ]


def is_exempt(path: Path, exceptions: dict[str, str]) -> bool:
    name = path.relative_to(SRC).as_posix()
    return any(name == exception or name.startswith(f"{exception}/") for exception in exceptions)


def names_of(protocol: Protocol) -> set[str]:
    """Return the strings that only this protocol has: its names and headers."""
    headers = {header.name for header in protocol.auth.values()} - {"authorization"}
    return {protocol.name, *protocol.decoders, *headers, *protocol.headers, *protocol.response_headers}


NAMED = set().union(*(names_of(protocol) for protocol in PROTOCOLS))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_no_other_module_names_a_protocol(path: Path) -> None:
    tree = ast.parse(path.read_text())
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    folders = {name for name in imported if name and name.split(".")[1:2] == ["protocols"]}
    folders = {name for name in folders if len(name.split(".")) > 2 and name.split(".")[2] in FOLDERS}
    if not is_exempt(path, NAMES):
        assert strings & NAMED == set()
    if not is_exempt(path, IMPORTS):
        assert folders == set()


@pytest.mark.parametrize("exception", sorted({*IMPORTS, *NAMES}))
def test_every_exception_is_still_needed(exception: str) -> None:
    path = SRC / exception
    text = "".join(module.read_text() for module in (path.rglob("*.py") if path.is_dir() else [path]))
    assert any(f"tollbridge.protocols.{folder}" in text for folder in FOLDERS) or any(
        f'"{name}"' in text for name in NAMED
    )


def references(value: object) -> list[Lazy]:
    """Return the lazy references in a descriptor."""
    if isinstance(value, Lazy):
        return [value]
    if isinstance(value, functools.partial):
        return references(value.func)
    if isinstance(value, dict):
        return [reference for item in value.values() for reference in references(item)]
    fields = getattr(value, "__struct_fields__", ())
    return [reference for name in fields for reference in references(getattr(value, name))]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_everything_that_a_descriptor_names_exists(protocol: Protocol) -> None:
    lazy_references = references(protocol)
    assert lazy_references
    for reference in lazy_references:
        assert reference.load() is not None, reference.path


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_descriptor_is_consistent(protocol: Protocol) -> None:
    assert find_protocol(protocol.name) is protocol
    assert protocol.response_form == "auto" or protocol.response_form in protocol.decoders
    named = {*protocol.response_headers.values(), *protocol.first_lines.values()}
    assert named <= protocol.decoders.keys()
    assert all(name == name.lower() for name in (*protocol.headers, *protocol.response_headers))
    for version in protocol.versions.values():
        assert version.name == protocol.name
    assert protocol.at(protocol.base_url).base_url == protocol.base_url


@pytest.mark.io
@pytest.mark.parametrize("name", BACKENDS)
def test_a_protocol_is_loaded_without_the_others_and_without_its_modules(name: str) -> None:
    code = f"import sys; from tollbridge.protocols import find_protocol; find_protocol({name!r}); "
    code += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    prefix = "tollbridge.protocols."
    folder = name.replace("-", "_")
    assert {each.removeprefix(prefix) for each in loaded.split() if each.startswith(prefix)} == {
        "protocol",
        folder,
    }


def test_the_extension_offers_the_protocols_of_the_table() -> None:
    manifest = json.loads((ROOT / "extension/package.json").read_text())
    (provider,) = manifest["contributes"]["languageModelChatProviders"]
    backend = provider["configuration"]["properties"]["backend"]
    assert tuple(backend["enum"]) == BACKENDS
    assert backend["enumItemLabels"] == [find_protocol(name).title for name in BACKENDS]
    assert len(backend["enumDescriptions"]) == len(BACKENDS)
    assert backend.get("default", DEFAULT_BACKEND) == DEFAULT_BACKEND
    setup = (ROOT / "extension/src/setup.ts").read_text()
    offered = [name for name in BACKENDS if f'backend: "{name}"' in setup]
    assert offered == list(BACKENDS)


@pytest.mark.parametrize("document", ["docs/settings.md", "docs/protocol.md"])
def test_the_documents_name_every_protocol(document: str) -> None:
    text = (ROOT / document).read_text()
    assert [name for name in BACKENDS if name not in text] == []
