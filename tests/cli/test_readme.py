"""Run the commands and programs of the README and the guides, with the embedded gateway as the server."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from docs.pictures import charts, diagram
from docs.pictures.svg import DARK, LIGHT, Drawing, Theme
from tests.cli.cli_process import environment

from tollbridge.cli import COMMANDS
from tollbridge.testing.server import Gateway

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The pages whose commands and programs are complete, so that they can be run.
COMMAND_PAGES = ("README.md", "docs/doctor.md", "docs/gateway.md", "docs/recordings.md", "docs/tokens.md")
PROGRAM_PAGES = ("README.md", "docs/gateway.md", "docs/python.md")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# The models and URLs that are replaced by those of the embedded gateway.
MODELS = ("anthropic/claude-sonnet-4.5", "openai/gpt-5.4")
URLS = ("https://ai-gateway.vercel.sh/v1", "http://127.0.0.1:8080/v1", "http://127.0.0.1:4010/v1")
DEMO = "tollbridge/demo"


class Shown(NamedTuple):
    """A command of a page and the output shown after it; `…` matches anything."""

    command: str
    output: list[str]


def blocks(language: str, pages: Iterable[str]) -> list[str]:
    texts = ((ROOT / page).read_text(encoding="utf-8") for page in pages)
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [block for text in texts for block in pattern.findall(text)]


def commands() -> Iterator[Shown]:
    for block in blocks("console", COMMAND_PAGES):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield Shown(command.partition("   #")[0].strip(), output)


def with_demo(text: str, url: str) -> str:
    for real in URLS:
        text = text.replace(real, url)
    for model in MODELS:
        text = text.replace(model, DEMO)
    return text


def is_as_shown(printed: str, shown: list[str]) -> bool:
    """Return whether the output matches. A line that is only `…` matches any number of lines."""
    lines = "".join(r"(.*\n)*" if line == "…" else _line(line) for line in shown)
    return re.fullmatch(lines + r"\n*", printed) is not None


def _line(line: str) -> str:
    return ".*".join(re.escape(words) for words in line.split("…")) + r"\s*\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the command and the files that the README mentions."""
    program = tmp_path / "bin" / "tollbridge"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tollbridge "$@"\n')
    program.chmod(0o755)
    (tmp_path / "plan.png").write_bytes(PIXEL)
    for name in ("README.md", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def variables(home: Path, url: str) -> dict[str, str]:
    extra = {
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TOLLBRIDGE_BASE_URL": url,
        "TOLLBRIDGE_DATA_DIR": str(home / "data"),
        "AI_GATEWAY_API_KEY": "your-key",
    }
    return environment(extra)


async def run(command: str, home: Path, env: dict[str, str]) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", command),
        cwd=home,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def running(command: str, home: Path, env: dict[str, str]) -> AsyncIterator[str]:
    """Run a server, and yield the first line of its output."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"exec {command}"), cwd=home, env=env, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield (await process.stdout.readline()).decode()
    finally:
        process.terminate()
        await process.communicate()


async def use_local_server(line: str) -> None:
    """Ask the server of `tollbridge serve`, whose first line names its URL."""
    (url,) = re.findall(r"at (http://127\.0\.0\.1:\d+)$", line.strip())
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/health") as response:
            assert await response.json() == {"status": "ok"}
        body = {"model": DEMO, "messages": [{"role": "user", "content": "Hello."}]}
        async with http.post(f"{url}/v1/chat/completions", json=body) as response:
            answer = await response.json()
    assert "“Hello.”" in answer["choices"][0]["message"]["content"]  # the demo model quotes the question


@pytest.mark.slow
async def test_every_command_works_and_prints_the_output_shown(home: Path) -> None:
    count = 0
    async with Gateway() as gateway:
        env = variables(home, gateway.url)
        for command, output in commands():
            replaced = with_demo(command, gateway.url)
            shown = [with_demo(line, gateway.url) for line in output]
            if command.startswith("tollbridge count"):  # it sends no request
                replaced, shown = command, output
            if command.startswith("tollbridge gateway"):
                async with running(replaced.replace("4010", "0"), home, env) as line:
                    printed, shown = re.sub(r":\d+/", ":4010/", line), output
            elif command == "tollbridge serve":
                async with running(f"{replaced} --port 0", home, env) as printed:
                    await use_local_server(printed)
            else:
                assert "--write" not in command  # it would change the files of a real agent
                code, printed, err = await run(replaced, home, env)
                assert code == 0, (command, err)
            if shown:
                assert is_as_shown(printed, shown), (command, printed)
            count += 1
    assert count >= 14


@pytest.mark.parametrize("program", blocks("python", PROGRAM_PAGES))
async def test_every_python_program_runs_unchanged(program: str, home: Path) -> None:
    async with Gateway() as gateway:
        (home / "program.py").write_text(with_demo(program, gateway.url), encoding="utf-8")
        command = f'"{sys.executable}" -W error program.py'
        code, out, err = await run(command, home, variables(home, gateway.url))
    assert (code, err) == (0, "")
    expected = "Sunny in Oslo" if "get_weather" in program else "Hello!"
    assert ("print" not in program) or expected in out


def test_every_command_is_mentioned() -> None:
    for name in COMMANDS:
        assert re.search(rf"`tollbridge {name}\b|`, `{name}`|, `{name}`", README), name


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"`make ([a-z]+)`|^\$ make ([a-z]+)", README, re.MULTILINE))
    existing = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = {first or second for first, second in targets}
    assert {"run", "test", "vscode", "vsix"} <= mentioned <= existing


def test_the_extras_exist() -> None:
    (extras,) = re.findall(r"pip install '\.\[([a-z,]+)\]'", README)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_links_point_to_existing_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    for link in [*links, *re.findall(r'(?:src|srcset)="([^"]+)"', text)]:
        assert (page.parent / link).exists(), link


def test_every_picture_has_a_light_and_a_dark_version() -> None:
    names = {path.name for path in (ROOT / "docs" / "pictures").iterdir() if path.suffix in (".svg", ".webp")}
    assert {name.replace("-light.", "-dark.") for name in names if "-light." in name} == {
        name for name in names if "-dark." in name
    }
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for picture in re.findall(r"<picture>(.*?)</picture>", page.read_text(encoding="utf-8"), re.DOTALL):
            (dark,), (light,) = (
                re.findall(r'srcset="([^"]+)"', picture),
                re.findall(r'src="([^"]+)"', picture),
            )
            assert (dark, 'alt="' in picture) == (light.replace("-light.", "-dark."), True)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("request-path", diagram.draw),
        ("benchmark", charts.draw_benchmark),
        ("learning", charts.draw_learning),
    ],
)
def test_the_drawings_are_current(name: str, draw: Callable[[Theme], Drawing], theme: Theme) -> None:
    """`make pictures` draws them."""
    saved = (ROOT / "docs" / "pictures" / f"{name}-{theme.name}.svg").read_text(encoding="utf-8")
    assert draw(theme).to_svg() == saved


def test_the_diagram_names_existing_packages() -> None:
    boxes = [package for _, _, package, _ in diagram.ROWS] + [name for name, _ in diagram.STEPS]
    for name in [*boxes, *(name for name, _ in diagram.WIRE_BOXES)]:
        assert name == "Engine" or (ROOT / "src" / "tollbridge" / name).exists(), name


def test_an_ellipsis_line_matches_any_lines() -> None:
    assert is_as_shown("a\nb\nc\nd\n", ["a", "…", "d"])
    assert is_as_shown("a\nd\n", ["a", "…", "d"])
    assert is_as_shown("3 tokens for m\n", ["… tokens for m"])
    assert not is_as_shown("a\nb\n", ["a"])
    assert not is_as_shown("3 tokens for n\n", ["… tokens for m"])
