"""Reasoning of servers that stream it under another id, and the field in which it is returned."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.protocols.openresponses.streams import COMPLETED, completed, decode, done, text
from tests.recorded_streams import events_of, openresponses
from tests.turns import AnswerParts

from tollbridge.frontends.vscode import wire as vscode
from tollbridge.frontends.vscode.codec import decode_message, encode_parts
from tollbridge.history.answer import join_parts, parts_from_events
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.types.events import Event, ReasoningDelta, ReasoningEnded, TextDelta
from tollbridge.types.messages import ChatRequest, Message, Origin, Part, Role, TextPart, Tool, ToolResultPart
from tollbridge.types.quirks import LearnedQuirks, Quirks

RECORDINGS = openresponses()
ORIGIN = Origin.of("m", "http://127.0.0.1/v1")


def recorded(name: str) -> list[Event]:
    return events_of(decoder_for("openresponses"), [RECORDINGS[name].body])


def wire_items(name: str) -> list[dict[str, Any]]:
    """Return the items of the final response in a recording."""
    last = RECORDINGS[name].body.strip().split(b"data: ")[-1]
    response: dict[str, Any] = json.loads(last)["response"]
    return list(response["output"])


def reasoning_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


@pytest.mark.parametrize("name", ["ogx.reasoning-stream", "gpt-oss.reasoning-stream", "gpt-oss.tool-stream"])
def test_recorded_reasoning_is_emitted_once(name: str) -> None:
    [item] = [item for item in wire_items(name) if item["type"] == "reasoning"]
    events = recorded(name)
    assert reasoning_of(events) == "".join(part["text"] for part in item["content"])
    [ended] = [event for event in events if isinstance(event, ReasoningEnded)]
    # The editor joins the pieces and the end of a block by its id.
    assert {event.id for event in events if isinstance(event, ReasoningDelta)} == {ended.id}


def delta(words: str, id: str, index: int = 0) -> dict[str, Any]:
    return {"type": "response.reasoning_text.delta", "delta": words, "item_id": id, "output_index": index}


def item(words: str, id: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": id,
        "summary": [],
        "content": [{"type": "reasoning_text", "text": words}],
    }


def test_two_items_with_the_same_text_are_both_emitted() -> None:
    events = decode(
        *(delta("Hm.", "rs_1", 0), done(item("Hm.", "rs_1"), 0)),
        *(delta("Hm.", "rs_2", 1), done(item("Hm.", "rs_2"), 1)),
        COMPLETED,
    )
    assert reasoning_of(events) == "Hm.Hm."


def test_a_copy_under_another_id_adds_only_what_was_not_streamed() -> None:
    streamed = delta("One, ", "msg_1")
    whole = item("One, two.", "rs_1")
    events = decode(streamed, text("Hi"), done(whole, 0), completed(whole))
    assert reasoning_of(events) == "One, two."
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hi"]


def through_the_editor(events: list[Event]) -> tuple[Part, ...]:
    """Return the parts of an answer after the editor has stored them and sent them back."""
    answer = AnswerParts(origin=ORIGIN)
    parts = answer.take(events)
    rest, error = answer.close()
    assert error is None
    data = msgspec.json.encode(vscode.Message(vscode.ASSISTANT, encode_parts([*parts, *rest], "m")))
    return decode_message(msgspec.json.decode(data, type=vscode.Message)).parts


def sent_back(parts: tuple[Part, ...], quirks: Quirks | None = None) -> dict[str, Any]:
    """Return the reasoning item of the request with the result of the tool."""
    calls = [part for part in parts if hasattr(part, "call_id")]
    result: Any = ToolResultPart(calls[0].call_id, (TextPart("Sunny"),)) if calls else TextPart("Go on")
    request = ChatRequest(
        model="m",
        messages=(Message(Role.USER, "Hi"), Message(Role.ASSISTANT, parts), Message(Role.USER, (result,))),
        tools=(Tool("get_weather"),),
        quirks=quirks,
    )
    learned = LearnedQuirks(quirks or Quirks())
    items = encode_request(normalize_request(request, learned, ORIGIN).request)["input"]
    [reasoning] = [item for item in items if item["type"] == "reasoning"]
    return dict(reasoning)


def test_recorded_reasoning_that_came_as_content_is_returned_as_content() -> None:
    name = "gpt-oss.tool-stream"
    [original] = [item for item in wire_items(name) if item["type"] == "reasoning"]
    reasoning = sent_back(through_the_editor(recorded(name)))
    assert reasoning["content"] == [{"type": "reasoning_text", "text": original["content"][0]["text"]}]
    assert reasoning["summary"] == []


@pytest.mark.parametrize("shape", ["summary", "content"])
@pytest.mark.parametrize("signed", [False, True])
def test_reasoning_is_returned_in_the_field_it_came_in(shape: str, signed: bool) -> None:
    kind = "summary_text" if shape == "summary" else "reasoning_text"
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], shape: [{"type": kind, "text": "Hm."}]}
    reasoning |= {"encrypted_content": "E"} if signed else {}
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
    events = decode(done(reasoning, 0), done(call, 1), completed(reasoning, call))
    sent = sent_back(through_the_editor(events))
    assert sent[shape] == [{"type": kind, "text": "Hm."}]
    if signed:
        # Without an origin, as in the tool loop of a library user.
        [first, *_] = encode_request(
            ChatRequest(model="m", messages=[Message(Role.ASSISTANT, join_parts(parts_from_events(events)))])
        )["input"]
        assert first == {key: value for key, value in reasoning.items() if key != "id"} | {"id": "rs_1"}


def test_a_server_that_requires_content_gets_content() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
    parts = through_the_editor(decode(done(reasoning, 0), done(call, 1), completed()))
    assert sent_back(parts, Quirks(reasoning_as="content"))["content"][0]["text"] == "Hm."


def test_unsigned_reasoning_is_returned_with_an_id_which_some_servers_require() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
    parts = through_the_editor(decode(done(reasoning, 0), done(call, 1), completed()))
    sent = sent_back(parts)
    assert sent["id"].startswith("rs_")
    assert sent == sent_back(parts)  # bytes that a prompt cache has seen do not change
    assert "id" not in sent_back(parts, Quirks(reasoning_ids=False))
