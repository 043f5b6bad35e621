"""The engine: accounts, models, turns, counts and usage through one object, against the embedded gateway."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tollbridge import (
    Account,
    Answer,
    BridgeError,
    ChatRequest,
    Engine,
    Event,
    Finished,
    Message,
    Observer,
    OpenResponsesClient,
    RequestError,
    Role,
    Settings,
    SyncEngine,
    TextDelta,
    Tool,
    ToolResultPart,
)
from tollbridge.front_end_engine import FrontEndEngine
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway

DEMO = "tollbridge/demo"
WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def request(text: str = "Hello", **fields: object) -> ChatRequest:
    return ChatRequest(model=DEMO, messages=[Message(Role.USER, text)], **fields)  # type: ignore[arg-type]


async def test_three_lines_are_enough_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Gateway(api_key="secret") as gateway:
        monkeypatch.setenv("TOLLBRIDGE_BASE_URL", gateway.url)
        monkeypatch.setenv("TOLLBRIDGE_API_KEY", "secret")
        async with Engine.open() as engine:
            result = await engine.create("Say hello", model=DEMO)
    assert result.text
    assert result.usage is not None
    assert result.usage.input_tokens
    assert json.dumps(result.to_dict())


async def test_a_text_without_a_model_is_an_error_that_says_what_to_do() -> None:
    async with Engine.open(Settings(base_url="http://127.0.0.1:9/v1"), persistent=False) as engine:
        with pytest.raises(RequestError, match='Pass model="…"'):
            await engine.create("Hello")
        with pytest.raises(RequestError, match="a string or a ChatRequest, not list"):
            await engine.create(["Hello"])  # type: ignore[arg-type]


async def test_a_turn_yields_events_and_then_has_a_result() -> None:
    async with (
        Gateway() as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
        engine.turn(request()) as turn,
    ):
        events = [event async for event in turn]
    assert turn.result is not None
    assert turn.result.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], Finished)
    assert turn.result.usage == events[-1].usage


async def test_an_error_is_raised_after_the_events_before_it() -> None:
    async with (
        Gateway(scenario="failed") as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
    ):
        events: list[Event] = []

        async def collect() -> None:
            async with engine.turn(request()) as turn:
                async for batch in turn.batches():
                    events.extend(batch)

        with pytest.raises(BridgeError):
            await collect()
        assert any(isinstance(event, TextDelta) for event in events)
        assert [record.outcome for record in engine.usage.records] == ["failed"]


async def test_leaving_a_turn_early_closes_the_connection_and_records_it_as_cancelled() -> None:
    async with (
        Gateway(scenario="slow", settings=FaultSettings(pace=0.05)) as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
    ):
        async with engine.turn(request()) as turn:
            async for _ in turn:
                break
        assert await gateway.wait_for_disconnect(10)
        assert [record.outcome for record in engine.usage.records] == ["cancelled"]


async def test_an_exception_of_the_caller_is_recorded_as_a_failure() -> None:
    async with (
        Gateway(scenario="slow", settings=FaultSettings(pace=0.05)) as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
    ):

        async def fail() -> None:
            async with engine.turn(request()) as turn:
                async for _ in turn:
                    raise KeyError("the caller's own")

        with pytest.raises(KeyError):
            await fail()
        assert [record.outcome for record in engine.usage.records] == ["failed"]


async def test_the_result_drives_a_tool_loop() -> None:
    async with Gateway() as gateway, Engine.open({"base_url": gateway.url}, persistent=False) as engine:
        messages = [Message(Role.USER, "Use the tool to get the weather in Oslo.")]
        result = await engine.create(ChatRequest(model=DEMO, messages=messages, tools=[WEATHER]))
        assert [call.name for call in result.tool_calls] == ["get_weather"]
        answers = [ToolResultPart(call.call_id, "Sunny, 21 °C") for call in result.tool_calls]
        messages += [result.message, Message(Role.USER, answers)]
        result = await engine.create(ChatRequest(model=DEMO, messages=messages, tools=[WEATHER]))
    assert result.text
    assert not result.tool_calls


async def test_each_request_uses_the_key_of_its_account_and_the_engine_keeps_none() -> None:
    async with (
        Gateway(api_key="right") as gateway,
        Engine.open(Settings(), persistent=False) as engine,
    ):
        right = Account("a", gateway.url, "openresponses", "none", api_key="right")
        wrong = Account("b", gateway.url, "openresponses", "none", api_key="wrong")
        assert (await engine.create(request(), right)).text
        with pytest.raises(BridgeError) as caught:
            await engine.create(request(), wrong)
        assert caught.value.kind == "authentication"
        assert [record.account for record in engine.usage.records] == ["a", "b"]
    assert "right" not in repr(right)


async def test_models_are_filtered_by_the_settings_and_known_to_turns() -> None:
    async with Gateway() as gateway:
        settings = {"base_url": gateway.url, "allow": ["tollbridge/*"], "deny": ["tollbridge/plain"]}
        async with Engine.open(settings, persistent=False) as engine:
            models = [model.id for model in await engine.models()]
            account = await engine.account()
            assert DEMO in models
            assert "tollbridge/plain" not in models
            listed_model = FrontEndEngine(engine).find_model(DEMO, account)
            assert listed_model is not None
            assert FrontEndEngine(engine).find_model("nobody/nothing", account) is None


async def test_counts_and_usage_need_no_gateway() -> None:
    async with Engine.open(Settings(), persistent=False) as engine:
        counts = engine.count("openai/gpt-5", ["one two three", Message(Role.USER, "one two three")])
        assert counts == [3, 3]
        assert list(engine.usage.records) == []


async def test_observers_see_the_whole_turn() -> None:
    seen: list[str] = []

    class Recorder(Observer):
        def events(self, batch: list[object]) -> None:  # type: ignore[override]
            seen.append("events")

        async def end(self, answer: Answer) -> None:
            seen.append("end" if answer.outcome == "completed" else "failed")

    async with (
        Gateway() as gateway,
        Engine.open({"base_url": gateway.url}, persistent=False) as engine,
        engine.turn(request(), observers=[Recorder()]) as turn,
    ):
        async for _ in turn:
            pass
    assert seen[0] == "events"
    assert seen[-1] == "end"
    assert seen.count("end") == 1


async def test_turns_are_recorded_where_the_settings_say(tmp_path: Path) -> None:
    async with Gateway() as gateway:
        settings = {"base_url": gateway.url, "record": str(tmp_path)}
        async with Engine.open(settings, persistent=False) as engine:
            await engine.create(request())
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


async def test_a_client_that_is_passed_in_is_used_and_not_closed() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        async with Engine.open(Settings(), client=client, persistent=False) as engine:
            await engine.create(request())
        assert (await client.create(request())).text


@pytest.mark.io
def test_the_blocking_engine_answers_and_streams() -> None:
    async def serve() -> None:
        async with Gateway() as gateway:
            await asyncio.to_thread(use, gateway.url)

    def use(url: str) -> None:
        with SyncEngine.open({"base_url": url}, persistent=False) as engine:
            result = engine.create("Say hello", model=DEMO)
            for streams in (engine.stream(request("Say hello")), engine.stream("Say hello", model=DEMO)):
                events = list(streams)
                texts = [event.text for event in events if isinstance(event, TextDelta)]
                assert "".join(texts) == result.text
            assert DEMO in [model.id for model in engine.models()]
            assert engine.count("openai/gpt-5", ["one two three"]) == [3]
            assert len(engine.usage.records) == 3

    asyncio.run(serve())


@pytest.mark.io
def test_a_blocking_call_that_ends_at_once_returns() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that the loop's thread often ends the call before the caller waits
    try:
        with SyncEngine.open({"base_url": "http://127.0.0.1:9/v1"}, persistent=False) as engine:
            names = {engine.account().name for _ in range(2000)}
    finally:
        sys.setswitchinterval(interval)
    assert names == {"default"}


@pytest.mark.io
def test_leaving_a_blocking_stream_early_ends_the_turn() -> None:
    async def serve() -> None:
        settings = FaultSettings(pace=0.05)
        async with Gateway(scenario="slow", settings=settings) as gateway:
            await asyncio.to_thread(use, gateway.url)

    def use(url: str) -> None:
        with SyncEngine.open({"base_url": url}, persistent=False) as engine:
            for _ in engine.stream(request()):
                break
            assert [record.outcome for record in engine.usage.records] == ["cancelled"]

    asyncio.run(serve())


@pytest.mark.io
def test_an_error_of_a_blocking_stream_is_raised_after_its_events() -> None:
    async def serve() -> None:
        async with Gateway(scenario="failed") as gateway:
            await asyncio.to_thread(use, gateway.url)

    def use(url: str) -> None:
        events: list[Event] = []
        with SyncEngine.open({"base_url": url}, persistent=False) as engine, pytest.raises(BridgeError):
            events.extend(engine.stream(request()))
        assert any(isinstance(event, TextDelta) for event in events)

    asyncio.run(serve())


@pytest.mark.io
def test_a_stream_that_is_still_open_when_the_engine_closes_ends() -> None:
    async def serve() -> None:
        settings = FaultSettings(pace=0.05)
        async with Gateway(scenario="slow", settings=settings) as gateway:
            async with asyncio.timeout(30):
                await asyncio.to_thread(use, gateway.url)

    def use(url: str) -> None:
        with SyncEngine.open({"base_url": url}, persistent=False) as engine:
            events = engine.stream(request())
            next(events)
        with pytest.raises(RequestError, match="closed before the request ended"):
            list(events)
        with pytest.raises(RequestError, match="The engine is closed"):
            engine.create("Hello", model=DEMO)

    asyncio.run(serve())


@pytest.mark.io
def test_a_request_that_ends_before_the_caller_waits_for_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = SyncEngine._start

    def start_slowly(self: SyncEngine, *arguments: Any) -> Any:
        task = start(self, *arguments)
        while not task.done():
            time.sleep(0.01)
        time.sleep(0.1)  # now the loop waits for something to do
        return task

    monkeypatch.setattr(SyncEngine, "_start", start_slowly)
    ended = threading.Event()

    def use() -> None:
        with SyncEngine.open({"base_url": "http://127.0.0.1:9/v1"}, persistent=False) as engine:
            assert engine.account().base_url == "http://127.0.0.1:9/v1"
        ended.set()

    threading.Thread(target=use, daemon=True).start()
    assert ended.wait(10)


async def test_a_change_of_settings_that_is_cancelled_leaves_no_client_open() -> None:
    """aiohttp reports a session that was not closed when it is deleted; warnings are errors here."""
    async with Gateway() as gateway, Gateway() as other:
        engine = Engine.open(Settings(), persistent=False)
        clients = []
        for url in (gateway.url, other.url):
            account = Account("a", url, "openresponses", "none")
            await engine.create(request(), account)
            clients.append(engine._connections.get(account).client)
        # Closing waits for the last thing to be learned, which takes longer than the caller has time.
        learned = threading.Event()
        for connection in engine._connections._connections.values():
            assert connection.tokens is not None
            connection.tokens._worker.submit(lambda: learned.wait(5))
        changing = asyncio.create_task(engine.change_settings({}))
        await asyncio.sleep(0.05)
        changing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await changing
        learned.set()
        await engine.aclose()
    for client in clients:
        assert client._http is not None
        assert client._http._closed
    gc.collect()


async def test_a_closed_engine_says_so() -> None:
    engine = Engine.open({"base_url": "http://127.0.0.1:9/v1"}, persistent=False)
    await engine.aclose()
    with pytest.raises(RequestError, match="The engine is closed"):
        await engine.create(request())


async def test_an_account_can_be_named() -> None:
    async with Gateway() as gateway:
        config = {"accounts": {"work": {"base_url": gateway.url, "key": "none"}}}
        async with Engine.open(config, persistent=False) as engine:
            assert (await engine.create(request(), "work")).text
            assert [record.account for record in engine.usage.records] == ["work"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda engine: engine.create([Message(Role.USER, "hi")]), "a string or a ChatRequest, not list"),
        (lambda engine: engine.create("hi", model=5), "ChatRequest.model must be a string, not int"),
        (lambda engine: engine.create("hi", "nobody", model=DEMO), "nobody"),
    ],
)
async def test_wrong_arguments_are_errors_that_name_them(call: Any, message: str) -> None:
    async with Engine.open({"base_url": "http://127.0.0.1:9/v1"}, persistent=False) as engine:
        with pytest.raises(RequestError, match=message):
            await call(engine)


async def test_an_unknown_setting_is_reported_as_an_argument() -> None:
    async with Engine.open({"modell": "x"}, persistent=False) as engine:
        with pytest.raises(RequestError, match=r"modell: unknown setting.*argument `config`"):
            await engine.create("Hello", model=DEMO)
