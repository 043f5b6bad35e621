"""`tollbridge quirks`: what one process learned is known to the next, shown, and forgotten on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge

from tollbridge.compat.lessons import describe_quirks
from tollbridge.compat.profiles import save_profile
from tollbridge.testing.server import Gateway
from tollbridge.types.quirks import Quirks

MODEL = "tollbridge/demo"


async def learn(gateway: Gateway, env: dict[str, str]) -> None:
    """Learn two quirks: one of the server, one of the model."""
    where = ("--base-url", gateway.url, "--model", MODEL)
    for scenario, options in (("reject-developer", ("--system", "Be brief.")), ("reject-store", ())):
        result = await tollbridge("ask", f"Hello fault:{scenario}", *where, *options, env=env)
        assert result.code == 0
        assert "`tollbridge quirks`" in result.err


async def test_each_process_knows_what_an_earlier_one_learned(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="reject-store") as gateway:
        where = ("--base-url", gateway.url, "--model", MODEL)
        results = [await tollbridge("ask", "Hello", *where, env=env) for _ in range(3)]
        assert [arrival.status for arrival in gateway.requests] == [400, 200, 200, 200]
    for result in results:  # the note does not disappear
        assert "Removed store=false" in result.err


async def test_quirks_are_listed_with_their_source_scope_and_evidence(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "COLUMNS": "200"}
    async with Gateway() as gateway:
        await learn(gateway, env)
        save_profile(gateway.url, MODEL, Quirks(images=False), folder=tmp_path / "profiles")
        listed = await tollbridge("quirks", "--gateway", gateway.url, env=env)
        as_json = await tollbridge("quirks", "list", "--gateway", gateway.url, "--json", env=env)
        other_model = await tollbridge("quirks", "--gateway", gateway.url, "--model", "other", env=env)
    head, *lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    assert head == gateway.url
    assert lines[0] == "no. quirk source holds for evidence age expires"
    assert lines[1] == "images = false doctor tollbridge/demo"
    assert lines[2].startswith('1 system = "system" learned all models 400 ')
    assert lines[3].startswith(
        "2 store is not sent learned tollbridge/demo 400 unsupported_parameter store: "
        "Unsupported parameter: 'store'."
    )
    assert lines[3].endswith("in 14 days")
    rows = [json.loads(line) for line in as_json.out.splitlines()]
    assert [(row["source"], row["number"], row["model"]) for row in rows] == [
        ("doctor", None, MODEL),
        ("learned", 1, None),
        ("learned", 2, MODEL),
    ]
    assert rows[2]["evidence"]["basis"] == "parameter"
    assert rows[2]["expires_at"] - rows[2]["learned_at"] == 14 * 86_400
    assert "store" not in other_model.out
    assert "system" in other_model.out


@pytest.mark.slow
async def test_learned_quirks_are_forgotten_by_number_model_gateway_or_all(tmp_path: Path) -> None:
    for number, arguments in enumerate((["2"], ["--model", MODEL], ["--gateway"], ["--all"])):
        env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path / str(number))}
        async with Gateway() as gateway:
            await learn(gateway, env)
            arguments += [f"{gateway.url}/"] if arguments == ["--gateway"] else []
            forgotten = await tollbridge("quirks", "forget", *arguments, env=env)
            again = await tollbridge("quirks", "forget", *arguments, env=env)
            listed = await tollbridge("quirks", "--gateway", gateway.url, env=env)
        assert forgotten.code == 0
        assert f"Forgotten: store is not sent ({gateway.url})" in forgotten.out
        assert again.code == 1
        assert "No learned quirk matches" in again.err
        assert "store" not in listed.out
        assert ("system" in listed.out) == (arguments in (["2"], ["--model", MODEL]))


async def test_forget_without_a_selection_is_a_usage_error(tmp_path: Path) -> None:
    result = await tollbridge("quirks", "forget", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert result.code == 2
    assert "Pass a NUMBER, --gateway, --model or --all" in result.err
    result = await tollbridge("quirks", "forget", "3", "--all", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert result.code == 2
    assert "--all forgets everything" in result.err


def test_a_set_is_described_in_the_same_order_by_every_process() -> None:
    names = ["caching", "cache_control", "prompt_cache_key", "a", "b", "c", "d"]
    quirks = Quirks(cache_fields=frozenset(names))
    assert describe_quirks(quirks) == [f"cache_fields = {json.dumps(sorted(names), separators=(',', ':'))}"]


async def test_doctor_replaces_what_was_learned(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        await learn(gateway, env)
        await tollbridge("doctor", "--base-url", gateway.url, "--model", MODEL, env=env)
        listed = await tollbridge("quirks", "--gateway", gateway.url, "--json", env=env)
    assert "learned" not in listed.out


async def test_chat_says_after_every_answer_that_store_was_not_sent(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway(scenario="reject-store") as gateway:
        where = ("--base-url", gateway.url, "--model", MODEL)
        result = await tollbridge("chat", *where, env=env, stdin=b"Hello\nAnd more\n")
        assert [arrival.status for arrival in gateway.requests if arrival.method == "POST"] == [400, 200, 200]
    assert result.err.count("Removed store=false") == 2


async def test_without_any_quirks_the_list_says_so(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    result = await tollbridge("quirks", "--gateway", "http://127.0.0.1:1/v1", env=env)
    assert (result.code, result.out) == (0, "")
    assert result.err == "No quirks of http://127.0.0.1:1/v1 are known.\n"


async def test_settings_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    settings = tmp_path / "bad.toml"
    settings.write_text("model = 3\n")
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CONFIG": str(settings)}
    result = await tollbridge("quirks", env=env)
    assert result.code == 1
    assert "model" in result.err
    assert "bad.toml" in result.err


async def test_quirks_are_shown_if_no_account_is_selected(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("".join(f'[accounts.{name}]\nbase_url = "https://{name}/v1"\n' for name in "ab"))
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CONFIG": str(settings)}
    assert (await tollbridge("quirks", env=env)).code == 0
