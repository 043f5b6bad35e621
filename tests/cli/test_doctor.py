"""`tollbridge doctor`: lines, JSON, a terminal, exit codes and the saved profile."""

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


async def test_the_checklist_has_a_line_per_step_and_a_profile_is_saved(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_API_KEY": KEY}
    async with Gateway(scenario="picky", api_key=KEY) as gateway:
        result = await tollbridge("doctor", "--base-url", gateway.url, env=env)
        profile = load_profile(gateway.url, tmp_path / "profiles")
    assert result.code == 0
    assert result.err == f"Testing {gateway.url} with about 20 small requests (may incur a small cost).\n"
    *lines, last = result.out.splitlines()
    assert [line[2:].partition(":")[0] for line in lines] == [title for title, _ in STEPS.values()]
    assert {line[0] for line in lines} == {"✓", "✗", "?"}
    assert last.startswith("Chat works (")
    assert profile is not None
    assert profile.quirks_for("tollbridge/demo").files is False
    assert profile.quirks.system == "system"
    assert profile.quirks_for("tollbridge/demo").unproven == {"images", "rich_results"}
    (path,) = tmp_path.rglob("*.toml")
    assert "# Images: Accepted, not seen to arrive (the server does not report usage)." in path.read_text()
    assert KEY not in result.out + result.err + "".join(path.read_text() for path in tmp_path.rglob("*.toml"))


async def test_the_saved_profile_is_used_by_the_next_command(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="picky") as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        refused = await tollbridge("ask", "Hello", *where, env=env)
        await tollbridge("doctor", *where, env=env)
        answered = await tollbridge("ask", "Hello", "--system", "Be kind.", *where, env=env)
    assert (refused.code, answered.code) == (1, 0)
    assert "Hello" in answered.out


async def test_json_is_one_object(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="no-developer") as gateway:
        result = await tollbridge("doctor", "--json", "--base-url", gateway.url, env=env)
    output = json.loads(result.out)
    assert output["can_chat"] is True
    assert output["model"] == "tollbridge/demo"
    assert output["quirks"]["system"] == "system"
    assert [step["name"] for step in output["steps"]] == list(STEPS)
    assert Path(output["path"]).is_file()


async def test_what_is_not_seen_to_arrive_has_a_verdict_of_its_own_in_json(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="ignored-attachments") as gateway:
        result = await tollbridge("doctor", "--json", "--base-url", gateway.url, env=env)
    output = json.loads(result.out)
    verdicts = {step["name"]: step["verdict"] for step in output["steps"]}
    assert {name for name, verdict in verdicts.items() if verdict != "well"} == {"images", "results", "files"}
    assert verdicts["images"] == "unproven"
    assert output["quirks"]["unproven"] == ["files", "images", "rich_results"]


async def test_if_chat_does_not_work_the_exit_code_is_1_and_no_profile_is_saved(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_API_KEY": "tb-wrong-key-999999"}
    async with Gateway(api_key=KEY) as gateway:
        result = await tollbridge("doctor", "--base-url", gateway.url, "--model", "m", env=env)
    assert result.code == 1
    assert "✗ Key: The key was rejected: The API key is wrong (HTTP 401)." in result.out
    assert result.out.splitlines()[-1].startswith("Chat does not work")
    assert "tb-wrong-key-999999" not in result.out + result.err
    assert not list(tmp_path.rglob("*.toml"))


async def test_on_a_terminal_a_spinner_shows_the_current_step(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with (
        Gateway(scenario="no-developer") as gateway,
        terminal("doctor", "--base-url", gateway.url, env=env) as screen,
    ):
        seen = await screen.expect("✓ Reach")
        seen += await screen.expect("✗ System prompt")
        seen += await screen.expect("Chat works")
        assert await screen.ended() == 0
    assert any(f"{title}…" in seen for title, _ in STEPS.values())


async def test_a_profile_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    async with Gateway() as gateway:
        result = await tollbridge(
            "doctor", "--base-url", gateway.url, env={"TOLLBRIDGE_DATA_DIR": str(tmp_path / "data")}
        )
    assert result.code == 1
    assert "Cannot write the profile" in result.err


async def test_a_full_disk_is_reported_with_the_path_of_the_profile(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
        result = await tollbridge("doctor", "--base-url", gateway.url, env=env, program=with_room(100))
    assert result.code == 1
    assert "Cannot write the profile: File too large (" in result.err
    assert "(None)" not in result.err
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("tmp")] == []


async def test_the_model_of_the_settings_is_tested_and_its_usage_recorded(
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
def test_no_profile_is_saved_for_a_temporary_server(tmp_path: Path) -> None:
    """The embedded demo, used without a key and a local model, listens on a random port."""
    hidden = "import sys; sys.modules['xllamacpp'] = None; from tollbridge.cli import main; main()"
    run = [sys.executable, "-c", hidden, "doctor"]
    env = environment({"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    result = subprocess.run(run, capture_output=True, text=True, env=env, check=True)
    assert "No profile saved: this temporary server stops when the command exits." in result.stdout
    assert not list(tmp_path.rglob("*.toml"))


async def test_doctor_supports_only_openresponses() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("doctor", "--backend", "ai-sdk", "--base-url", gateway.url)
    assert result.code == 2
    assert "Remove --backend" in result.err


async def test_an_invalid_profile_is_named_and_doctor_replaces_it(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("doctor", *where, env=env)
        (path,) = tmp_path.rglob("*.toml")
        path.write_text("system = 'emperor'")
        confused = await tollbridge("ask", "Hello", *where, env=env)
        mended = await tollbridge("doctor", *where, env=env)
    assert confused.code == 0
    assert f"Invalid profile {path}" in confused.err
    assert mended.code == 0


async def test_a_model_that_does_not_exist_is_not_asked_again_and_again() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("doctor", "--base-url", gateway.url, "--model", "nothing")
        requests = [request for request in gateway.requests if request.path.endswith("/responses")]
    assert result.code == 1
    assert len(requests) == 2  # a rejection is confirmed once
    assert "Choose a model with --model." in result.out
    assert result.out.count("Not tested") == 1
    assert "– All other steps: Not tested: the model does not respond." in result.out


async def test_a_closed_port_has_one_line_for_all_skipped_steps() -> None:
    result = await tollbridge("doctor", "--base-url", "http://127.0.0.1:9/v1")
    assert result.code == 1
    reach, others, conclusion = result.out.splitlines()
    assert reach.startswith("✗ Reach: ")
    assert others == "– All other steps: Not tested: the server does not respond."
    assert conclusion.startswith("Chat does not work")
