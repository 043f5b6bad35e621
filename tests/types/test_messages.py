"""Creating messages and requests."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from tollbridge.types.errors import RequestError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

PARTS: tuple[Part, ...] = (
    TextPart("Hi"),
    ThinkingPart("Hm", "rs_1", {"encrypted_content": "abc"}),
    ToolCallPart("call_1", "weather", {"city": "Oslo"}),
    ToolResultPart("call_1", (TextPart("sun"), DataPart(b"\x00\xff", "image/png"))),
    DataPart(b"bytes", "application/pdf", "a.pdf"),
)


def test_a_string_is_one_text_part() -> None:
    assert Message(Role.USER, cast(Any, "Hi")).parts == (TextPart("Hi"),)
    assert ToolResultPart("call_1", cast(Any, "sun")).parts == (TextPart("sun"),)


@pytest.mark.parametrize("value", [[TextPart("a"), TextPart("b")], (TextPart(t) for t in "ab")])
def test_any_iterable_of_parts_becomes_a_tuple_that_can_be_read_twice(value: Any) -> None:
    message = Message(Role.USER, value)
    assert message.parts == message.parts == (TextPart("a"), TextPart("b"))


def test_strings_among_the_parts_become_text_parts() -> None:
    assert Message(Role.USER, ("Hello", DataPart(b"x", "image/png"))).parts == (
        TextPart("Hello"),
        DataPart(b"x", "image/png"),
    )
    assert Message("user", ["Hello"]).parts == (TextPart("Hello"),)
    assert ToolResultPart("c", ("sun", TextPart("shine"))).parts == (TextPart("sun"), TextPart("shine"))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (TextPart("a"), "TextPart"),
        (None, "NoneType"),
        (b"bytes", "bytes"),
        ({"type": "text"}, "dict"),
        ((TextPart("a"), None), "NoneType"),
        ([{"type": "text", "text": "a"}], "dict"),
        ((Message("user", "a"),), "Message"),
    ],
)
def test_an_object_that_is_not_a_part_is_rejected_with_its_type(value: Any, named: str) -> None:
    with pytest.raises(RequestError, match=f"Message.* not {named}"):
        Message(Role.USER, value)
    with pytest.raises(RequestError, match=f"ToolResultPart.* not {named}"):
        ToolResultPart("c", value)


def test_a_tool_result_cannot_contain_calls() -> None:
    with pytest.raises(RequestError, match="not ToolCallPart"):
        ToolResultPart("c", cast(Any, (ToolCallPart("d", "f", {}),)))


def test_a_role_can_be_a_string() -> None:
    assert Message(cast(Any, "system"), ()).role is Role.SYSTEM


def test_an_unknown_role_is_rejected_with_its_name() -> None:
    with pytest.raises(RequestError, match="Unknown role 'tool'"):
        Message(cast(Any, "tool"), ())


def test_messages_can_be_encoded_and_decoded() -> None:
    message = Message(Role.ASSISTANT, PARTS, "Ada")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_parts_cannot_be_changed() -> None:
    for part in PARTS:
        with pytest.raises(AttributeError):
            setattr(part, part.__struct_fields__[0], "changed")


def test_a_request_accepts_lists_and_stores_tuples() -> None:
    request = ChatRequest(model="m", messages=[Message(Role.USER, ())], tools=[Tool("weather")])
    assert request.messages == (Message(Role.USER, ()),)
    assert request.tools == (Tool("weather"),)


def test_a_request_made_of_lists_equals_one_made_of_tuples() -> None:
    message, tool = Message(Role.USER, ["Hi"]), Tool("weather")
    from_lists = ChatRequest(model="m", messages=[message], tools=[tool])
    assert from_lists == ChatRequest(model="m", messages=(message,), tools=(tool,))
    assert msgspec.json.decode(msgspec.json.encode(from_lists), type=ChatRequest) == from_lists


def test_replacing_the_messages_of_a_request_accepts_a_list() -> None:
    request = ChatRequest(model="m", messages=())
    changed = msgspec.structs.replace(request, messages=[Message(Role.USER, "Hi")])
    assert changed.messages == (Message(Role.USER, "Hi"),)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Message("user", "a"), "Message"),
        ("Hi", "str"),
        (["Hi"], "str"),
        (None, "NoneType"),
        ([None], "NoneType"),
        ({"role": "user"}, "dict"),
        ([{"role": "user"}], "dict"),
    ],
)
def test_a_request_rejects_other_messages_with_their_type(value: Any, named: str) -> None:
    with pytest.raises(RequestError, match=f"ChatRequest.messages .* Message objects, not {named}"):
        ChatRequest(model="m", messages=value)


def test_a_request_rejects_other_tools_with_their_type() -> None:
    with pytest.raises(RequestError, match=r"ChatRequest\.tools .* Tool objects, not dict"):
        ChatRequest(model="m", messages=(), tools=cast(Any, [{"name": "weather"}]))


def test_a_request_has_no_default_settings() -> None:
    request = ChatRequest(model="m", messages=())
    assert not any(
        getattr(request, field) for field in request.__struct_fields__ if field not in ("model", "messages")
    )
