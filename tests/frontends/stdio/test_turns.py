"""Turns through the real sidecar, against the embedded gateway, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal, join_text

from tollbridge.compat.profiles import profile_file, save_profile
from tollbridge.frontends.stdio.errors import TURN_FAILED
from tollbridge.protocols import jsonrpc
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png
from tollbridge.types.quirks import Quirks

KEY = "sk-toll-4711-secret"
LIST_DIR = {
    "name": "list_dir",
    "description": "Lists a folder.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(api_key=KEY, settings=FaultSettings(pace=0.02, stall_seconds=5)) as running:
        yield running


@pytest.fixture
async def editor() -> AsyncIterator[Editor]:
    async with Editor() as running:
        await running.initialize()
        yield running
    assert KEY not in running.stderr
    assert "Traceback" not in running.stderr


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": 1, "content": content}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "value": value}


def question(
    gateway: Gateway, *messages: dict[str, Any] | str, key: str = KEY, **more: Any
) -> dict[str, Any]:
    return {
        "account": {"baseUrl": gateway.url, "apiKey": key},
        "model": "tollbridge/demo",
        "messages": [user(text(message)) if isinstance(message, str) else message for message in messages],
        **more,
    }


async def talk(editor: Editor, params: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    token, answer = editor.ask("chat", params)
    async with asyncio.timeout(20):
        result = await answer
    return editor.parts(token), result


async def test_a_cut_answer_is_reported_to_the_editor(editor: Editor, gateway: Gateway) -> None:
    parts, result = await talk(editor, question(gateway, "Be incomplete"))
    assert join_text(parts)
    assert (result["finishReason"], result["warning"]) == (
        "length",
        "The answer was truncated (output limit reached).",
    )


async def test_an_editor_is_warned_in_every_turn_without_store(editor: Editor, gateway: Gateway) -> None:
    for _ in range(2):
        _, result = await talk(editor, question(gateway, "Hello fault:reject-store"))
        assert "Removed store=false" in result["warning"]
        assert result["warning"] in result["changes"]
    assert [arrival.status for arrival in gateway.requests] == [400, 200, 200]


async def test_an_answer_is_reported_and_its_usage_comes_last(editor: Editor, gateway: Gateway) -> None:
    parts, result = await talk(editor, question(gateway, "Hello there"))
    assert "Hello there" in join_text(parts)
    *_, last = parts
    assert (last["type"], last["mimeType"]) == ("data", "usage")
    usage = json.loads(base64.b64decode(last["data"]))
    assert usage["prompt_tokens"] == result["usage"]["inputTokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert result["finishReason"] == "stop"
    assert gateway.requests[-1].bearer == KEY


async def test_what_arrives_together_travels_together(editor: Editor, gateway: Gateway) -> None:
    parts, _ = await talk(editor, question(gateway, "long 3000 fault:one-write"))
    reports = [note for note in editor.notes if note["method"] == "$/progress"]
    assert join_text(parts).split()[-1] == "w3000"
    assert len(reports) < 20


async def test_a_tool_is_called_and_its_result_understood(editor: Editor, gateway: Gateway) -> None:
    ask = user(text("use the tool list_dir on src"))
    parts, result = await talk(editor, question(gateway, ask, tools=[LIST_DIR]))
    (call,) = [part for part in parts if part["type"] == "toolCall"]
    assert (call["name"], result["finishReason"]) == ("list_dir", "tool-calls")
    assert isinstance(call["input"]["path"], str)
    answered = {"type": "toolResult", "callId": call["callId"], "content": [text("a.py b.py")]}
    parts, result = await talk(
        editor, question(gateway, ask, {"role": 2, "content": [call]}, user(answered), tools=[LIST_DIR])
    )
    assert "a.py b.py" in join_text(parts)
    assert result["finishReason"] == "stop"


@pytest.mark.parametrize(
    ("backend", "path"), [("ai-sdk", "/v4/ai/language-model"), ("chat-completions", "/v1/chat/completions")]
)
async def test_the_other_backends_give_the_same_answers(
    editor: Editor, gateway: Gateway, backend: str, path: str
) -> None:
    account = {"baseUrl": gateway.url, "apiKey": KEY, "backend": backend}
    for ask in ("Hello", "Think about it", "use the tool list_dir on src"):
        one, _ = await talk(editor, question(gateway, ask, tools=[LIST_DIR]))
        other, _ = await talk(editor, question(gateway, ask, tools=[LIST_DIR], account=account))
        assert join_text(one) == join_text(other)
        assert [part["type"] for part in one if part["type"] == "toolCall"] == [
            part["type"] for part in other if part["type"] == "toolCall"
        ]
    assert gateway.requests[-1].path == path
    listed = await editor.request("models", {"account": account})
    assert "tollbridge/demo" in [model["model"] for model in listed["models"]]


async def test_thinking_comes_with_what_must_go_back(editor: Editor, gateway: Gateway) -> None:
    params = question(gateway, "Hello", modelConfiguration={"reasoningEffort": "low"})
    parts, result = await talk(editor, params)
    thinking = [part for part in parts if part["type"] == "thinking"]
    assert "Hello" in join_text(parts, "thinking")
    assert thinking[-1]["metadata"]
    assert result["usage"]["reasoningTokens"] > 0
    history = [user(text("Hello")), {"role": 2, "content": [*thinking, text("Hi")]}, user(text("Again"))]
    parts, _ = await talk(editor, question(gateway, *history))
    items = gateway.requests[-1].body["input"]
    assert [item for item in items if item.get("type") == "reasoning"]


async def test_images_go_in_and_come_out(editor: Editor, gateway: Gateway) -> None:
    picture = {"type": "data", "mimeType": "image/jpeg", "data": base64.b64encode(draw_png()).decode()}
    await talk(editor, question(gateway, user(text("What is this?"), picture)))
    assert "data:image/png;base64," in json.dumps(gateway.requests[-1].body)
    parts, _ = await talk(editor, question(gateway, "draw something"))
    (image,) = [part for part in parts if part["type"] == "data" and part["mimeType"] == "image/png"]
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("unauthorized", "authentication"),
        ("forbidden", "permission"),
        ("not-found", "not_found"),
        ("context-too-long", "context_too_long"),
        ("failed", "server"),
        ("disconnect", "disconnected"),
        ("garbage", "protocol"),
    ],
)
async def test_every_failure_is_a_sentence_with_its_kind(
    editor: Editor, gateway: Gateway, fault: str, kind: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        await talk(editor, question(gateway, f"long fault:{fault}"))
    assert refusal.value.code == TURN_FAILED
    assert refusal.value.data["kind"] == kind
    assert refusal.value.message[-1] in ".”"


@pytest.mark.parametrize(
    ("client", "advice"),
    [
        ({"name": "neovim"}, "Check the account's API key."),
        ({"name": "VSCodium", "id": "vscode"}, "Check the account's API key with “Tollbridge: Set Up”."),
    ],
)
async def test_only_vs_code_gets_errors_that_name_its_commands(
    gateway: Gateway, client: dict[str, str], advice: str
) -> None:
    async with Editor() as editor:
        await editor.request("initialize", {"protocolVersion": 1, "client": client})
        with pytest.raises(Refusal) as refusal:
            await talk(editor, question(gateway, "Hello", key="wrong-key"))
    assert refusal.value.message.endswith(advice)


async def test_parts_before_a_failure_have_been_reported(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "long fault:disconnect"))
    with pytest.raises(Refusal):
        await answer
    assert "w100" in join_text(editor.parts(token))


async def test_the_retry_delay_of_the_gateway_is_reported(editor: Editor, gateway: Gateway) -> None:
    with pytest.raises(Refusal) as refusal:
        await talk(editor, question(gateway, "fault:rate-limit"))
    assert refusal.value.data["kind"] == "rate_limited"
    assert refusal.value.data["status"] == 429
    assert refusal.value.data["retryAfter"] > 0


async def test_a_gateway_that_is_not_there_is_named(editor: Editor) -> None:
    account = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": KEY}
    with pytest.raises(Refusal) as refusal:
        await editor.request("models", {"account": account})
    assert refusal.value.data["kind"] == "network"


@pytest.mark.timed
async def test_stop_closes_the_socket_within_100_ms(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "slow long 2000"))
    await editor.until_part(token)
    stopped = time.monotonic()
    editor.notify("$/cancelRequest", {"id": token})
    with pytest.raises(Refusal) as refusal:
        await answer
    assert refusal.value.code == jsonrpc.REQUEST_CANCELLED
    assert await gateway.wait_for_disconnect(5) - stopped < 0.1


@pytest.mark.timed
async def test_stop_does_not_wait_for_texts_that_are_counted(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "slow long 2000"))
    await editor.until_part(token)
    long = [f"{number} The quick brown fox jumps over the lazy dog. " * 60_000 for number in range(3)]
    _, counting = editor.ask("count", {"model": "anthropic/claude-sonnet-4.5", "items": long})
    editor.notify("$/cancelRequest", {"id": token})
    with pytest.raises(Refusal) as refusal:
        await answer
    assert refusal.value.code == jsonrpc.REQUEST_CANCELLED
    assert not counting.done()
    async with asyncio.timeout(60):
        assert all(count > 100_000 for count in (await counting)["counts"])


async def test_two_chats_at_once_do_not_mix(editor: Editor, gateway: Gateway) -> None:
    requests = [editor.ask("chat", question(gateway, f"slow number {n}")) for n in range(5)]
    await asyncio.gather(*(answer for _, answer in requests))
    for n, (token, _) in enumerate(requests):
        assert f"number {n}" in join_text(editor.parts(token))


async def test_counts_are_answered_while_a_chat_streams(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "slow long 2000"))
    await editor.until_part(token)
    counted = await editor.request(
        "count", {"model": "tollbridge/demo", "items": ["hello", user(text("hi"))]}
    )
    assert all(count > 0 for count in counted["counts"])
    assert (await editor.request("status"))["pending"] == 1
    editor.notify("$/cancelRequest", {"id": token})
    with pytest.raises(Refusal):
        await answer


async def test_closing_the_editor_hangs_up(gateway: Gateway) -> None:
    async with Editor() as editor:
        await editor.initialize()
        token, _ = editor.ask("chat", question(gateway, "slow long 2000"))
        await editor.until_part(token)
        editor.close_stdin()
        await gateway.wait_for_disconnect(5)
        assert await editor.exit_code() == 0


async def test_shutdown_stops_what_runs(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "slow long 2000"))
    await editor.until_part(token)
    await editor.request("shutdown")
    with pytest.raises(Refusal, match="cancelled"):
        await answer


async def test_the_models_are_those_one_can_talk_to(editor: Editor, gateway: Gateway) -> None:
    account = {"baseUrl": gateway.url, "apiKey": KEY}
    models = (await editor.request("models", {"account": account}))["models"]
    assert [model["model"] for model in models] == ["tollbridge/demo", "tollbridge/plain"]
    demo = models[0]
    assert demo["id"] == "tollbridge:demo"
    assert demo["maxInputTokens"] + demo["maxOutputTokens"] == 128_000
    assert demo["capabilities"] == {"toolCalling": True, "imageInput": True}
    assert models[1]["capabilities"] == {"toolCalling": False, "imageInput": False}


async def test_a_list_is_fetched_once_unless_the_editor_insists(editor: Editor, gateway: Gateway) -> None:
    params = {"account": {"baseUrl": gateway.url, "apiKey": KEY}}
    requests = [editor.ask("models", params)[1] for _ in range(4)]
    first, *others = await asyncio.gather(*requests)
    assert all(other == first for other in others)
    assert len(gateway.requests) == 1
    await editor.request("models", params)
    assert len(gateway.requests) == 1
    await editor.request("models", {**params, "refresh": True})
    assert len(gateway.requests) == 2


async def test_a_key_is_used_for_its_own_request_and_no_other(editor: Editor, gateway: Gateway) -> None:
    with pytest.raises(Refusal) as refusal:
        await talk(editor, question(gateway, "hi", key="wrong"))
    assert refusal.value.data["kind"] == "authentication"
    await talk(editor, question(gateway, "hi"))
    with pytest.raises(Refusal):
        await editor.request("models", {"account": {"baseUrl": gateway.url, "apiKey": "wrong"}})
    await editor.request("models", {"account": {"baseUrl": gateway.url, "apiKey": KEY}})


async def test_settings_change_for_what_comes_after(editor: Editor, gateway: Gateway) -> None:
    token, answer = editor.ask("chat", question(gateway, "slow say hello"))
    await editor.until_part(token)
    editor.notify("settings", {"timeouts": {"total": 0.0001}})
    assert (await answer)["finishReason"] == "stop"
    insisting = {"account": {"baseUrl": gateway.url, "apiKey": KEY}, "refresh": True}
    with pytest.raises(Refusal) as refusal:
        await editor.request("models", insisting)
    assert refusal.value.data["kind"] == "timeout"
    editor.notify("settings", {})
    await editor.request("models", insisting)


async def test_usage_adds_up(editor: Editor, gateway: Gateway) -> None:
    _, first = await talk(editor, question(gateway, "one"))
    _, second = await talk(editor, question(gateway, "two"))
    with pytest.raises(Refusal):
        await talk(editor, question(gateway, "fault:forbidden"))
    (totals,) = (await editor.request("usage"))["models"]
    assert totals["model"] == "tollbridge/demo"
    assert (totals["requests"], totals["failures"]) == (3, 1)
    assert totals["usage"]["inputTokens"] == first["usage"]["inputTokens"] + second["usage"]["inputTokens"]


async def test_how_right_the_estimates_were_is_in_usage_and_status(editor: Editor, gateway: Gateway) -> None:
    for ask in ("one", "two"):
        await talk(editor, question(gateway, ask))
    (accuracy,) = (await editor.request("usage"))["accuracy"]
    assert (accuracy["model"], accuracy["requests"]) == ("tollbridge/demo", 2)
    assert 0 <= accuracy["median"] <= accuracy["p95"]
    assert 0 < accuracy["plainMedian"] <= accuracy["plainP95"]
    assert (await editor.request("status"))["accuracy"] == [accuracy]


async def test_a_turn_and_its_refusal_have_the_revision_of_the_counts(
    editor: Editor, gateway: Gateway
) -> None:
    _, first = await talk(editor, question(gateway, "one"))
    assert isinstance(first["countsRevision"], int)
    assert first["context"] == first["usage"]
    with pytest.raises(Refusal) as refusal:
        await talk(editor, question(gateway, "fault:context-too-long"))
    assert refusal.value.data["countsRevision"] > first["countsRevision"]


async def test_usage_the_gateway_did_not_give_is_not_made_up(editor: Editor, gateway: Gateway) -> None:
    parts, result = await talk(editor, question(gateway, "fault:usage-null"))
    assert "usage" not in result
    assert not [part for part in parts if part["type"] == "data"]
    (totals,) = (await editor.request("usage"))["models"]
    assert totals["usage"] == {}


async def test_parts_that_could_not_be_sent_are_reported(editor: Editor, gateway: Gateway) -> None:
    marker = {"type": "data", "mimeType": "cache_control", "data": ""}
    _, result = await talk(editor, question(gateway, user(text("hi"), marker)))
    assert result["dropped"] == {"cache_control": 1}


async def test_unknown_parts_are_dropped_and_counted(editor: Editor, gateway: Gateway) -> None:
    thought = {"type": "thinking", "value": "Hm."}
    answered = {"type": "toolResult", "callId": "c", "content": [text("a.py"), thought, {"type": "video"}]}
    call = {"role": 2, "content": [{"type": "toolCall", "callId": "c", "name": "list_dir", "input": {}}]}
    messages = [user(text("hi"), {"type": "video", "url": "x"}), call, user(answered)]
    _, result = await talk(editor, question(gateway, *messages, tools=[LIST_DIR]))
    assert result["dropped"] == {"video": 2, "thinking": 1}
    assert (await editor.request("count", {"model": "openai/gpt-5", "items": messages}))["counts"][0] > 0
    with pytest.raises(Refusal, match=r"`value` - at `\$\.messages\[0\]\.content\[0\]`"):
        await talk(editor, question(gateway, user({"type": "text"}, {"type": "video"})))


async def test_half_an_emoji_does_not_end_a_chat(editor: Editor, gateway: Gateway) -> None:
    history = [
        user(text("cut \ud83d")),
        {"role": 2, "content": [text("\udc00 and cut")]},
        user(text("go on")),
    ]
    parts, _ = await talk(editor, question(gateway, *history))
    assert "go on" in join_text(parts)
    assert "cut \ufffd" in json.dumps(gateway.requests[-1].body, ensure_ascii=False)


async def test_the_profile_that_doctor_wrote_is_used(tmp_path: Path) -> None:
    refused = frozenset({"include", "store"})
    quirks = Quirks(system="system", calls=False, files=False, input_tokens=False, without=refused)
    async with Gateway(scenario="picky") as gateway:
        save_profile(gateway.url, "tollbridge/demo", quirks, folder=tmp_path / "profiles")
        async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
            await editor.initialize()
            await talk(editor, question(gateway, "Hello", key=""))
        assert [arrival.status for arrival in gateway.requests] == [200]


@pytest.mark.parametrize(("known", "wanted", "count"), [(True, None, 1), (True, False, 0), (False, True, 0)])
async def test_a_gateway_known_to_count_is_asked_how_long_a_new_conversation_is(
    tmp_path: Path, known: bool, wanted: bool | None, count: int
) -> None:
    """Not one nobody knows of, and never one twice; and the answer does not wait for it."""
    async with Gateway() as gateway:
        if known:
            save_profile(gateway.url, "tollbridge/demo", Quirks(), folder=tmp_path / "profiles")
        async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
            await editor.initialize(**({} if wanted is None else {"countAtGateway": wanted}))
            first = question(gateway, "Hello there, " * 50, key="")
            parts, _ = await talk(editor, first)
            again = [*first["messages"], {"role": 2, "content": parts[:-1]}, user(text("And then?"))]
            await talk(editor, {**first, "messages": again})
            (accuracy,) = (await editor.request("usage"))["accuracy"]
        assert accuracy["requests"] == 2
        counts = [arrival for arrival in gateway.requests if arrival.path.endswith("/input_tokens")]
        assert len(counts) == count


async def test_an_invalid_profile_is_logged_and_ignored(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        path = profile_file(gateway.url, tmp_path / "profiles")
        path.parent.mkdir()
        path.write_text("system = 'emperor'")
        async with Editor(env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)}) as editor:
            await editor.initialize()
            await talk(editor, question(gateway, "Hello", key=""))
    assert str(path) in editor.stderr


async def test_a_session_of_vscodes_agent_host_is_answered(editor: Editor, gateway: Gateway) -> None:
    """The requests of `AgentHostByokLmHandler` in VS Code 1.139, setting `chat.agentHost.byokModels.enabled`.

    It sends no conversation, but a reasoning effort, an output limit, results of tools as text, some metadata
    of the reasoning, and a marker of its own before the system message. It reads texts, thinking, tool calls
    and the usage. Our marker with the reasoning does not come back, so the reasoning is not sent again.
    """
    system = {"role": 3, "content": [text("You are a Copilot agent.")]}
    question_message = user(text("Think, then use the tool list_dir on `/tmp`"))
    settings: dict[str, Any] = {
        "tools": [LIST_DIR],
        "modelOptions": {"max_tokens": 4_000},
        "modelConfiguration": {"reasoningEffort": "high"},
    }
    parts, _ = await talk(editor, question(gateway, system, question_message, **settings))
    [call] = [part for part in parts if part["type"] == "toolCall"]
    thinking = _join_thinking([part for part in parts if part["type"] == "thinking"])
    usage = json.loads(base64.b64decode(parts[-1]["data"]))
    assert parts[-1]["mimeType"] == "usage"
    assert usage["prompt_tokens"] > 0
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0

    marker = {"type": "data", "mimeType": "stateful_marker", "data": _base64("Test/demo\\resp_byok_1")}
    result = {"type": "toolResult", "callId": call["callId"], "content": [text("bridge.py")]}
    history = [
        {"role": 2, "content": [marker]},
        system,
        question_message,
        {"role": 2, "content": [thinking, call]},
    ]
    parts, _ = await talk(editor, question(gateway, *history, user(result), **settings))
    assert "The tool list_dir answered: “bridge.py”" in join_text(parts)
    body = gateway.requests[-1].body
    kinds = [item.get("role") or item["type"] for item in body["input"]]
    assert kinds == ["developer", "user", "function_call", "function_call_output"]
    assert body["reasoning"]["effort"] == "high"
    assert body["max_output_tokens"] == 4_000
    assert "resp_byok" not in json.dumps(body)


def _join_thinking(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return thinking parts as the agent host sends them back."""
    assert {part["id"] for part in parts} == {parts[0]["id"]}
    names = ("encrypted_content", "encrypted", "signature", "_completeThinking", "redactedData")
    metadata = {name: value for part in parts for name, value in (part.get("metadata") or {}).items()}
    return {
        **parts[0],
        "value": ["".join(part["value"] for part in parts)],
        "metadata": {name: value for name, value in metadata.items() if name in names},
    }


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
