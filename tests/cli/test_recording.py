"""Record turns and replay them with the real program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge, with_room

from tollbridge.testing.server import Gateway

KEY = "tk-0123456789-secret"


async def recorded(folder: Path, *arguments: str, question: str = "think and cite") -> Path:
    async with Gateway(api_key=KEY) as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo", "--record", str(folder))
        result = await tollbridge("ask", question, *where, *arguments, env={"TOLLBRIDGE_API_KEY": KEY})
    assert result.code == 0
    (path,) = folder.iterdir()
    return path


async def test_a_recorded_turn_replays_without_differences(tmp_path: Path) -> None:
    path = await recorded(tmp_path)
    result = await tollbridge("replay", "--diff", str(path))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == str(path)
    assert [line.split()[2] for line in lines[2:5]] == ["request", "sent", "response"]
    assert lines[-1].startswith("No differences (")
    assert KEY not in path.read_text()


async def test_a_difference_is_shown_and_sets_the_exit_code(tmp_path: Path) -> None:
    path = await recorded(tmp_path, question="hello")
    # Only the first word is changed: the network decides how many words arrive together.
    path.write_text(path.read_text().replace('"text":"You', '"text":"They'))
    result = await tollbridge("replay", "--diff", str(path))
    assert result.code == 1
    assert "part 0" in result.out
    assert '  - {"type":"text","text":"They' in result.out
    assert '  + {"type":"text","text":"You' in result.out
    assert (await tollbridge("replay", str(path))).code == 0  # without --diff


async def test_a_difference_in_the_request_is_shown_too(tmp_path: Path) -> None:
    path = await recorded(tmp_path, question="hello")
    path.write_text(path.read_text().replace('\\"stream\\":true', '\\"stream\\":false'))
    result = await tollbridge("replay", "--diff", str(path))
    assert result.code == 1
    assert "request 1, stream\n  - false\n  + true\n" in result.out
    replayed = json.loads((await tollbridge("replay", "--json", str(path))).out)
    assert replayed["requests"] == [[{"place": "stream", "then": "false", "now": "true"}]]


async def test_json_output_of_a_recording(tmp_path: Path) -> None:
    path = await recorded(tmp_path, question="hello")
    replayed = json.loads((await tollbridge("replay", "--json", str(path))).out)
    assert (replayed["file"], replayed["same"], replayed["outcome"]) == (str(path), True, "completed")
    assert (replayed["finish_reason"], replayed["error"]) == ("stop", None)
    text = "".join(part["text"] for part in replayed["parts"])
    assert text == "You said “hello”. I was given 1 item and no system prompt, with no tools."


async def test_content_can_be_redacted(tmp_path: Path) -> None:
    path = await recorded(tmp_path, "--record-redact", question="Zanzibar")
    assert "Zanzibar" not in path.read_text()
    result = await tollbridge("replay", "--diff", str(path))
    assert result.code == 0
    assert "content redacted" in result.out
    assert "xxx xxxx" in result.out


async def test_a_chat_records_every_turn_if_the_settings_say_so(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'record = "{tmp_path / "recordings"}"\n')
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        env = {"TOLLBRIDGE_CONFIG": str(config)}
        await tollbridge("chat", *where, env=env, stdin=b"hello\nfault:failed\n")
    paths = [str(path) for path in (tmp_path / "recordings").iterdir()]
    assert len(paths) == 2
    result = await tollbridge("replay", "--diff", *paths)
    assert result.code == 0
    assert result.out.count("No differences (") == 2


async def test_files_that_cannot_be_compared_or_read_are_reported(tmp_path: Path) -> None:
    plain = tmp_path / "plain.sse"
    plain.write_text("data: [DONE]\n\n")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"line":"begun","at":0}\n')
    for arguments, words in (
        (("--diff", str(plain)), "--diff needs a recording made with --record"),
        ((str(broken),), "line 1 is not a valid recording line"),
        ((str(tmp_path),), "Cannot read"),
    ):
        result = await tollbridge("replay", *arguments)
        assert (result.code, result.out) == (1, "")
        assert words in result.err


@pytest.mark.parametrize(("body", "words"), [("{oops", "is not JSON: "), ("[]", "is not a JSON object.")])
async def test_an_invalid_request_in_a_recording_is_reported(tmp_path: Path, body: str, words: str) -> None:
    path = await recorded(tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (sent,) = (line for line in lines if "body" in line)
    sent["body"] = body
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    result = await tollbridge("replay", "--diff", str(path))
    assert (result.code, result.out) == (1, "")
    assert f"The recorded request body to {sent['url']} {words}" in result.err


async def test_the_answer_is_complete_if_the_recording_folder_cannot_be_created() -> None:
    async with Gateway() as gateway:
        command = ("ask", "hi", "--base-url", gateway.url, "--model", "tollbridge/demo")
        result = await tollbridge(*command, "--record", "/dev/null/turns")
    assert result.code == 0
    assert result.out.startswith("You said “hi”.")
    assert result.err.startswith("Note: The turn could not be recorded in /dev/null/turns: ")


@pytest.mark.parametrize("options", [(), ("--record-redact",)])
@pytest.mark.parametrize("room", [0, 200, 1500])
async def test_the_answer_is_complete_if_the_disk_is_full(
    tmp_path: Path, options: tuple[str, ...], room: int
) -> None:
    async with Gateway() as gateway:
        command = ("ask", "hello", "--base-url", gateway.url, "--model", "tollbridge/demo")
        recording = ("--record", str(tmp_path), *options)
        result = await tollbridge(*command, *recording, program=with_room(room))
    assert (result.code, result.out[:8]) == (0, "You said")
    assert result.err.count(f"The turn could not be recorded in {tmp_path}: File too large") == 1
    assert not list(tmp_path.glob("*.part"))


async def test_a_new_folder_in_a_git_checkout_is_ignored_by_git(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        for folder in (tmp_path / "outside", tmp_path / "checkout" / "turns", tmp_path / "checkout" / "old"):
            (tmp_path / "checkout" / ".git").mkdir(parents=True, exist_ok=True)
            (tmp_path / "checkout" / "old").mkdir(exist_ok=True)
            await tollbridge("ask", "hello", *where, "--record", str(folder))
    assert (tmp_path / "checkout" / "turns" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "checkout" / "old" / ".gitignore").exists()  # the user's folder
    assert not (tmp_path / "outside" / ".gitignore").exists()
