"""The chat and `ask` in a real terminal (tmux), at two sizes."""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from aiohttp import web
from tests.cli.tmux import Tmux, needs_tmux, program, tmux

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.responses import Say, ScriptedAnswer
from tollbridge.testing.server import Gateway

pytestmark = needs_tmux

SIZES = [(80, 24), (140, 40)]
sizes = pytest.mark.parametrize("size", SIZES, ids=["80x24", "140x40"])
MARKDOWN = """\
# Bridges

A **beam bridge** is the `simplest` kind.
It has *two* supports & costs <5.

- one item
  1. nested item

```python
def span(length: int) -> str:
    return "long" if length > 100 else "short"
```

| kind | span |
|------|------|
| beam | 80 m |

> Quoted.
"""


def saying(text: str, pace: float = 0.0) -> Callable[[object], ScriptedAnswer]:
    return lambda _request: ScriptedAnswer(blocks=(Say(text),), pace=pace)


class HeldAnswer(ScriptedAnswer, frozen=True, kw_only=True):
    """An answer that nearly stops after some words until it is released, so that a test can act during it."""

    released: asyncio.Event
    words: Iterator[int]  # counts them

    @property  # type: ignore[misc]
    def pace(self) -> float:
        return 0.0 if self.released.is_set() else 0.01 if next(self.words) < 20 else 1.0


@asynccontextmanager
async def chat(gateway: Gateway, size: tuple[int, int], *arguments: str, **env: str) -> AsyncIterator[Tmux]:
    where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
    async with tmux(size, *program("chat", *where, *arguments), env=env) as window:
        await window.expect_prompt()
        yield window


def prompts(gateway: Gateway) -> list[str]:
    """Return the last user message of each request."""
    bodies = [request.body for request in gateway.requests if request.path.endswith("/responses")]
    contents = [
        body["input"][-1]["content"] if isinstance(body["input"], list) else body["input"] for body in bodies
    ]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


@sizes
async def test_a_pasted_text_is_one_prompt(size: tuple[int, int]) -> None:
    pasted = "\n".join(f"  line {number} of a traceback" for number in range(1, 41))
    async with Gateway() as gateway, chat(gateway, size) as window:
        await window.paste(pasted)
        await window.expect("line 40 of a traceback")
        assert not prompts(gateway)
        await window.press("Enter")
        await window.expect(" out (0 reasoning)")
        await window.expect_prompt()
        assert prompts(gateway) == [pasted]


@sizes
async def test_a_prompt_can_have_several_lines(size: tuple[int, int]) -> None:
    async with Gateway() as gateway, chat(gateway, size) as window:
        await window.type("first line")
        await window.press("M-Enter")
        await window.type("second line")
        await window.expect("> first line\n  second line")
        await window.press("Enter")
        await window.expect("You said “first line")
        assert prompts(gateway) == ["first line\nsecond line"]


async def test_prompts_of_earlier_chats_can_be_repeated(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with Gateway() as gateway:
        async with chat(gateway, (80, 24), TOLLBRIDGE_DATA_DIR=str(data)) as window:
            await window.type("two")
            await window.press("M-Enter")
            await window.type("lines")
            await window.press("Enter")
            await window.expect("You said")
            await window.expect_prompt()
            await window.press("C-d")
            assert await window.exit_code() == 0
        (history,) = data.glob("prompt_history")
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        async with chat(gateway, (80, 24), TOLLBRIDGE_DATA_DIR=str(data)) as window:
            await window.press("Up")
            await window.expect("> two\n  lines")
            await window.press("Enter")
            await window.expect("You said")
        assert prompts(gateway) == ["two\nlines", "two\nlines"]


async def test_prompts_are_not_stored_if_the_settings_say_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    env = {"TOLLBRIDGE_DATA_DIR": str(data), "TOLLBRIDGE_PROMPT_HISTORY": "0"}
    async with Gateway() as gateway, chat(gateway, (80, 24), **env) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect("You said")
        await window.expect_prompt()
        await window.press("Up")
        await window.expect("> hello\nYou said", "\n> hello")  # but in this chat
    assert not list(data.glob("prompt_history"))
    assert not list(data.glob("conversations/*"))


@sizes
async def test_commands_models_and_files_are_completed(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some-notes.txt").write_text("The bridge is closed.")
    monkeypatch.chdir(tmp_path)  # a long path would be wrapped
    async with Gateway() as gateway, chat(gateway, size) as window:
        await window.type("/mod")
        await window.expect("> /mod\n", "  /model")  # the menu
        await window.press("Tab")
        await window.expect("\n> /model")
        await window.type(" plain")
        await window.expect("> /model plain\n", "  tollbridge/plain")
        await window.press("Tab")
        await window.expect("> /model tollbridge/plain")
        await window.press("Enter")
        await window.press("Enter")
        await window.expect("Now using tollbridge/plain.")
        await window.expect_prompt()
        await window.type("/file so")
        await window.expect("> /file so\n", "  some-notes.txt")
        await window.press("Tab")
        await window.expect("> /file some-notes.txt")
        await window.press("Enter")
        await window.press("Enter")
        await window.expect("Attached to your next message: 1 file.")


@sizes
async def test_a_model_that_is_not_listed_is_not_used(size: tuple[int, int]) -> None:
    async with Gateway() as gateway, chat(gateway, size) as window:
        await window.type("/model tollbridge/plane ")
        await window.press("Enter")
        screen = await window.expect("Still using")
        assert 'Did you mean "tollbridge/plain"?' in " ".join(screen.split())
        await window.type("hello")
        await window.press("Enter")
        await window.expect("You said")
        assert gateway.requests[-1].body["model"] == "tollbridge/demo"


@sizes
async def test_ctrl_c_stops_the_answer_and_ctrl_d_exits(size: tuple[int, int]) -> None:
    async with Gateway() as gateway, chat(gateway, size) as window:
        await window.type("slow long 500")
        await window.press("Enter")
        await window.expect("You said")
        await window.press("C-c")
        await window.expect("[stopped]")
        await gateway.wait_for_disconnect(60)
        await window.expect_prompt()
        await window.type("half a quest")
        await window.press("C-c")
        await window.expect("Press Ctrl-D or type /quit to exit.")
        await window.expect_prompt()
        await window.press("C-d")
        assert await window.exit_code() == 0
        assert prompts(gateway) == ["slow long 500"]


@sizes
async def test_what_is_typed_during_an_answer_is_the_next_prompt(size: tuple[int, int]) -> None:
    text = " ".join(f"word{number}" for number in range(60))
    answer = HeldAnswer(blocks=(Say(text),), released=asyncio.Event(), words=count())
    async with Gateway(model=lambda _request: answer) as gateway, chat(gateway, size) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect("word5")
        await window.type("next questiom")
        await window.press("BSpace")
        await window.type("n")
        await window.press("Left")
        assert "next" not in await window.screen()
        answer.released.set()
        screen = await window.expect("\n> next question")
        assert screen.count("next question") == 1  # not in the answer
        assert prompts(gateway) == ["hello"]
        await window.press("Enter")
        await window.expect("\n> next question\nword0 word1")
        assert prompts(gateway) == ["hello", "next question"]


async def test_what_is_pasted_before_the_program_has_started_is_one_prompt() -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        async with tmux((80, 24), *program("chat", *where)) as window:
            await window.paste("one\ntwo\nthree")
            await window.expect("\n> one\n  two\n  three")
            assert not prompts(gateway)
            await window.press("Enter")
            await window.expect(" out (0 reasoning)")
            await window.expect_prompt()
            assert prompts(gateway) == ["one\ntwo\nthree"]


async def test_what_is_pasted_while_the_chat_starts_is_one_prompt() -> None:
    methods: set[str] = set()
    requested, released = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        methods.add(request.method)
        requested.set()
        await released.wait()
        return web.json_response({"data": [{"id": "only"}]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        async with tmux((80, 24), *program("chat", "--base-url", url)) as window:
            await asyncio.wait_for(requested.wait(), 60)
            await window.paste("one\ntwo\nthree")
            assert "one" not in await window.screen()
            released.set()
            await window.expect("\n> one\n  two\n  three")
            await window.press("C-c")
            await window.expect_prompt()
            await window.press("C-d")
            assert await window.exit_code() == 0
    finally:
        await runner.cleanup()
    assert methods == {"GET"}  # of the model list: no prompt was sent


@sizes
async def test_markdown_is_rendered_and_code_keeps_its_lines(size: tuple[int, int]) -> None:
    async with Gateway(model=saying(MARKDOWN, pace=0.01)) as gateway, chat(gateway, size) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect("│ Quoted.", " out (0 reasoning)")
        lines = (await window.screen()).split("\n")
        shown = lines[lines.index("> hello") + 1 :]
        assert shown[:9] == [
            "Bridges",
            "",
            "A beam bridge is the simplest kind.",
            "It has two supports & costs <5.",
            "",
            "• one item",
            "  1. nested item",
            "",
            "```python",
        ]
        assert shown[9:12] == [
            "def span(length: int) -> str:",
            '    return "long" if length > 100 else "short"',
            "```",
        ]
        assert [line.split() for line in shown if line.endswith("80 m")] == [["beam", "80", "m"]]
        styled = await window.screen(styles=True)
        assert re.search(r"\x1b\[1m *beam bridge\x1b\[0m", styled)
        assert "def\x1b[" in styled  # a keyword has a colour of its own


@sizes
async def test_a_long_answer_stays_in_the_scrollback_once(size: tuple[int, int]) -> None:
    text = "\n\n".join(
        " ".join(f"word{block}x{number}" for number in range(150)) for block in range(12)
    )  # each block is nearly as high as the smaller screen
    async with Gateway(model=saying(text)) as gateway, chat(gateway, size) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect(" out (0 reasoning)")
        everything = await window.screen(all_lines=True)
        shown = re.findall(r"word\d+x\d+", everything)
        assert shown == text.split()


async def test_a_block_higher_than_the_screen_is_shown_once() -> None:
    text = " ".join(f"word{number}" for number in range(600))  # 60 lines
    async with Gateway(model=saying(text, pace=0.0005)) as gateway, chat(gateway, (80, 24)) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect(" out (0 reasoning)")
        everything = await window.screen(all_lines=True)
        assert re.findall(r"word\d+", everything) == text.split()


@sizes
async def test_a_resize_during_an_answer_keeps_its_text(size: tuple[int, int]) -> None:
    columns, rows = size
    text = " ".join(f"word{number}" for number in range(60))
    answer = HeldAnswer(blocks=(Say(text),), released=asyncio.Event(), words=count())
    async with Gateway(model=lambda _request: answer) as gateway, chat(gateway, size) as window:
        await window.type("hello")
        await window.press("Enter")
        await window.expect("word5")
        await window.resize(columns - 30, rows - 4)
        answer.released.set()
        await window.expect("word59", " out (0 reasoning)")
        everything = await window.screen(all_lines=True)
        assert re.findall(r"word\d+", everything) == text.split()
        widths = [len(line) for line in everything.split("\n") if "word" in line]
        assert max(widths[-2:]) <= columns - 30
        await window.resize(columns, rows)
        await window.type("wider again")
        await window.expect("\n> wider again")


@sizes
async def test_a_spinner_shows_what_is_awaited_and_disappears(size: tuple[int, int]) -> None:
    # The gateway does not answer, so the spinner is there until Ctrl-C.
    settings = FaultSettings(stall_seconds=600)
    async with Gateway(scenario="stall-headers", settings=settings) as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        async with tmux(size, *program("ask", "hello", *where)) as window:
            spinner = rf"^. Waiting for 127\.0\.0\.1:{gateway.port} · (\d+\.\d) s$"
            seconds = (await window.expect_match(spinner))[1]
            await window.expect_match(spinner.replace(r"(\d", rf"(?!{re.escape(seconds)} )(\d"))  # it counts
            await window.press("C-c")
            assert await window.exit_code() == 130
            assert "Waiting" not in await window.screen()


async def test_no_color_shows_the_answer_as_the_model_wrote_it() -> None:
    async with (
        Gateway(model=saying(MARKDOWN)) as gateway,
        chat(gateway, (80, 24), NO_COLOR="1") as window,
    ):
        await window.type("hello")
        await window.press("Enter")
        await window.expect(" out (0 reasoning)")
        screen = await window.screen(all_lines=True)
        assert "# Bridges\n\nA **beam bridge** is the `simplest` kind.\n" in screen
        assert "| beam | 80 m |\n" in screen


async def test_raw_shows_the_answer_as_the_model_wrote_it() -> None:
    async with Gateway(model=saying(MARKDOWN)) as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        async with tmux((80, 40), *program("ask", "hello", "--raw", *where)) as window:
            assert await window.exit_code() == 0
            assert "A **beam bridge** is the `simplest` kind.\n" in await window.screen()


async def test_a_prompt_can_be_written_in_an_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'written\\nin an editor\\n' > \"$1\"\n")
    editor.chmod(0o755)
    async with Gateway() as gateway, chat(gateway, (80, 24), VISUAL=str(editor)) as window:
        await window.type("/edit")
        await window.press("Enter")
        await window.press("Enter")
        await window.expect("You said “written")
        assert prompts(gateway) == ["written\nin an editor"]
