"""The Neovim plugin in a real Neovim, with a real sidecar and the embedded gateway."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.editors.neovim import neovim

from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Say, ScriptedAnswer, Think
from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"
LONG = "word " * 5000
ANSWER = "Grüße, 世界 👋.\n\n```lua\nprint(1)\n```\nThat is all"


def answering(*texts: str, pace: float = 0.0) -> Any:
    """A model that gives these answers, one per request."""
    answers = iter(texts)
    return lambda _request: ScriptedAnswer(blocks=(Say(next(answers)),), pace=pace)


def received_texts(gateway: Gateway) -> list[list[tuple[str, str]]]:
    """Return role and text of the messages of each chat request."""

    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    bodies = [request.body for request in gateway.requests if request.method == "POST" and request.body]
    return [
        [(item["role"], text(item["content"])) for item in body["input"] if "role" in item] for body in bodies
    ]


async def until_gone(process: psutil.Process) -> None:
    gone, _ = await asyncio.to_thread(psutil.wait_procs, [process], 20)
    assert gone


async def test_an_answer_streams_into_the_buffer(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering(ANSWER, pace=0.1)) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command('Tollbridge What is "a | b"?')
        await editor.wait_for("has(text(), 'Grüße') and not has(text(), 'That is all')")
        await editor.wait_for("has(status(), ' s')")
        assert await editor.text() == f'# You\n\nWhat is "a | b"?\n\n# {MODEL}\n\n{ANSWER}\n'
        assert await editor.messages() == ""
        assert received_texts(gateway) == [[("user", 'What is "a | b"?')]]


async def test_the_next_question_continues_the_conversation_and_a_bang_starts_a_new_one(
    tmp_path: Path,
) -> None:
    async with (
        Gateway(model=answering("One.", "Two.", "Three."), strict=True) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("Tollbridge first")
        await editor.wait_for("has(status(), ' s')")
        await editor.command("Tollbridge second")
        await editor.wait_for("has(text(), 'Two.') and has(status(), ' s')")
        await editor.command("Tollbridge! third")
        await editor.wait_for("has(text(), 'Three.') and has(status(), ' s')")
        assert await editor.text() == f"# You\n\nthird\n\n# {MODEL}\n\nThree.\n"
        assert received_texts(gateway) == [
            [("user", "first")],
            [("user", "first"), ("assistant", "One."), ("user", "second")],
            [("user", "third")],
        ]


async def test_the_reasoning_of_the_model_is_returned_with_its_answer(tmp_path: Path) -> None:
    def model(_request: AcceptedRequest) -> ScriptedAnswer:
        return ScriptedAnswer(blocks=(Think("Let me see."), Say("Done.")))

    async with (
        Gateway(model=model, strict=True) as gateway,
        neovim(tmp_path, base_url=gateway.url) as editor,
    ):
        for prompt in ("first", "second"):
            await editor.command(f"Tollbridge {prompt}")
            await editor.wait_for("has(text(), ...) and has(status(), ' s')", prompt)
        assert "Let me see" not in await editor.text()
        body: Any = gateway.requests[-1].body
        assert [item["type"] for item in body["input"]] == ["message", "reasoning", "message", "message"]


async def test_stop_closes_the_connection_and_keeps_the_text(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering(LONG, "Hello.", pace=0.05)) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("Tollbridge Tell me a story.")
        await editor.wait_for("has(text(), 'word word')")
        await editor.command("TollbridgeStop")
        await editor.wait_for("status() == 'Stopped.'")
        await gateway.wait_for_disconnect()
        assert "word word" in await editor.text()
        assert await editor.messages() == ""
        await editor.command("Tollbridge Hello")  # the sidecar still works
        await editor.wait_for("has(status(), ' s')")


async def test_a_wrong_key_shows_the_sentence_and_not_the_key(tmp_path: Path) -> None:
    async with (
        Gateway(api_key="right-key") as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.lua("vim.env.TOLLBRIDGE_API_KEY = 'wrong-key'")
        await editor.command("Tollbridge Hello")
        await editor.wait_for("status() == 'Failed. See :messages.'")
        messages = await editor.messages()
        assert messages.endswith("Check the account's API key.")  # names no command of another editor
        shown = messages + await editor.text() + await editor.lua("return require('tollbridge').log()")
        assert "wrong-key" not in shown
        await editor.lua("vim.env.TOLLBRIDGE_API_KEY = 'right-key'")
        await editor.command("Tollbridge Hello again")
        await editor.wait_for("has(status(), ' s')")
        assert received_texts(gateway)[-1] == [("user", "Hello again")]  # without the unanswered question


@pytest.mark.parametrize(
    ("base_url", "key"), [("https://ai-gateway.vercel.sh/v1", "vercel-key"), ("http://127.0.0.1:9/v1", None)]
)
async def test_a_key_for_vercel_goes_to_no_other_server(
    tmp_path: Path, base_url: str, key: str | None
) -> None:
    # `tee` acts as the sidecar and stores what it receives. A request that it echoes counts as its response.
    async with neovim(tmp_path, base_url=base_url, command=["tee", "received"]) as editor:
        await editor.lua("vim.env.AI_GATEWAY_API_KEY = 'vercel-key'")
        await editor.command("TollbridgeModels")
        await editor.wait_for(
            "vim.fn.getfsize('received') > 0 and has(io.open('received'):read('*a'), 'account')"
        )
    frame = (tmp_path / "received").read_text().rpartition("\n")[2]
    account = msgspec.json.decode(frame)["params"]["account"]
    assert (account["baseUrl"], account.get("apiKey")) == (base_url, key)


async def test_selected_lines_are_sent_as_a_code_block(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text('import os\n\nFENCE = "```"\nprint(FENCE)\n')
    async with (
        Gateway(model=answering("A fence.")) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("edit notes.py")
        await editor.type("2jVj:Tollbridge What is this?<CR>")
        await editor.wait_for("has(status(), ' s')")
        ((message,),) = received_texts(gateway)
        assert message == (
            "user",
            'What is this?\n\nLines 3 to 4 of notes.py:\n\n````python\nFENCE = "```"\nprint(FENCE)\n````',
        )
        assert (
            await editor.text()
            == f"# You\n\nWhat is this?\n\nLines 3 to 4 of notes.py\n\n# {MODEL}\n\nA fence.\n"
        )
        assert await editor.lua("return vim.fn.expand('%')") == "notes.py"


async def test_the_prompt_is_asked_for_and_the_first_model_is_used(tmp_path: Path) -> None:
    async with Gateway() as gateway, neovim(tmp_path, base_url=gateway.url) as editor:
        await editor.type(":Tollbridge<CR>Hello<CR>")
        await editor.wait_for("has(status(), ' s')")
        assert received_texts(gateway) == [[("user", "Hello")]]
        body: Any = gateway.requests[-1].body
        assert body["model"] == MODEL


async def test_a_model_is_chosen_from_the_list(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering("Hello.")) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.lua(
            "function vim.ui.select(items, options, choose) _G.asked = { items, options, choose } end"
        )
        await editor.command("TollbridgeModels")
        await editor.wait_for("_G.asked ~= nil")
        listed = await editor.lua("return vim.tbl_map(asked[2].format_item, asked[1])")
        assert [line.split("(")[1].split(",")[0] for line in listed] == [MODEL, "tollbridge/plain"]
        await editor.lua("asked[3](asked[1][2])")
        await editor.command("Tollbridge Hello")
        await editor.wait_for("has(text(), '# tollbridge/plain') and has(status(), ' s')")
        body: Any = gateway.requests[-1].body
        assert body["model"] == "tollbridge/plain"


async def test_a_broken_answer_stays_and_the_error_is_shown(tmp_path: Path) -> None:
    async with Gateway() as gateway, neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor:
        await editor.command("Tollbridge fault:disconnect Tell me a story.")
        await editor.wait_for("status() == 'Failed. See :messages.'")
        _, _, answer = (await editor.text()).partition(f"# {MODEL}\n\n")
        assert answer.strip()
        assert "Tollbridge: " in await editor.messages()


async def test_only_one_request_runs_at_a_time(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering(LONG, "Hello.", pace=0.05)) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("Tollbridge Tell me a story.")
        await editor.wait_for("has(text(), 'word word')")
        for command in ("Tollbridge Hello", "TollbridgeModels"):
            await editor.command("messages clear")
            await editor.command(command)
            assert "run :TollbridgeStop" in await editor.messages()
        assert len(received_texts(gateway)) == 1


async def test_deleting_the_buffer_stops_the_answer(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering(LONG, "Hello.", pace=0.05)) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("Tollbridge Tell me a story.")
        await editor.wait_for("has(text(), 'word word')")
        await editor.command("bwipeout! tollbridge://chat")
        await gateway.wait_for_disconnect()
        assert await editor.text() == ""
        assert await editor.messages() == ""


async def test_the_sidecar_ends_with_neovim(tmp_path: Path) -> None:
    async with Gateway(model=answering(LONG, LONG, pace=0.05)) as gateway:
        for end in ("quit", "kill"):
            async with neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor:
                await editor.command("Tollbridge Tell me a story.")
                await editor.wait_for("has(text(), 'word word')")
                sidecar = editor.sidecar()
                if end == "quit":
                    await editor.type(":qall!<CR>")
                else:
                    editor.process.kill()
                await editor.process.wait()
                await gateway.wait_for_disconnect()
                await until_gone(sidecar)


async def test_a_sidecar_that_was_killed_is_reported_and_started_again(tmp_path: Path) -> None:
    async with (
        Gateway(model=answering(LONG, "Hello.", pace=0.05)) as gateway,
        neovim(tmp_path, base_url=gateway.url, model=MODEL) as editor,
    ):
        await editor.command("Tollbridge Tell me a story.")
        await editor.wait_for("has(text(), 'word word')")
        editor.sidecar().kill()
        await editor.wait_for("status() == 'Failed. See :messages.'")
        assert "The sidecar ended (exit code 0, signal 9)." in await editor.messages()
        await editor.command("Tollbridge Hello")
        await editor.wait_for("has(status(), ' s')")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        # A path: a name would be EACCES if a folder of the PATH cannot be read.
        (["/no/such/program", "sidecar"], 'Cannot start "/no/such/program sidecar": ENOENT'),
        ([sys.executable, "-m", "no_such_module"], "No module named no_such_module"),
    ],
)
async def test_a_sidecar_that_cannot_be_started_is_reported(
    tmp_path: Path, command: list[str], message: str
) -> None:
    async with neovim(tmp_path, command=command, model=MODEL) as editor:
        await editor.type(":Tollbridge Hello<CR>")
        await editor.wait_for("status() == 'Failed. See :messages.'")
        assert message in await editor.messages()
