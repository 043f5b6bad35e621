"""The sidecar with a settings file, a ledger and a recorder, as the real program."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.frontends.stdio.stdio_client import Editor, Refusal
from tests.storage.stored import open_store, read_rows

from tollbridge.compat.profiles import save_profile
from tollbridge.frontends.stdio.errors import TURN_FAILED
from tollbridge.recorder.recording import read_recording
from tollbridge.recorder.replay import diff_parts, replay_recording
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.quirks import Quirks

KEY = "tk-0123456789-secret"
RECORDINGS = Path(__file__).parents[2] / "recordings" / "openresponses"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "TOLLBRIDGE_CONFIG": str(tmp_path / "config.toml"),
        "TOLLBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "catalog"),
    }


def write_config(env: dict[str, str], text: str = "") -> None:
    Path(env["TOLLBRIDGE_CONFIG"]).write_text(text)


def rows(env: dict[str, str]) -> list[UsageRow]:
    return read_rows(Path(env["TOLLBRIDGE_DATA_DIR"]) / "tollbridge.db")


def question(base_url: str, text: str = "hello") -> dict[str, Any]:
    return {
        "account": {"baseUrl": base_url, "apiKey": KEY},
        "model": "tollbridge/demo",
        "messages": [{"role": 1, "content": [{"type": "text", "value": text}]}],
    }


async def test_the_file_and_the_editor_choose_the_models_together(env: dict[str, str]) -> None:
    write_config(env, 'favourites = ["*/plain"]\n[models.plain]\ncontext_window = 9000\n')
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize(models={"*/plain": {"context_window": 1, "name": "Small"}}, deny=["*/none"])
        account = {"baseUrl": gateway.url}
        models = (await editor.ask("models", {"account": account})[1])["models"]
        assert [(model["name"], model["contextWindow"]) for model in models] == [
            ("Small", 9000),
            ("Demo", 128_000),
        ]
        editor.notify("settings", {"deny": ["*/demo"]})
        models = (await editor.ask("models", {"account": account})[1])["models"]
        assert [model["model"] for model in models] == ["tollbridge/plain"]


async def test_options_of_the_settings_reach_the_gateway(env: dict[str, str]) -> None:
    write_config(env, '[models."*".provider_options.gateway]\norder = ["bedrock"]\n')
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize(models={"*": {"provider_options": {"gateway": {"caching": "auto"}}}})
        await editor.ask("chat", question(gateway.url))[1]
        sent = gateway.requests[-1].body
    assert sent["providerOptions"] == {"gateway": {"caching": "auto", "order": ["bedrock"]}}


async def test_an_error_in_the_file_is_reported_and_its_correction_is_used_at_once(
    env: dict[str, str],
) -> None:
    write_config(env, "\nidel = 3\n")
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        with pytest.raises(Refusal, match=r"idel: unknown setting.*config\.toml, line 2"):
            await editor.ask("chat", question(gateway.url))[1]
        write_config(env)
        assert (await editor.ask("chat", question(gateway.url))[1])["finishReason"] == "stop"


async def test_a_file_that_is_changed_counts_from_the_next_request_on(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        await editor.ask("chat", question(gateway.url))[1]
        assert "providerOptions" not in gateway.requests[-1].body
        write_config(env, '[models."*".provider_options.gateway]\norder = ["bedrock"]\n')
        await editor.ask("chat", question(gateway.url))[1]
        assert gateway.requests[-1].body["providerOptions"] == {"gateway": {"order": ["bedrock"]}}
        Path(env["TOLLBRIDGE_CONFIG"]).write_text("allow = 3\n")
        with pytest.raises(Refusal, match="allow: expected a list, got an integer"):
            await editor.ask("chat", question(gateway.url))[1]


async def test_repairs_are_counted_for_the_editor(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        params = question(gateway.url)
        orphan = {"type": "toolResult", "callId": "c", "content": [{"type": "text", "value": "42"}]}
        params["messages"].append({"role": 1, "content": [orphan]})
        result = await editor.ask("chat", params)[1]
    assert result["counts"]["orphan"] == 1
    assert result["changes"] == ["Converted a tool result without a call to text."]


async def test_a_profile_that_doctor_writes_counts_from_the_next_request_on(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        params = question(gateway.url)
        params["messages"].insert(0, {"role": 3, "content": [{"type": "text", "value": "You are a bridge."}]})
        await editor.ask("chat", params)[1]
        assert gateway.requests[-1].body["input"][0]["role"] == "developer"
        folder = Path(env["TOLLBRIDGE_DATA_DIR"]) / "profiles"
        save_profile(gateway.url, "tollbridge/demo", Quirks(system="system"), folder=folder)
        await editor.ask("chat", params)[1]
        assert gateway.requests[-1].body["input"][0]["role"] == "system"


async def test_turns_are_recorded_where_the_editor_says_so(env: dict[str, str], tmp_path: Path) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize(record=str(tmp_path / "tapes"))
        await editor.ask("chat", question(gateway.url, f"think of {KEY}"))[1]
    (path,) = (tmp_path / "tapes").iterdir()
    recording = read_recording(path)
    assert diff_parts(recording.parts, (await replay_recording(recording)).parts) == []
    assert recording.start.editor_request["model"] == "tollbridge/demo"
    assert recording.start.editor_request["messages"][0]["content"][0]["type"] == "text"
    assert KEY.encode() not in path.read_bytes()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """A server that answers as one did, and keeps the key and the question of each request."""
    answer = (RECORDINGS / "litellm.text-stream.sse").read_bytes()
    changes: list[tuple[str, str]] = []

    async def respond(request: web.Request) -> web.Response:
        body = await request.json()
        changes.append((request.headers["authorization"], json.dumps(body["input"])))
        return web.Response(body=answer, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", changes
    await runner.cleanup()


async def test_accounts_at_once_are_never_mixed(env: dict[str, str]) -> None:
    """A hundred requests under way together, of ten accounts on two servers, each with its own key."""
    write_config(env)
    async with (
        listening() as (one, heard_by_one),
        listening() as (two, heard_by_two),
        Editor(env=env) as editor,
    ):
        await editor.initialize()
        requests = []
        for number in range(100):
            name = f"key-{number % 5}-{number % 2}"
            account = {"baseUrl": (one, two)[number % 2], "apiKey": name}
            params = {**question("", f"I pay with {name}."), "account": account}
            requests.append(editor.ask("chat", params)[1])
        await asyncio.gather(*requests)
    for place, events in enumerate((heard_by_one, heard_by_two)):
        assert len(events) == 50
        for key, text in events:
            assert key.endswith(f"-{place}")
            assert f"I pay with {key.removeprefix('Bearer ')}." in text


async def answered(editor: Editor, params: dict[str, Any]) -> str:
    """How a request ended for the editor."""
    try:
        await editor.ask("chat", params)[1]
    except Refusal as refusal:
        return "failed" if refusal.code == TURN_FAILED else refusal.message
    return "completed"


async def test_every_request_is_in_the_ledger_once_with_how_it_ended(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        texts = ["hello" if number % 3 else "fault:failed" for number in range(60)]
        answers = await asyncio.gather(*(answered(editor, question(gateway.url, text)) for text in texts))
        number, stopped = editor.ask("chat", question(gateway.url, "fault:slow"))
        await editor.until_part(number)
        editor.notify("$/cancelRequest", {"id": number})
        with pytest.raises(Refusal):
            await stopped
    assert Counter(row.outcome for row in rows(env)) == Counter([*answers, "cancelled"])
    assert {row.error for row in rows(env) if row.outcome == "failed"} == {"server"}


async def test_a_sidecar_killed_amid_two_hundred_requests_loses_none(env: dict[str, str]) -> None:
    write_config(env)
    count = 200
    answers: list[str] = []
    half = asyncio.Event()
    async with Gateway(settings=FaultSettings(pace=0.01)) as gateway:
        editor = Editor(env=env)

        async def turn(number: int) -> None:
            text = ("hello", "fault:failed", "slow long 2000")[number % 3]
            answers.append(await answered(editor, question(gateway.url, text)))
            if len(answers) == count // 2:
                half.set()

        async with editor:
            await editor.initialize()
            turns = [asyncio.ensure_future(turn(number)) for number in range(count)]
            await asyncio.wait_for(half.wait(), 60)
            editor.process.send_signal(signal.SIGKILL)
            await editor.process.wait()
            for task in turns:
                task.cancel()
            await asyncio.gather(*turns, return_exceptions=True)
        arrived = len(gateway.requests)
    with open_store(Path(env["TOLLBRIDGE_DATA_DIR"]) / "tollbridge.db") as store:
        await store.usage.sums((), 0, 0)  # marks the rows of the killed process
    outcomes = Counter(row.outcome for row in rows(env))
    assert count // 2 <= len(answers) < count
    # The turns whose result the editor has are completed; those that were running are interrupted.
    assert outcomes["completed"] >= answers.count("completed")
    assert outcomes["failed"] >= answers.count("failed")
    assert outcomes["interrupted"] > 0
    assert set(outcomes) == {"completed", "failed", "interrupted"}
    # And no request is there twice.
    assert arrived <= outcomes.total() <= count
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        await editor.ask("chat", question(gateway.url))[1]
    assert Counter(row.outcome for row in rows(env)) == outcomes + Counter({"completed": 1})


async def test_two_keys_at_one_gateway_do_not_share_a_list_after_a_restart(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway(api_key=KEY) as gateway:
        right = {"baseUrl": gateway.url, "apiKey": KEY, "id": "a-1"}
        async with Editor(env=env) as editor:
            await editor.initialize()
            assert (await editor.request("models", {"account": right}))["models"]
        async with Editor(env=env) as editor:
            await editor.initialize()
            for wrong in (
                {**right, "apiKey": "other", "id": "a-2"},
                {"baseUrl": gateway.url, "apiKey": "other"},
            ):
                with pytest.raises(Refusal) as refusal:
                    await editor.request("models", {"account": wrong})
                assert refusal.value.data["kind"] == "authentication"
    async with Editor(env=env) as editor:  # without a gateway: from the disk
        await editor.initialize()
        assert (await editor.request("models", {"account": right}))["models"]


async def test_usage_is_recorded_for_the_id_of_an_account(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        for account_id in ("a-1", None):
            chat = question(gateway.url)
            chat["account"]["id"] = account_id
            await editor.request("chat", chat)
        chat["account"]["id"] = KEY
        with pytest.raises(Refusal, match="must not be its key"):
            await editor.request("chat", chat)
    assert [row.account for row in rows(env)] == ["editor-a-1", "editor"]
    folder = Path(env["TOLLBRIDGE_DATA_DIR"])
    assert not any(KEY.encode() in file.read_bytes() for file in folder.iterdir() if file.is_file())


async def test_a_failed_and_repeated_request_is_incomplete_in_the_usage(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize()
        with pytest.raises(Refusal):
            await editor.request("chat", question(gateway.url, "fault:disconnect"))
        await editor.request("chat", question(gateway.url, "fault:cache-writes"))
        (totals,) = (await editor.request("usage"))["models"]
    assert (totals["requests"], totals["failures"], totals["incomplete"]) == (2, 1, 1)
    assert totals["usage"]["cacheWriteTokens"] > 0


async def test_a_budget_of_the_editor_refuses_a_request_until_the_user_allows_it(env: dict[str, str]) -> None:
    write_config(env)
    async with Gateway() as gateway, Editor(env=env) as editor:
        await editor.initialize(budgets={"day": 0.01})
        await editor.ask("chat", question(gateway.url, "long 3000"))[1]
        with pytest.raises(Refusal) as caught:
            await editor.ask("chat", question(gateway.url))[1]
        assert caught.value.code == TURN_FAILED
        data = caught.value.data
        assert (data["kind"], data["budget"], data["limit"]) == ("budget_exceeded", "day", "0.01")
        assert 0.009 < float(data["spent"]) <= 0.01
        assert float(data["reserved"]) == 0
        assert float(data["estimate"]) > 0
        assert len(gateway.counted) == 1
        result = await editor.ask("chat", {**question(gateway.url), "overBudget": True})[1]
        assert "The daily budget (budgets.day) is 10" in result["warning"]
        assert len(gateway.counted) == 2
