"""`tollbridge doctor` as a person runs it: lines, JSON, a terminal, exit codes, and the profile it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.cli_process import environment, terminal, tollbridge, with_room

from tollbridge.compat.profiles import load_profile
from tollbridge.doctor.examination import STEPS
from tollbridge.testing.server import Gateway

KEY = "tb-secret-key-0123456789"


async def test_the_checklist_has_a_line_for_every_step_and_the_profile_is_written(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_API_KEY": KEY}
    async with Gateway(scenario="picky", api_key=KEY) as gateway:
        result = await tollbridge("doctor", "--base-url", gateway.url, env=env)
        kept = load_profile(gateway.url, tmp_path / "profiles")
    assert result.code == 0
    assert result.err == f"Examining {gateway.url} with about 20 small requests, which may cost a little.\n"
    *lines, last = result.out.splitlines()
    assert [line[2:].partition(":")[0] for line in lines] == [title for title, _ in STEPS.values()]
    assert {line[0] for line in lines} == {"✓", "✗"}
    assert last.startswith("A chat is possible (")
    assert kept is not None
    assert kept.of("tollbridge/demo").files is False
    assert kept.quirks.system == "system"
    assert KEY not in result.out + result.err + "".join(path.read_text() for path in tmp_path.rglob("*.toml"))


async def test_what_was_written_is_used_by_the_next_command(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="picky") as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        refused = await tollbridge("ask", "Hello", *where, env=env)
        await tollbridge("doctor", *where, env=env)
        answered = await tollbridge("ask", "Hello", "--system", "Be kind.", *where, env=env)
    assert (refused.code, answered.code) == (1, 0)
    assert "Hello" in answered.out


async def test_a_program_gets_one_json_object(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="no-developer") as gateway:
        result = await tollbridge("doctor", "--json", "--base-url", gateway.url, env=env)
    told = json.loads(result.out)
    assert told["can_chat"] is True
    assert told["model"] == "tollbridge/demo"
    assert told["quirks"]["system"] == "system"
    assert [step["name"] for step in told["steps"]] == list(STEPS)
    assert Path(told["path"]).is_file()


async def test_without_a_chat_the_exit_code_is_1_and_nothing_is_written(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_API_KEY": "tb-wrong-key-999999"}
    async with Gateway(api_key=KEY) as gateway:
        result = await tollbridge("doctor", "--base-url", gateway.url, "--model", "m", env=env)
    assert result.code == 1
    assert "✗ Key: The key was sent, and the server says: The API key is wrong (HTTP 401)." in result.out
    assert result.out.splitlines()[-1].startswith("A chat is not possible")
    assert "tb-wrong-key-999999" not in result.out + result.err
    assert not list(tmp_path.rglob("*.toml"))


async def test_at_a_terminal_a_spinner_says_what_is_under_way(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with (
        Gateway(scenario="no-developer") as gateway,
        terminal("doctor", "--base-url", gateway.url, env=env) as screen,
    ):
        seen = await screen.expect("✓ Reach")
        seen += await screen.expect("✗ System prompt")
        seen += await screen.expect("A chat is possible")
        assert await screen.ended() == 0
    assert any(f"{title}…" in seen for title, _ in STEPS.values())


async def test_a_profile_that_cannot_be_written_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    async with Gateway() as gateway:
        result = await tollbridge(
            "doctor", "--base-url", gateway.url, env={"TOLLBRIDGE_DATA_DIR": str(tmp_path / "data")}
        )
    assert result.code == 1
    assert "The profile cannot be written" in result.err


async def test_a_disk_that_is_full_is_told_with_the_name_of_the_profile(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
        result = await tollbridge("doctor", "--base-url", gateway.url, env=env, program=with_room(100))
    assert result.code == 1
    assert "The profile cannot be written: File too large (" in result.err
    assert "(None)" not in result.err
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("tmp")] == []


async def test_the_model_of_the_settings_is_examined_and_what_it_cost_is_in_the_ledger(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text('model = "tollbridge/plain"')
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CONFIG": str(tmp_path / "config.toml")}
    async with Gateway() as gateway:
        result = await tollbridge("doctor", "--json", "--base-url", gateway.url, env=env)
    assert json.loads(result.out)["model"] == "tollbridge/plain"
    used = await tollbridge("usage", "--json", env=env)
    assert '"tollbridge/plain"' in used.out


@pytest.mark.io
def test_a_server_that_ends_with_the_command_gets_no_profile(tmp_path: Path) -> None:
    """The embedded demo, which is used where there is no key and no local model, has a port by chance."""
    hidden = "import sys; sys.modules['xllamacpp'] = None; from tollbridge.cli import main; main()"
    run = [sys.executable, "-c", hidden, "doctor"]
    env = environment({"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    result = subprocess.run(run, capture_output=True, text=True, env=env, check=True)
    assert "No profile was written: the server ends with this command." in result.stdout
    assert not list(tmp_path.rglob("*.toml"))


async def test_doctor_is_for_openresponses_alone() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("doctor", "--backend", "ai-sdk", "--base-url", gateway.url)
    assert result.code == 2
    assert "Leave out --backend" in result.err


async def test_a_profile_that_makes_no_sense_is_named_and_doctor_mends_it(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("doctor", *where, env=env)
        (path,) = tmp_path.rglob("*.toml")
        path.write_text("system = 'emperor'")
        confused = await tollbridge("ask", "Hello", *where, env=env)
        mended = await tollbridge("doctor", *where, env=env)
    assert confused.code == 0
    assert f"The profile {path} makes no sense" in confused.err
    assert mended.code == 0
