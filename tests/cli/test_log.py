"""Conversations that are kept: by `ask` and `chat`, and shown and deleted by `log`."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_process import Result, terminal, tollbridge

from tollbridge.testing.server import Gateway

KEY = "tk-0123456789-secret"
NOTHING_KEPT = "No conversation is kept. Keep one with --keep, or every one with `tollbridge config set"


class Desk:
    """The program with a data directory and a gateway of its own."""

    def __init__(self, gateway: Gateway, data: Path) -> None:
        self.where = ("--base-url", gateway.url)
        self.data = data
        self.env = {"TOLLBRIDGE_DATA_DIR": str(data)}

    async def ask(self, *arguments: str, **env: str) -> Result:
        return await tollbridge("ask", *arguments, *self.where, env={**self.env, **env})

    async def log(self, *arguments: str) -> Result:
        return await tollbridge("log", *arguments, env=self.env)

    async def listed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (await self.log("--json")).out.splitlines()]

    def files(self) -> list[Path]:
        return list(self.data.glob("conversations/*"))


async def test_nothing_is_kept_unless_the_user_asks_for_it(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        desk = Desk(gateway, tmp_path)
        await desk.ask("hello", "-m", "tollbridge/demo")
        assert desk.files() == []
        refused = await desk.ask("again", "-c")
        listed = await desk.log()
    assert refused.code == 1
    assert NOTHING_KEPT in " ".join(refused.err.split())
    assert (listed.code, listed.out) == (0, "")
    assert listed.err.startswith(NOTHING_KEPT)


async def test_a_kept_conversation_can_be_continued(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        desk = Desk(gateway, tmp_path)
        await desk.ask("hello", "-m", "tollbridge/plain", "-s", "Be brief.", "--keep")
        second = await desk.ask("again", "-c")
        third = await desk.ask("and now?", "-c", "-m", "tollbridge/demo", "--no-keep")
        models = [request.body["model"] for request in gateway.requests]
        (row,) = await desk.listed()
    assert second.out.startswith("You said “again”. I was given 4 items and the system prompt “Be brief.”")
    assert third.out.startswith("You said “and now?”. I was given 6 items and the system prompt “Be brief.”")
    assert models == ["tollbridge/plain", "tollbridge/plain", "tollbridge/demo"]
    assert (row["model"], row["messages"], row["title"]) == ("tollbridge/plain", 4, "hello")


async def test_a_continued_conversation_is_one_conversation(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        desk = Desk(gateway, tmp_path)
        await desk.ask("first", "-m", "tollbridge/demo", "-s", "Answer briefly. " * 600, "--keep")
        await desk.ask("second", "-c")
        await desk.ask("third", "-c", "-s", "Answer at length. " * 600)
        explained = await tollbridge("explain", env=desk.env)
        usage = await tollbridge("usage", "--by", "conversation", "--json", env=desk.env)
    assert "There is no earlier request" not in explained.out
    assert "system" in explained.out
    assert len(usage.out.splitlines()) == 1


async def test_the_settings_can_keep_every_conversation(tmp_path: Path) -> None:
    async with Gateway(api_key=KEY) as gateway:
        desk = Desk(gateway, tmp_path)
        keep = {"TOLLBRIDGE_KEEP_CONVERSATIONS": "1", "TOLLBRIDGE_API_KEY": KEY}
        await desk.ask(f"my key is {KEY}", "-m", "tollbridge/demo", **keep)
        await desk.ask("hello", "-m", "tollbridge/demo", "--no-keep", **keep)
    (file,) = desk.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "my key is" in file.read_text()
    assert KEY not in file.read_text()


async def test_conversations_are_shown_and_deleted(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        desk = Desk(gateway, tmp_path)
        for question in ("first question", "second question", "third question"):
            await desk.ask(question, "-m", "tollbridge/demo", "--keep")
        third, second, first = await desk.listed()
        shown = await desk.log("show", first["id"][:4])
        as_json = json.loads((await desk.log("show", "--json")).out)
        limited = await desk.log("-n", "1")
        wrong = await desk.log("delete", first["id"], "zzz")
        assert len(desk.files()) == 3  # nothing was deleted
        deleted = await desk.log("delete", first["id"], second["id"])
        left = await desk.listed()
        everything = await desk.log("delete", "--all")
    assert [row["title"] for row in (first, second, third)] == [
        "first question",
        "second question",
        "third question",
    ]
    assert "## User\n\nfirst question\n\n## Assistant\n\nYou said “first question”." in shown.out
    assert [message["role"] for message in as_json["messages"]] == ["user", "assistant"]
    assert as_json["id"] == third["id"]
    assert "third question" in limited.out
    assert "… and 2 more; use --count to see them." in limited.out
    assert (wrong.code, "starts with 'zzz'" in " ".join(wrong.err.split())) == (1, True)
    assert deleted.err == "Deleted 2 conversations.\n"
    assert [row["id"] for row in left] == [third["id"]]
    assert everything.err == "Deleted 1 conversation.\n"
    assert desk.files() == []


async def test_a_damaged_file_is_listed_and_does_not_stop_the_others(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        desk = Desk(gateway, tmp_path)
        await desk.ask("hello", "-m", "tollbridge/demo", "--keep")
        (tmp_path / "conversations" / "abcdef.json").write_text("{")
        titles = {row["title"] for row in await desk.listed()}
        shown = await desk.log("show", "abc")
    assert titles == {"hello", "(cannot be read)"}
    assert shown.code == 1
    assert "abcdef.json is not a saved conversation: " in shown.err
    assert "Delete it with `tollbridge log delete abcdef`." in " ".join(shown.err.split())


@pytest.mark.timed
async def test_a_chat_is_saved_loaded_kept_and_priced(tmp_path: Path) -> None:
    env = {"TERM": "dumb", "TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    file = tmp_path / "chat.json"
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "-m", "tollbridge/demo")
        async with terminal("chat", *where, "--keep", env=env) as screen:
            await screen.expect("\n> ")
            for line, answer in (
                ("hello", "I was given 1 item "),
                (f"/save {file}", f"Saved 2 messages to {file}."),
                (f"/save {file}", f"Saved 2 messages to {file}."),
                (f"/save {tmp_path}/tollbridge.db", "tollbridge.db exists. Choose another name."),
                ("/save", "Name a file, for example: /save chat.json"),
                (f"/save {tmp_path}/chat.md", "Saved 2 messages"),
                ("/new", "Started a new conversation."),
                ("hello", "I was given 1 item "),
                (f"/load {file}", "Loaded 2 messages."),
                ("again", "I was given 3 items"),
                (f"/save {tmp_path}/none/x.md", f"The folder {tmp_path}/none does not exist. Choose another"),
                ("/file nothing.txt", "Error: Cannot read nothing.txt: No such file or directory."),
                ("/load nothing.json", "Error: Cannot read nothing.json: No such file or directory."),
                ("/cost", "3 answers · "),
            ):
                screen.type(f"{line}\n")
                shown = await screen.expect("\n> ")
                assert answer in " ".join(shown.split()), shown
            screen.type("\x04")
            assert await screen.ended() == 0
    assert [message["role"] for message in json.loads(file.read_text())["messages"]] == ["user", "assistant"]
    assert (
        (tmp_path / "chat.md")
        .read_text()
        .startswith("# hello\n\nModel: tollbridge/demo\n\n## User\n\nhello\n")
    )
    counted = await tollbridge("count", "--messages", str(file), "-m", "openai/gpt-5", env=env)
    assert counted.code == 0
    kept = await tollbridge("log", "--json", env=env)
    assert [json.loads(line)["title"] for line in kept.out.splitlines()] == ["hello", "hello", "hello"]
