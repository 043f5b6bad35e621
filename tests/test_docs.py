"""What the guides show is so: their programs run as they stand, and their files are read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tollbridge.compat.profiles import load_profile, profile_file
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Role, TextPart, Tool
from tollbridge.types.quirks import Quirks

DOCS = Path(__file__).parent.parent / "docs"


def block(page: str, language: str) -> str:
    (example,) = re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return str(example)


async def run(program: str, **names: Any) -> dict[str, Any]:
    """Run a program of a guide, which may wait for things, with the names it takes for granted."""
    wrapped = f"async def _program():\n{textwrap.indent(program, '    ')}\n    return locals()"
    exec(wrapped, names)
    named: dict[str, Any] = await names["_program"]()
    return named


async def test_the_program_that_examines_a_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    async with Gateway(scenario="no-developer") as gateway:
        program = block("doctor.md", "python").replace('"my-model"', '"tollbridge/demo"')
        await run(program, base_url=gateway.url, key=None)
        kept = load_profile(gateway.url)
    assert kept is not None
    assert kept.quirks.system == "system"


def test_the_profile_that_is_shown_is_one(tmp_path: Path) -> None:
    shown = block("doctor.md", "toml")
    profile_file("http://127.0.0.1:4000/v1", tmp_path).write_text(shown)
    kept = load_profile("http://127.0.0.1:4000/v1", tmp_path)
    assert kept is not None
    table = msgspec.toml.decode(shown, type=dict[str, Any])
    server = {name for name in table if name not in ("base_url", "models")}
    named = server | set(table["models"]["my-model"])
    assert named <= set(Quirks.__struct_fields__)
    quirks = kept.quirks_for("my-model")
    for name in server - {"without"}:
        assert getattr(quirks, name) == table[name]


def test_every_shipped_profile_is_named() -> None:
    page = (DOCS / "doctor.md").read_text(encoding="utf-8").lower()
    profiles = list((DOCS.parent / "src" / "tollbridge" / "compat" / "data").glob("*.toml"))
    assert len(profiles) > 5
    for path in profiles:
        assert msgspec.toml.decode(path.read_bytes())["name"].lower() in page


async def test_the_program_that_counts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    messages = (Message(Role.USER, "Hello there, my friend."),)
    named = await run(
        block("tokens.md", "python"),
        model="openai/gpt-5",
        messages=messages,
        tools=(Tool("read", "Reads a file."),),
        usage=Usage(100, 10, 110),
        parts=(TextPart("Hello."),),
        request=ChatRequest(model="openai/gpt-5", messages=messages),
        error=ContextTooLong("too long", tokens=300_000, limit=272_000),
        tokens=80,
    )
    estimator = named["estimator"]
    assert named["before"].method == "estimated"
    assert estimator.estimate_text("openai/gpt-5", "hello") == 1
    await named["store"].aclose()
    assert (tmp_path / "tokens.db").exists()
