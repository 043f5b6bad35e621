"""Cache misses are explained, in agent conversations with the gateway's simulated prompt cache."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.frontends.http.servers import local_server
from tests.frontends.stdio.stdio_client import Editor
from tests.storage.stored import open_database, open_store
from tollbridge import (
    Account,
    Answer,
    CacheReport,
    ChatRequest,
    Engine,
    Message,
    Role,
    Settings,
    Tool,
    ToolResultPart,
)
from tollbridge.compat.profiles import find_quirks, profile_file, save_profile
from tollbridge.front_end_engine import FrontEndEngine
from tollbridge.protocols import Backend
from tollbridge.storage.rows import Scope
from tollbridge.testing import Call
from tollbridge.testing.prompt_cache import PROVIDER_CACHE
from tollbridge.testing.refusals import CannedReply, RequestRejected
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Say, ScriptedAnswer, Think
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file
from tollbridge.types.quirks import Quirks

DEMO = "tollbridge/demo"
# About 2,000 tokens, with a date in the middle.
RULES = "\n".join(f"Rule {number}: read the file before you change it, and say why." for number in range(120))
SYSTEM = f"You are a careful agent.\n{RULES}\nToday is Monday, the 16th.\n{RULES}\nAnswer briefly."
FILE = "\n".join(f"{line:04d} value_{line} = compute({line})" for line in range(40))


def make_tool(name: str, description: str = "") -> Tool:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return Tool(name, description or f"Use {name} on a file of the project.", parameters)


TOOLS = tuple(make_tool(name) for name in ("read_file", "write_file", "search", "run_tests"))


def answer_as_agent(request: AcceptedRequest) -> ScriptedAnswer:
    """Read a file after each question, and answer when the result is there."""
    number = len(request.items)
    thought = Think(f"Step {number}: the file decides what to do next, so it is read first.")
    if request.items[-1]["type"] == "function_call_output":
        return ScriptedAnswer(blocks=(thought, Say(f"Step {number} is done: the value is computed.")))
    call = Call("read_file", f'{{"path": "src/part_{number}.py"}}')
    return ScriptedAnswer(blocks=(thought, call))


def next_messages(result: Answer) -> list[Message]:
    """Return the answer and what an agent sends after it: the results of the calls, or the next question."""
    results = [ToolResultPart(call.call_id, FILE) for call in result.tool_calls]
    return [result.message, Message(Role.USER, results or "Continue with the next file.")]


class Conversation:
    """A conversation of an agent, which can change its next request in any way."""

    def __init__(self, engine: Engine, account: Account, conversation: str | None = "conversation-1") -> None:
        self._engine = engine
        self._account = account
        self.request = ChatRequest(
            model=DEMO,
            messages=[Message(Role.SYSTEM, SYSTEM), Message(Role.USER, "Fix the failing test.")],
            tools=TOOLS,
            reasoning_effort="low",
            conversation=conversation,
        )

    async def send(self) -> Answer:
        """Send the request, and prepare the next one."""
        result = await self._engine.create(self.request, self._account)
        messages = (*self.request.messages, *next_messages(result))
        self.request = msgspec.structs.replace(self.request, messages=messages)
        return result

    async def send_many(self, count: int) -> list[Answer]:
        return [await self.send() for _ in range(count)]

    def change(self, **fields: Any) -> None:
        self.request = msgspec.structs.replace(self.request, **fields)

    def change_message(self, index: int, *messages: Message) -> None:
        """Replace a message by others, or by none."""
        before, after = self.request.messages[:index], self.request.messages[index + 1 :]
        self.change(messages=(*before, *messages, *after))


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(cache=PROVIDER_CACHE, model=answer_as_agent) as running:
        yield running


@pytest.fixture
async def account(gateway: Gateway) -> Account:
    return Account("test", gateway.url, "openresponses", "none")


@pytest.fixture
async def engine(account: Account) -> AsyncIterator[Engine]:
    async with Engine.open(Settings()) as running:
        await running.models(account)  # for the prices
        yield running


@pytest.fixture
def conversation(engine: Engine, account: Account) -> Conversation:
    return Conversation(engine, account)


def hit_rate(usages: list[tuple[int, int]]) -> float:
    """Return the share of the previous prompts that was read from the cache.

    Args:
        usages: The input tokens and the cached tokens of each request.
    """
    pairs = list(pairwise(usages))
    hits = sum(min(cached, before) for (before, _), (_, cached) in pairs)
    return hits / sum(before for (before, _), _ in pairs)


def counts(result: Answer) -> tuple[int, int]:
    assert result.usage is not None
    assert result.usage.input_tokens is not None
    assert result.usage.cached_tokens is not None
    return result.usage.input_tokens, result.usage.cached_tokens


async def test_an_agent_conversation_of_30_turns_is_read_from_the_cache(conversation: Conversation) -> None:
    results = await conversation.send_many(30)
    usages = [counts(result) for result in results]
    assert usages[-1][0] > 10_000
    assert hit_rate(usages) >= 0.95
    reports = [result.cache for result in results]
    assert all(report is not None and not report.missed for report in reports)
    assert [report.kind for report in reports if report] == ["first", *["hit"] * 29]


def add_tool(conversation: Conversation) -> None:
    conversation.change(tools=(*TOOLS[:2], make_tool("fetch_page"), *TOOLS[2:]))


def remove_tool(conversation: Conversation) -> None:
    conversation.change(tools=TOOLS[:1] + TOOLS[2:])


def move_tool(conversation: Conversation) -> None:
    conversation.change(tools=(TOOLS[3], *TOOLS[:3]))


def change_tool(conversation: Conversation) -> None:
    conversation.change(tools=(*TOOLS[:1], make_tool("write_file", "Write a file."), *TOOLS[2:]))


def change_system(conversation: Conversation) -> None:
    text = SYSTEM.replace("Monday, the 16th", "Tuesday, the 17th")
    conversation.change_message(0, Message(Role.SYSTEM, text))


def change_message(conversation: Conversation) -> None:
    conversation.change_message(1, Message(Role.USER, "Fix the failing test. It is 12:31."))


def remove_messages(conversation: Conversation) -> None:
    conversation.change(messages=(*conversation.request.messages[:2], *conversation.request.messages[6:]))


def insert_messages(conversation: Conversation) -> None:
    first = conversation.request.messages[1]
    log = Message(Role.USER, "The session log is in log-2.txt.")
    conversation.change_message(1, log, Message(Role.ASSISTANT, "Understood."), first)


def change_effort(conversation: Conversation) -> None:
    conversation.change(reasoning_effort="high")


BREAKS: dict[str, tuple[Callable[[Conversation], None], str, str]] = {
    "tool added": (add_tool, "tools", 'The tool "fetch_page" was added.'),
    "tool removed": (remove_tool, "tools", 'The tool "write_file" was removed.'),
    "tool moved": (move_tool, "tools", 'The tool "run_tests" moved from position 4 to 1 of 4.'),
    "tool changed": (change_tool, "tools", 'The definition of the tool "write_file" changed.'),
    "message changed": (change_message, "messages", "Message 1 of 13 (user) changed."),
    "messages removed": (remove_messages, "messages", "Messages 2 to 5 were removed."),
    "messages inserted": (insert_messages, "messages", "Messages 1 to 2 were inserted."),
    "effort changed": (change_effort, "option", "The reasoning effort changed from low to high."),
}


@pytest.mark.parametrize(("change", "kind", "sentence"), BREAKS.values(), ids=BREAKS)
async def test_a_change_of_the_prompt_is_named(
    conversation: Conversation, change: Callable[[Conversation], None], kind: str, sentence: str
) -> None:
    await conversation.send_many(6)
    change(conversation)
    report = assert_miss(await conversation.send(), kind)
    assert report.reason == sentence
    following = (await conversation.send()).cache
    assert following is not None
    assert not following.missed, "the changed prompt is cached from then on"


def assert_miss(result: Answer, kind: str) -> CacheReport:
    report = result.cache
    assert report is not None
    assert (report.missed, report.kind) == (True, kind), report.reason
    assert report.expected is not None
    assert result.usage is not None
    assert report.actual is not None
    assert report.actual == result.usage.cached_tokens
    # They were written again at $1.25 per million tokens, or read uncached at $1.00, and not at $0.10.
    missed = report.expected - report.actual
    written = min(missed, result.usage.cache_write_tokens or 0)
    assert written > 0.9 * missed
    assert report.cost == written * Decimal("0.00000115") + (missed - written) * Decimal("0.00000090")
    return report


async def test_a_changed_span_of_the_system_text_is_located(conversation: Conversation) -> None:
    await conversation.send_many(4)
    change_system(conversation)
    report = assert_miss(await conversation.send(), "system")
    words = report.reason.replace(",", "").split()
    first, last, total = int(words[6]), int(words[8]), int(words[10].rstrip("."))
    text = SYSTEM.replace("Monday, the 16th", "Tuesday, the 17th")
    place = text.index("Tuesday")
    assert report.reason.startswith("The system text changed within characters ")
    assert total == len(text)
    assert first - 1 <= place
    assert last >= place + len("Tuesday, the 17th")
    assert last - first < 600, "the place is useful"


async def test_another_model_has_another_cache(engine: Engine, account: Account) -> None:
    conversation = Conversation(engine, account)
    messages = [Message(Role.SYSTEM, SYSTEM[:5_000]), Message(Role.USER, "Hello.")]
    conversation.change(messages=tuple(messages), tools=(), reasoning_effort=None)
    first = await engine.create(conversation.request, account)
    assert counts(first)[0] > 1_024
    again = msgspec.structs.replace(conversation.request, model="tollbridge/plain")
    report = (await engine.create(again, account)).cache
    assert report is not None
    assert (report.missed, report.kind) == (True, "model")
    assert report.reason == 'The model changed from "tollbridge/demo" to "tollbridge/plain".'
    assert report.cost is None, "the price of cached tokens is not known for this model"


async def test_a_prompt_that_was_not_used_for_long_is_explained(
    conversation: Conversation, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conversation.send_many(3)
    gateway.cache.advance(25 * 60)
    later = SimpleNamespace(time=lambda: time.time() + 25 * 60, monotonic=time.monotonic)
    monkeypatch.setattr("tollbridge.observers.usage.time", later)
    report = assert_miss(await conversation.send(), "expired")
    assert report.reason == ("The last request was 25 min ago; the provider keeps prompts for about 10 min.")


async def test_a_lost_cache_cannot_be_explained(conversation: Conversation, gateway: Gateway) -> None:
    await conversation.send_many(3)
    gateway.cache.advance(25 * 60)  # the provider removes the prompt, although little time has passed
    report = assert_miss(await conversation.send(), "unknown")
    assert report.reason.startswith("The reason is not known: the prompt begins with the previous one")


async def test_a_switch_of_the_provider_is_named(conversation: Conversation, gateway: Gateway) -> None:
    await conversation.send_many(3)
    gateway.cache.switch_provider()
    report = assert_miss(await conversation.send(), "provider")
    assert report.reason == (
        'The gateway switched the provider from "alpha" to "beta"; each has its own cache.'
    )


async def test_a_short_prompt_is_not_a_miss(engine: Engine, account: Account) -> None:
    request = ChatRequest(model=DEMO, messages=[Message(Role.USER, "Hi")], conversation="short")
    await engine.create(request, account)
    report = (await engine.create(request, account)).cache
    assert report is not None
    assert (report.missed, report.kind) == (False, "minimum")
    assert "caches prompts of 1,024 tokens or more" in report.reason


async def test_conversations_without_an_id_are_recognized(engine: Engine, account: Account) -> None:
    one, other = (Conversation(engine, account, None) for _ in range(2))
    other.change_message(1, Message(Role.USER, "Write the documentation."))
    for _ in range(3):
        await one.send()
        await other.send()
    add_tool(one)
    report = assert_miss(await one.send(), "tools")
    assert report.reason == 'The tool "fetch_page" was added.'
    unaffected = (await other.send()).cache
    assert unaffected is not None
    assert unaffected.kind == "hit"


async def test_a_new_conversation_with_the_same_tools_is_not_a_miss(engine: Engine, account: Account) -> None:
    await Conversation(engine, account, None).send_many(4)
    new = Conversation(engine, account, None)
    new.change_message(1, Message(Role.USER, "Write the documentation."))
    report = (await new.send()).cache
    assert report is not None
    assert report.kind == "first"


async def test_other_requests_of_a_conversation_do_not_disturb(conversation: Conversation) -> None:
    await conversation.send_many(3)
    agent_request = conversation.request
    conversation.change(messages=(Message(Role.USER, "Write a title for: fix the test."),), tools=())
    title = (await conversation.send()).cache
    conversation.request = agent_request
    report = (await conversation.send()).cache
    assert title is not None
    assert report is not None
    assert (title.kind, report.kind) == ("first", "hit")


async def test_a_conversation_is_continued_after_a_restart(account: Account) -> None:
    async with Engine.open(Settings()) as engine:
        await engine.models(account)
        before = Conversation(engine, account)
        await before.send_many(3)
    async with Engine.open(Settings()) as engine:
        await engine.models(account)
        after = Conversation(engine, account)
        after.request = before.request
        remove_tool(after)
        assert_miss(await after.send(), "tools")


async def test_no_text_of_a_prompt_is_stored(account: Account) -> None:
    async with Engine.open(Settings()) as engine:
        conversation = Conversation(engine, account)
        await conversation.send_many(3)
        add_tool(conversation)
        await conversation.send()
    with open_database(database_file()) as database:
        rows = database.query("SELECT prompt, '' FROM sent_prompt UNION SELECT report, '' FROM cache_report")
    stored = b"".join(row[0] if isinstance(row[0], bytes) else row[0].encode() for row in rows)
    assert b"fetch_page" in stored, "names of tools are stored"
    for text in ("careful", "failing", "value_1", "computed", "of the project", "Step"):
        assert text.encode() not in stored


async def test_only_the_last_prompt_of_a_conversation_is_kept(account: Account) -> None:
    async with Engine.open(Settings()) as engine:
        await Conversation(engine, account).send_many(5)
    with open_database(database_file()) as database:
        assert database.query("SELECT count(*) FROM sent_prompt") == [(1,)]
        assert database.query("SELECT count(*) FROM cache_report") == [(5,)]


async def test_a_repeated_shorter_prompt_does_not_replace_the_longer_one(
    conversation: Conversation,
) -> None:
    first = conversation.request
    await conversation.send_many(4)
    longest = conversation.request
    conversation.request = first
    again = (await conversation.send()).cache
    conversation.request = longest
    report = (await conversation.send()).cache
    assert again is not None
    assert report is not None
    assert (again.kind, report.kind) == ("hit", "hit")
    assert (report.expected or 0) > (again.expected or 0) + 500


async def test_reports_of_another_version_are_skipped(account: Account) -> None:
    async with Engine.open(Settings()) as engine:
        await Conversation(engine, account).send_many(1)
    with open_database(database_file()) as database:
        database.query("UPDATE cache_report SET report = '{}', missed = 1")
        database.query("UPDATE sent_prompt SET prompt = x'00'")
    with open_store(database_file()) as store:
        assert (await store.prompts.report(), await store.prompts.misses()) == (None, [])
        assert store.prompts.find(Scope(account.base_url, account.name, "conversation-1")) == []


async def test_reports_can_be_found_by_the_start_of_the_turn(account: Account) -> None:
    async with Engine.open(Settings()) as engine:
        conversation = Conversation(engine, account)
        await conversation.send_many(3)
        add_tool(conversation)
        await conversation.send()
    with open_store(database_file()) as store:
        (miss,) = await store.prompts.misses()
        last = await store.prompts.report()
        assert last == miss == await store.prompts.report(miss.turn[:8])
        assert await store.prompts.report("%") is None


# --- The provider's own diagnosis ---


def enable_diagnostics(url: str) -> None:
    path = profile_file(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("cache_diagnostics = true\n")


def make_response(**fields: Any) -> CannedReply:
    usage = {"input_tokens": 9_000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
    }
    response = {"id": "resp_7", "status": "completed", "output": [item], "usage": usage, **fields}
    event = {"type": "response.completed", "response": response}
    body = b"data: " + msgspec.json.encode(event) + b"\n\n"
    return CannedReply(status=200, body=body, content_type="text/event-stream")


async def test_openai_is_asked_for_its_diagnosis_of_the_previous_response() -> None:
    # The shape is that of `PromptCacheDiagnosticsCacheMiss` in OpenAI's Python client 3.49.
    diagnosis = {"type": "cache_miss", "reason": "verbosity_changed", "cache_missed_tokens": 8_900}
    async with Gateway(reply=make_response(prompt_cache_diagnostics=diagnosis)) as gateway:
        enable_diagnostics(gateway.url)
        account = Account("test", gateway.url, "openresponses", "none")
        async with Engine.open(Settings()) as engine:
            fields: dict[str, Any] = {"messages": [Message(Role.USER, "Hi")], "conversation": "one"}
            models = ("openai/gpt-5.6", "openai/gpt-5.6", "openai/gpt-5.4")
            results = [await engine.create(ChatRequest(model=model, **fields), account) for model in models]
            await engine.create(ChatRequest(model="openai/gpt-5.6", messages=fields["messages"]), account)
        bodies = [request.body for request in gateway.requests if request.path == "/v1/responses"]
    options = [body.get("prompt_cache_options") for body in bodies]
    # The first request has nothing to compare with, older models do not accept the field, and without a
    # conversation it is not known which response came before.
    assert options == [None, {"comparison_response_id": "resp_7"}, None, None]
    report = results[1].cache
    assert report is not None
    assert (report.kind, report.source) == ("option", "gateway")
    assert report.reason == "The verbosity changed."


async def test_anthropic_is_asked_for_its_diagnosis_from_the_first_request_on(gateway: Gateway) -> None:
    enable_diagnostics(gateway.url)
    account = Account("test", gateway.url, "anthropic-messages", "none")
    async with Engine.open(Settings()) as engine:
        conversation = Conversation(engine, account)
        results = await conversation.send_many(2)
    bodies = [request.body for request in gateway.requests if request.path == "/v1/messages"]
    assert [body["diagnostics"]["previous_message_id"] for body in bodies] == [None, results[0].response_id]
    assert results[1].cache is not None
    assert results[1].cache.kind == "hit"


async def test_no_diagnosis_is_asked_of_other_servers(conversation: Conversation, gateway: Gateway) -> None:
    await conversation.send_many(2)
    bodies = [request.body for request in gateway.requests if request.path == "/v1/responses"]
    assert not any({"prompt_cache_options", "diagnostics"} & body.keys() for body in bodies)


@pytest.mark.parametrize(
    ("url", "backend"),
    [("https://api.openai.com/v1", "openresponses"), ("https://api.anthropic.com/v1", "anthropic-messages")],
)
async def test_the_shipped_profiles_ask_and_still_allow_forwarding(url: str, backend: Backend) -> None:
    async with Engine.open(Settings(), persistent=False) as engine:
        assert FrontEndEngine(engine).is_plain("m", Account("test", url, backend, "none"))
        assert engine.compat.recall(url, "m").quirks.cache_diagnostics


async def test_a_profile_of_doctor_does_not_turn_the_question_off(tmp_path: Path) -> None:
    url = "https://api.openai.com/v1"
    save_profile(url, "m", Quirks(images=False), folder=tmp_path)
    quirks = find_quirks(url, "m", tmp_path)
    assert quirks is not None
    assert (quirks.images, quirks.cache_diagnostics) == (False, True)


async def test_a_server_that_rejects_the_question_is_not_asked_again(gateway: Gateway) -> None:
    def reject(body: Any) -> RequestRejected | None:
        if isinstance(body, dict) and "diagnostics" in body:
            message = "diagnostics: Extra inputs are not permitted"
            return RequestRejected(400, "invalid_request_error", message, param="diagnostics")
        return None

    async with Gateway(cache=PROVIDER_CACHE, model=answer_as_agent, reject=reject) as strict:
        enable_diagnostics(strict.url)
        account = Account("test", strict.url, "anthropic-messages", "none")
        async with Engine.open(Settings()) as engine:
            await Conversation(engine, account).send_many(3)
        options = [
            "diagnostics" in request.body for request in strict.requests if request.path == "/v1/messages"
        ]
    assert options == [True, False, False, False]


# --- Forwarded requests ---


async def test_a_forwarded_request_is_explained(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tollbridge")
    tools = [{"type": "function", "name": tool.name, "parameters": tool.parameters} for tool in TOOLS]
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Fix the test."}]
    body = {"model": DEMO, "instructions": SYSTEM, "input": items, "tools": tools, "stream": True}
    async with local_server(gateway.url) as server:
        for changed in (body, body, {**body, "tools": tools[1:]}):
            async with server.http.post(f"{server.url}/v1/responses", json=changed) as response:
                assert response.status == 200
                await response.read()
        raw = [request.raw for request in gateway.requests if request.path == "/v1/responses"]
        assert [len(data) for data in raw[:2]] == [len(raw[0])] * 2
    (line,) = [message for message in caplog.messages if message.startswith("Prompt cache:")]
    assert line.endswith('The tool "read_file" was removed.')


# --- The stdio server ---


def decode_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the next messages of an editor: the answer, and the results of its calls or a question."""
    sent_back = [part for part in parts if part.get("mimeType") != "usage"]
    results = [
        {"type": "toolResult", "callId": part["callId"], "content": [{"type": "text", "value": FILE}]}
        for part in parts
        if part["type"] == "toolCall"
    ]
    question = {"type": "text", "value": "Continue with the next file."}
    return [{"role": 2, "content": sent_back}, {"role": 1, "content": results or [question]}]


async def test_the_stdio_server_reports_a_miss_in_the_result_and_in_the_log(gateway: Gateway) -> None:
    tools = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters} for tool in TOOLS
    ]
    first = [(3, SYSTEM), (1, "Fix the failing test.")]
    messages: list[dict[str, Any]] = [
        {"role": role, "content": [{"type": "text", "value": value}]} for role, value in first
    ]
    usages: list[tuple[int, int]] = []
    async with Editor() as editor, asyncio.timeout(60):
        await editor.initialize()
        params = {"account": {"baseUrl": gateway.url}, "model": DEMO, "tools": tools}
        await editor.request("models", {"account": params["account"]})
        for _ in range(30):
            token, answer = editor.ask("chat", {**params, "messages": messages})
            result = await answer
            usages.append((result["usage"]["inputTokens"], result["usage"]["cachedTokens"]))
            assert not result["cache"]["missed"]
            messages += decode_parts(editor.parts(token))
        result = await editor.request("chat", {**params, "messages": messages, "tools": tools[1:]})
    assert hit_rate(usages) >= 0.95
    assert result["cache"]["missed"] is True
    assert result["cache"]["kind"] == "tools"
    assert result["cache"]["text"].endswith('The tool "read_file" was removed.')
    assert Decimal(result["cache"]["cost"]) > 0
    assert "Prompt cache: " in editor.stderr
