"""Lessons are hypotheses: confirmed by a retry, limited in scope and time, never silent about privacy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tollbridge import BridgeError, ChatRequest, Engine, Message, Role, Tool, ToolCallPart, ToolResultPart
from tollbridge.answer import Answer
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file

MODEL = "tollbridge/demo"
OTHER_MODEL = "tollbridge/plain"
TOOL = Tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
NO_STORE = "Removed store=false: not supported by this server. It may keep prompts and answers."


def request(text: str = "Hello", model: str = MODEL, **fields: Any) -> ChatRequest:
    return ChatRequest(model=model, messages=[Message(Role.USER, text)], **fields)


def tool_round(text: str) -> ChatRequest:
    """A conversation with a tool call and its result."""
    return ChatRequest(
        model=MODEL,
        messages=[
            Message(Role.USER, text),
            Message(Role.ASSISTANT, [ToolCallPart("c1", "weather", {"city": "Oslo"})]),
            Message(Role.USER, [ToolResultPart("c1", "sunny")]),
        ],
        tools=[TOOL],
    )


async def run(gateway: Gateway, *requests: ChatRequest) -> list[Answer]:
    """Run turns in one engine, which uses the data directory of the test."""
    async with Engine.open({"base_url": gateway.url}) as engine:
        return [await engine.create(each) for each in requests]


def rejecting(*fields: str, code: str = "unsupported_parameter") -> Callable[[Any], RequestRejected | None]:
    """Reject requests that have one of these fields, as a server that lacks them."""

    def reject(body: Any) -> RequestRejected | None:
        for field in fields:
            if field in body:
                return RequestRejected(400, code, f"Unsupported parameter: '{field}'.", param=field)
        return None

    return reject


class InOrder:
    """Rejects the first requests with these errors, whatever the requests contain, and no others."""

    def __init__(self, *errors: RequestRejected | None) -> None:
        self._errors = list(errors)

    def __call__(self, _body: Any) -> RequestRejected | None:
        return self._errors.pop(0) if self._errors else None


def sent(gateway: Gateway, field: str) -> list[Any]:
    """The values of a field in all requests that arrived; None where it was not sent."""
    return [arrival.body.get(field) for arrival in gateway.requests if arrival.path.endswith("/responses")]


def stored() -> list[tuple[Any, ...]]:
    """The lessons in the database."""
    with sqlite3.connect(database_file()) as connection:
        return connection.execute("SELECT model, conversation, feature, subject FROM lesson").fetchall()


# --- Privacy and meaning ---


@pytest.mark.parametrize(
    ("code", "param", "message"),
    [
        ("", "", "Background mode is not supported when store is false."),
        ("", "", "Item 'rs_1' not found. Items are not persisted when `store` is set to false: not allowed."),
        ("unsupported_parameter", "", "Unsupported parameter: 'background' needs store."),
        ("unsupported_value", "store", "Unsupported value: 'store' does not support false for this project."),
        ("invalid_request", "store", "Invalid value: store must be true."),
    ],
)
async def test_store_is_still_sent_after_an_error_that_only_mentions_it(
    code: str, param: str, message: str
) -> None:
    async with Gateway(reject=InOrder(RequestRejected(400, code, message, param=param))) as gateway:
        with pytest.raises(BridgeError):
            await run(gateway, request())
        await run(gateway, request(), request("Something else"))
        assert sent(gateway, "store") == [False, False, False]


async def test_a_turn_without_store_says_so_every_time_also_after_a_restart() -> None:
    async with Gateway(scenario="reject-store") as gateway:
        turns = await run(gateway, request(), request("More"))
        turns += await run(gateway, request("Still more"))
        assert sent(gateway, "store") == [False, None, None, None]
    for turn in turns:
        assert turn.changes[0] == NO_STORE
        assert NO_STORE in (turn.warning or "")


@pytest.mark.parametrize(
    ("scenario", "field", "value"),
    [("reject-tool-choice", "tool_choice", "required"), ("reject-output-limit", "max_output_tokens", 100)],
)
async def test_a_turn_without_a_field_that_changes_its_meaning_says_so_every_time(
    scenario: str, field: str, value: Any
) -> None:
    async with Gateway(scenario=scenario) as gateway:
        chat_request = request("Use the tool", tools=[TOOL], **{field: value})
        turns = [*await run(gateway, chat_request, chat_request), *await run(gateway, chat_request)]
        assert sent(gateway, field) == [value, None, None, None]
    for turn in turns:
        assert turn.changes[0].startswith(f"Removed {field}: not supported by this server.")
        assert turn.changes[0] in (turn.warning or "")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_output_tokens": 100}, "Invalid value: max_output_tokens is too large for this model."),
        ({"tool_choice": "required", "tools": [TOOL]}, "Reasoning is not supported with a tool_choice."),
        ({"extra": {"text": {"verbosity": "low"}}}, "Unexpected content: the text is not valid."),
        ({"extra": {"providerOptions": {}}}, "Not supported: see providerOptions in the documentation."),
    ],
)
async def test_a_field_that_changes_the_meaning_is_kept_after_an_error_that_only_mentions_it(
    fields: dict[str, Any], message: str
) -> None:
    async with Gateway(reject=InOrder(RequestRejected(400, "", message))) as gateway:
        with pytest.raises(BridgeError):
            await run(gateway, request(**fields))
        assert len(gateway.requests) == 1


# --- Confirmation ---


async def test_nothing_is_learned_if_the_retry_fails_differently() -> None:
    unsupported = RequestRejected(
        400, "unsupported_parameter", "Unsupported: temperature", param="temperature"
    )
    other = RequestRejected(400, "", "Something else is wrong.")
    async with (
        Gateway(reject=InOrder(unsupported, other)) as gateway,
        Engine.open({"base_url": gateway.url}) as engine,
    ):
        with pytest.raises(BridgeError, match="Something else"):
            await engine.create(request(temperature=0.5))
        await engine.create(request(temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, 0.5]
    assert stored() == []


async def test_nothing_is_learned_if_the_error_repeats() -> None:
    async with Gateway(reject=lambda _: RequestRejected(400, "", "`temperature` is unknown.")) as gateway:
        with pytest.raises(BridgeError):
            await run(gateway, request(temperature=0.5))
        assert len(gateway.requests) == 2
    assert stored() == []


async def test_a_confirmed_lesson_is_known_after_a_restart() -> None:
    async with Gateway(reject=rejecting("temperature")) as gateway:
        await run(gateway, request(temperature=0.5))
        [turn] = await run(gateway, request(temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, None]
    assert stored() == [(MODEL, "", "without", "temperature")]
    assert "Removed temperature: not supported by this server." in turn.changes
    assert any("`tollbridge quirks`" in change for change in turn.changes)


async def test_a_server_that_rejects_several_fields_one_after_the_other_is_learned_in_one_turn() -> None:
    async with Gateway(reject=rejecting("temperature", "top_p", "metadata")) as gateway:
        chat_request = request(temperature=0.5, top_p=0.5, metadata={"a": "b"})
        await run(gateway, chat_request)
        await run(gateway, chat_request)
        assert [arrival.status for arrival in gateway.requests] == [400, 400, 400, 200, 200]


async def test_the_parameter_that_the_error_names_comes_before_its_words() -> None:
    error = RequestRejected(
        400, "unsupported_parameter", "Not supported: see temperature and top_p.", param="top_p"
    )
    async with Gateway(reject=InOrder(error)) as gateway:
        await run(gateway, request(temperature=0.5, top_p=0.5))
        assert sent(gateway, "temperature") == [0.5, 0.5]
        assert sent(gateway, "top_p") == [0.5, None]


async def test_an_error_about_the_input_removes_no_parameter() -> None:
    error = RequestRejected(400, "", "Unsupported text: 'temperature'.", param="input[0].content")
    async with Gateway(reject=InOrder(error)) as gateway:
        with pytest.raises(BridgeError, match="Unsupported text"):
            await run(gateway, request(temperature=0.5))
        assert len(gateway.requests) == 1


# --- Scope ---


async def test_a_history_that_was_rejected_concerns_one_conversation() -> None:
    error = RequestRejected(400, "", "No tool call found for function call output with call_id c1.")
    async with Gateway(reject=InOrder(error)) as gateway:
        first, second = tool_round("First conversation"), tool_round("Second conversation")
        await run(gateway, first, second, first)
        await run(gateway, first)
        kinds = [[item["type"] for item in items] for items in sent(gateway, "input")]
    has_calls = ["function_call" in kind for kind in kinds]
    assert has_calls == [True, False, True, False, False]


async def test_a_field_concerns_one_model() -> None:
    async with Gateway(reject=rejecting("temperature")) as gateway:
        await run(gateway, request(temperature=0.5), request(model=OTHER_MODEL, temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, 0.5, None]


async def test_the_form_of_requests_concerns_the_server() -> None:
    def request_for(model: str) -> ChatRequest:
        return ChatRequest(
            model=model, messages=[Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hello")]
        )

    async with Gateway(scenario="reject-developer") as gateway:
        await run(gateway, request_for(MODEL), request_for(OTHER_MODEL))
        roles = [items[0]["role"] for items in sent(gateway, "input")]
    assert roles == ["developer", "system", "system"]


# --- Expiry and contradiction ---


async def test_an_expired_lesson_is_tried_again_and_renewed_or_deleted() -> None:
    def expire() -> None:
        with sqlite3.connect(database_file()) as connection:
            connection.execute("UPDATE lesson SET expires_at = learned_at - 1")

    def expiries() -> list[tuple[float, int]]:
        with sqlite3.connect(database_file()) as connection:
            rows = connection.execute("SELECT expires_at - learned_at, confirmations FROM lesson").fetchall()
        return [(round(seconds / 86_400), count) for seconds, count in rows]

    unsupported = RequestRejected(400, "unknown_parameter", "Unknown.", param="temperature")
    async with Gateway(reject=InOrder(unsupported, None, unsupported)) as gateway:
        await run(gateway, request(temperature=0.5))
        assert expiries() == [(14, 1)]
        expire()
        await run(gateway, request(temperature=0.5))  # rejected again
        assert expiries() == [(14, 2)]
        await run(gateway, request(temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, 0.5, None, None]
        expire()
        await run(gateway, request())  # says nothing about it
        assert len(stored()) == 1
        await run(gateway, request(temperature=0.5))  # accepted
        assert sent(gateway, "temperature")[-1] == 0.5
    assert stored() == []


async def test_a_lesson_from_words_expires_after_a_day() -> None:
    async with Gateway(scenario="reject-top-p") as gateway:
        await run(gateway, request(top_p=0.5))
    with sqlite3.connect(database_file()) as connection:
        [[seconds]] = connection.execute("SELECT expires_at - learned_at FROM lesson").fetchall()
    assert seconds == 86_400


async def test_a_lesson_is_dropped_when_another_request_contradicts_it() -> None:
    stray = RequestRejected(400, "unknown_parameter", "Unknown.", param="temperature")
    async with (
        Gateway(reject=InOrder(stray)) as gateway,
        Engine.open({"base_url": gateway.url}) as engine,
        engine.turn(request("Second", temperature=0.5)) as earlier,
    ):
        await engine.create(request("First", temperature=0.5))  # rejected, repaired, learned
        async for _ in earlier:  # was prepared before, and is accepted with the field
            pass
        await engine.create(request("Third", temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, 0.5, 0.5]
    assert stored() == []


# --- Storage ---


async def test_evidence_contains_no_prompt_and_no_key() -> None:
    secret, prompt = "sk-0123456789abcdefghijklmnop", "My diary of today"
    message = f"Unsupported parameter 'temperature' for {secret} in \"{prompt}\""
    async with Gateway(reject=InOrder(RequestRejected(400, "", message))) as gateway:
        await run(gateway, request(prompt, temperature=0.5))
    with sqlite3.connect(database_file()) as connection:
        [[evidence]] = connection.execute("SELECT evidence FROM lesson").fetchall()
    assert "Unsupported parameter 'temperature'" in evidence
    assert secret not in evidence
    assert prompt not in evidence


async def test_a_turn_works_without_a_database(caplog: pytest.LogCaptureFixture) -> None:
    database_file().mkdir(parents=True)  # cannot be opened as a file
    async with Gateway(reject=rejecting("temperature")) as gateway:
        await run(gateway, *[request(temperature=0.5)] * 3)
        assert sent(gateway, "temperature") == [0.5, None, None, None]
    assert caplog.text.count("what is learned about servers is not stored") == 1


async def test_a_damaged_row_is_ignored() -> None:
    async with Gateway(reject=rejecting("temperature", "top_p")) as gateway:
        await run(gateway, request(temperature=0.5), request(top_p=0.5))
        with sqlite3.connect(database_file()) as connection:
            connection.execute("UPDATE lesson SET evidence = '{' WHERE subject = 'top_p'")
        await run(gateway, request(temperature=0.5, top_p=0.5))
        assert sent(gateway, "temperature")[-2:] == [None, None]
        assert sent(gateway, "top_p")[-2:] == [0.5, None]


async def test_a_running_engine_notices_what_another_process_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tollbridge.compat.memory._RELOAD_INTERVAL", 0.0)
    async with (
        Gateway(reject=rejecting("temperature")) as gateway,
        Engine.open({"base_url": gateway.url}) as engine,
    ):
        await engine.create(request(temperature=0.5))
        await engine.create(request(temperature=0.5))
        assert sent(gateway, "temperature") == [0.5, None, None]
        with sqlite3.connect(database_file()) as connection:
            connection.execute("DELETE FROM lesson")
        await engine.create(request(temperature=0.5))
        assert sent(gateway, "temperature")[3:] == [0.5, None]
