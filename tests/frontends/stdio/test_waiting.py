"""The sidecar reports why an answer has not begun, and what requests cost, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import stat
from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal, join_text
from tests.frontends.stdio.test_turns import question, text, user

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.server import Gateway

DEADLINE = 60.0


class Rejections:
    """Rejects the first requests with a status and a Retry-After in seconds."""

    def __init__(self, count: int, status: int, seconds: str | None) -> None:
        self.count = count
        self._status = status
        self._headers = {} if seconds is None else {"Retry-After": seconds}

    def __call__(self, _body: Mapping[str, Any]) -> RequestRejected | None:
        self.count -= 1
        return (
            RequestRejected(self._status, "busy", "Not now.", headers=self._headers)
            if self.count >= 0
            else None
        )


@pytest.fixture
async def editor() -> AsyncIterator[Editor]:
    async with Editor() as running:
        await running.initialize()
        yield running


def waits(editor: Editor, token: int, state: str) -> list[dict[str, Any]]:
    """Return what was reported. On a busy machine, the start of the engine can be a wait for the answer."""
    notes = [note["params"] for note in editor.notes if note["method"] == "$/wait"]
    return [note["value"] for note in notes if note["token"] == token and note["value"]["state"] == state]


async def ask(editor: Editor, gateway: Gateway, prompt: str = "hello") -> tuple[int, dict[str, Any]]:
    params = question(gateway, prompt, key="")
    token, answer = editor.ask("chat", params)
    async with asyncio.timeout(DEADLINE):
        return token, await answer


async def test_a_retry_is_reported_before_it_with_its_reason_and_seconds(editor: Editor) -> None:
    async with Gateway(reject=Rejections(1, 429, "2")) as gateway:
        token, _ = await ask(editor, gateway)
    first, *updates = waits(editor, token, "retry")
    assert first == {
        "state": "retry",
        "seconds": 2,
        "text": "The gateway limits the rate of requests. Trying again in 2 s (attempt 2 of 3).",
    }
    assert all(update["update"] for update in updates)
    order = [note["method"] for note in editor.notes]
    assert order.index("$/wait") < order.index("$/progress")
    assert "You said" in join_text(editor.parts(token))


async def test_a_short_retry_changes_only_the_seconds(editor: Editor) -> None:
    async with Gateway(reject=Rejections(1, 503, None)) as gateway:
        token, _ = await ask(editor, gateway)
    report = waits(editor, token, "retry")[0]
    assert report["update"]
    assert report["text"].startswith("The gateway is overloaded.")


async def test_a_wait_of_more_than_15_seconds_is_an_error_with_the_seconds(editor: Editor) -> None:
    rejections = Rejections(10, 429, "45")
    async with Gateway(reject=rejections) as gateway:
        with pytest.raises(Refusal) as refusal:
            await ask(editor, gateway)
        assert rejections.count == 9  # it was sent once
    assert refusal.value.data["retryAfter"] == 45
    assert refusal.value.message.endswith("Try again in 45 s.")


async def test_a_gateway_that_does_not_answer_is_reported_after_two_seconds(editor: Editor) -> None:
    async with Gateway(settings=FaultSettings(stall_seconds=20)) as gateway:
        token, answer = editor.ask("chat", question(gateway, "fault:stall-headers", key=""))
        async with asyncio.timeout(DEADLINE):
            while len(waits(editor, token, "answer")) < 2:
                await editor.until_note()
        editor.notify("$/cancelRequest", {"id": token})
        with pytest.raises(Refusal):
            await answer
    first, second = waits(editor, token, "answer")[:2]
    assert first["text"] == f"No answer yet after {first['seconds']} s."
    assert "update" not in first
    assert second["seconds"] > first["seconds"] >= 2


async def test_nothing_is_reported_once_the_answer_has_begun(editor: Editor) -> None:
    async with Gateway(settings=FaultSettings(pace=0.1)) as gateway:
        await ask(editor, gateway, "slow long 30")  # takes longer than the first report would
    methods = [note["method"] for note in editor.notes]
    assert "$/wait" not in methods[methods.index("$/progress") :]


async def test_notes_for_the_user_are_not_sent_back(editor: Editor) -> None:
    note = {"type": "thinking", "value": "No answer yet after 2 s.\n\n", "id": "tollbridge.wait"}
    history = [user(text("hi")), {"role": 2, "content": [note, text("Hello.")]}, user(text("and?"))]
    async with Gateway(strict=True) as gateway:
        _, answer = editor.ask("chat", question(gateway, *history, key=""))
        await answer
        assert "No answer yet" not in json.dumps(gateway.requests[-1].body)


async def test_reasoning_that_the_editor_joined_with_a_note_is_sent_back_unchanged(editor: Editor) -> None:
    """VS Code joins all thinking of an answer, and keeps the last id and metadata."""
    async with Gateway(strict=True) as gateway:
        await editor.request("models", {"account": {"baseUrl": gateway.url}})
        prompt = user(text("a word about reasoning"))
        token, answer = editor.ask("chat", question(gateway, prompt, key=""))
        await answer
        parts = editor.parts(token)
        thoughts = [part for part in parts if part["type"] == "thinking"]
        joined = {
            **thoughts[-1],
            "value": "No answer yet after 2 s.\n\n" + "".join(part["value"] for part in thoughts),
        }
        rest = [part for part in parts if part["type"] != "thinking" and part.get("mimeType") != "usage"]
        history = [prompt, {"role": 2, "content": [joined, *rest]}, user(text("and?"))]
        _, answer = editor.ask("chat", question(gateway, *history, key=""))
        await answer
        items = gateway.requests[-1].body["input"]
    [reasoning] = [item for item in items if item.get("type") == "reasoning"]
    assert "".join(part["text"] for part in reasoning["summary"]) == "".join(
        part["value"] for part in thoughts
    )


async def test_costs_are_added_up_for_the_conversation_and_for_today(editor: Editor) -> None:
    async with Gateway() as gateway:
        await editor.request("models", {"account": {"baseUrl": gateway.url}})
        charges = []
        for conversation in ("a", "a", None):
            options = {"_conversationId": conversation} if conversation else {}
            _, answer = editor.ask("chat", question(gateway, "hello", key="", modelOptions=options))
            charges.append(Decimal((await answer)["cost"]["charge"]))
    usage = await editor.request("usage", {"conversation": "a"})
    assert usage["conversation"]["requests"] == 2
    assert Decimal(usage["conversation"]["cost"]) == sum(charges[:2])
    assert usage["today"]["requests"] == 3
    assert Decimal(usage["today"]["cost"]) == sum(charges)
    assert (await editor.request("usage"))["conversation"] == usage["conversation"]  # that of the last answer
    assert usage["status"]["text"].startswith("Demo <1 % · $0.0")
    assert "| background | $" in usage["status"]["tooltip"]


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_cost_is_reported_as_credits_only_if_the_user_wants_it(enabled: bool) -> None:
    """A credit is a cent, and VS Code counts in billionths of it."""
    async with Editor() as editor, Gateway() as gateway:
        await editor.initialize(reportCredits=enabled)
        await editor.request("models", {"account": {"baseUrl": gateway.url}})
        token, result = await ask(editor, gateway)
        usage = json.loads(base64.b64decode(editor.parts(token)[-1]["data"]))
    if enabled:
        assert Decimal(usage["copilot_usage"]["total_nano_aiu"]) == Decimal(result["cost"]["charge"]) * 10**11
    else:
        assert "copilot_usage" not in usage


async def test_budgets_are_part_of_the_usage() -> None:
    async with Editor() as editor:
        await editor.initialize(budgets={"day": 5})
        [budget] = (await editor.request("usage"))["budgets"]
    assert budget["name"] == "daily budget"
    assert Decimal(budget["limit"]) == 5
    assert Decimal(budget["spent"]) == 0


@pytest.mark.parametrize("conversation", ["c1", None])
@pytest.mark.parametrize("embed", [True, False])
async def test_a_generated_image_is_saved_and_shown_in_a_chat(
    tmp_path: Path, conversation: str | None, embed: bool
) -> None:
    """Other extensions get only the data: they do not expect a text about it."""
    folder = tmp_path / "images"
    async with Editor() as editor, Gateway() as gateway:
        await editor.initialize(imageFolder=str(folder), embedImages=embed)
        params = question(gateway, "draw a bridge", key="", conversation=conversation)
        token, answer = editor.ask("chat", params)
        await answer
        parts = editor.parts(token)
    [data] = [part["data"] for part in parts if part.get("mimeType") == "image/png"]
    images = re.findall(r"!\[Image\]\((.*?)\)\n\n`(.*?)`\n\n", join_text(parts))
    if conversation is None:
        assert images == []
        assert not folder.exists()
    else:
        [(url, path)] = images
        assert url == (f"data:image/png;base64,{data}" if embed else f"file://{quote(path)}")
        assert Path(path).parent == folder
        assert Path(path).read_bytes() == base64.b64decode(data)
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


async def test_an_embedded_image_of_the_history_is_neither_sent_nor_counted(tmp_path: Path) -> None:
    async with Editor() as editor, Gateway() as gateway:
        await editor.initialize(imageFolder=str(tmp_path), embedImages=True)
        token, answer = editor.ask("chat", question(gateway, "draw a bridge", key="", conversation="c1"))
        await answer
        text = join_text(editor.parts(token))
        message = {"role": 2, "content": [{"type": "text", "value": text}]}
        params = question(gateway, "thanks", key="", conversation="c1")
        await editor.request("chat", {**params, "messages": [message, *params["messages"]]})
        body = json.dumps(gateway.requests[-1].body)
        counts = await editor.request("count", {"model": params["model"], "items": [text, message]})
    assert "base64" in text
    assert "![Image]" in body
    assert "base64" not in body
    assert max(counts["counts"]) < len(text) / 20
