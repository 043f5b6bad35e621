"""The chat on a terminal without cursor movement (TERM=dumb), and with piped prompts.

`test_tmux.py` has the chat on a terminal with all features.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.cli.cli_process import Terminal, terminal, tollbridge

from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

PROMPT = "\n> "
DUMB = {"TERM": "dumb"}


@asynccontextmanager
async def chat(gateway: Gateway, *arguments: str) -> AsyncIterator[Terminal]:
    where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
    async with terminal("chat", *where, *arguments, env=DUMB) as screen:
        await screen.expect("/help: commands")
        await screen.expect(PROMPT)
        yield screen


async def test_a_conversation_has_its_history_and_shows_usage() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.type("hello\n")
        answer = await screen.expect(PROMPT)
        assert "You said “hello”. I was given 1 item and no system" in answer
        assert "5 in (0 cached) · 20 out" in answer
        screen.type("again\n")
        assert "I was given 3 items" in await screen.expect(PROMPT)
        screen.type("/new\n")
        await screen.expect(PROMPT)
        screen.type("hello\n")
        assert "I was given 1 item " in await screen.expect(PROMPT)
        screen.type("/quit\n")
        assert await screen.ended() == 0


async def test_text_is_wrapped_between_words_also_after_a_resize() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.resize(24, 30)
        screen.type("hello\n")
        answer = await screen.expect("\n5 in")
        assert answer.endswith("You said “hello”. I was given\n1 item and no system prompt,\nwith no tools.")


@pytest.mark.timed
async def test_ctrl_c_stops_the_answer_and_not_the_program() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.type("slow long 500\n")
        await screen.expect("You said")
        screen.type("\x03")
        await screen.expect("[stopped]")
        await gateway.wait_for_disconnect()
        await screen.expect(PROMPT)
        screen.type("hello\n")
        assert "I was given 3 items" in await screen.expect(PROMPT)  # text before the stop is kept
        screen.type("\x04")
        assert await screen.ended() == 0


@pytest.mark.timed
async def test_ctrl_c_at_the_prompt_explains_how_to_exit() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.type("half a quest")
        await screen.expect("half a quest")
        await asyncio.sleep(0.3)  # a signal between readline's echo and its next wait is not seen by either
        screen.type("\x03")
        await screen.expect("Press Ctrl-D or type /quit to exit.")
        await screen.expect(PROMPT)
        screen.type("\x04")
        assert await screen.ended() == 0
        assert not gateway.requests


async def test_an_error_ends_the_answer_and_not_the_chat() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.type("fault:unauthorized\n")
        assert "Error: The API key is missing or wrong." in await screen.expect(PROMPT)
        screen.type("hello\n")
        assert "I was given 1 item " in await screen.expect(PROMPT)  # what was not answered is not sent again
        screen.type("/exit\n")
        assert await screen.ended() == 0


async def test_commands_are_distinguished_from_prompts() -> None:
    async with Gateway() as gateway, chat(gateway) as screen:
        screen.type("/help\n")
        assert "/model NAME" in await screen.expect(PROMPT)
        screen.type("/nonsense\n")
        assert "Unknown command /nonsense" in await screen.expect(PROMPT)
        screen.type("/model\n")
        answer = " ".join((await screen.expect(PROMPT)).split())
        assert "The model is tollbridge/demo. /model NAME switches to another." in answer
        screen.type("/model 9\n")
        answer = " ".join((await screen.expect(PROMPT)).split())
        assert 'lists no model "9". Tab completes the names. Still using tollbridge/demo.' in answer
        for command in ("/cost", "/new", "/over-budget"):
            screen.type(f"{command} x\n")
            assert f'Error: {command} takes no argument. Remove "x".' in await screen.expect(PROMPT)
        screen.type("/model tollbridge/plain\n")
        assert "Now using tollbridge/plain." in await screen.expect(PROMPT)
        screen.type("\n  \n/etc/hosts is what?\n")
        assert "You said “/etc/hosts is what?”" in await screen.expect("with no tools.")
        assert gateway.requests[-1].body["model"] == "tollbridge/plain"


async def test_answers_can_go_to_a_file_without_the_prompt(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        with (tmp_path / "answers.txt").open("wb") as out:
            async with terminal("chat", *where, out=out, env=DUMB) as screen:
                await screen.expect(PROMPT)
                screen.type("hello\n")
                assert "You said" not in await screen.expect(PROMPT)
                screen.type("\x04")
                assert await screen.ended() == 0
    assert (tmp_path / "answers.txt").read_text().startswith("You said “hello”.")


async def test_images_are_sent_until_the_first_answer(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(draw_png())
    async with Gateway() as gateway, chat(gateway, "--image", str(tmp_path / "a.png")) as screen:
        for question, images in (("fault:forbidden", 1), ("hello", 1), ("and now?", 0)):
            screen.type(f"{question}\n")
            await screen.expect(PROMPT)
            assert json.dumps(gateway.requests[-1].body["input"][-1]).count("image_url") == images


async def test_reasoning_and_files_are_shown() -> None:
    async with Gateway() as gateway, chat(gateway, "--reasoning", "low") as screen:
        screen.type("draw\n")
        answer = await screen.expect(PROMPT)
        assert "The user said “draw”." in answer
        assert "[image/png, " in answer


async def test_piped_prompts_are_read_one_per_line() -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        result = await tollbridge("chat", *where, stdin=b"hello\n\nag\xffain")
    assert result.code == 0
    first, second = result.out.splitlines()
    assert first.startswith("You said “hello”. I was given 1 item ")
    assert second.startswith("You said “ag\ufffdain”. I was given 3 items")
    assert result.err.count("first token") == 2


async def test_a_failed_piped_prompt_sets_the_exit_code() -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        result = await tollbridge("chat", *where, stdin=b"fault:unauthorized\nhello\n")
    assert result.code == 1
    assert "You said “hello”." in result.out
    assert "Error: The API key is missing or wrong." in result.err


@pytest.mark.slow
@pytest.mark.timed
async def test_the_local_model_answers_and_survives_ctrl_c() -> None:
    async with terminal("chat", "--local", env=DUMB) as screen:
        await screen.expect("smollm2-135m-instruct on this computer (llama.cpp)", within=100)
        await screen.expect(PROMPT)
        for _ in range(6):  # so small a model may be done before anyone can stop it
            screen.type("Tell me a very long story about a bridge.\n")
            await screen.expect("\n")
            await screen.expect(" ")
            screen.type("\x03")
            if "[stopped]" in await screen.expect(PROMPT, within=60):
                break
        else:
            pytest.fail("no answer could be stopped")
        screen.type("Say hello.\n")
        assert " in " in await screen.expect(PROMPT, within=60)
        (server,) = psutil.Process(screen.pid).children()
        server.send_signal(signal.SIGKILL)
        screen.type("Are you there?\n")
        assert "Error: " in await screen.expect(PROMPT)  # its death does not take the chat along
        screen.type("\x04")
        assert await screen.ended() == 0
