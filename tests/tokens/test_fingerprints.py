"""Fingerprints cover everything that is sent."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tollbridge.tokens.prompts import (
    answer_fingerprint,
    fingerprint,
    prefix_fingerprints,
    toolset_fingerprint,
)
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


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


# No two of these are the same message.
DIFFERENT = [
    assistant(TextPart("Hi")),
    assistant(TextPart("Hi ")),
    assistant(TextPart("H"), TextPart("i")),
    Message(Role.USER, (TextPart("Hi"),)),
    Message(Role.USER, (TextPart("Hi"),), name="Ada"),
    assistant(ThinkingPart("Hi")),
    assistant(ThinkingPart("Hi", metadata={"signature": "one"})),
    assistant(ThinkingPart("Hi", metadata={"signature": "two"})),
    assistant(ToolCallPart("call_1", "read", {"path": "a"})),
    assistant(ToolCallPart("call_1", "read", {"path": "b"})),
    assistant(ToolCallPart("call_1", "write", {"path": "a"})),
    assistant(ToolCallPart("call_2", "read", {"path": "a"})),
    assistant(ToolResultPart("call_1", (TextPart("abc"),))),
    assistant(ToolResultPart("call_1", (TextPart("abd"),))),
    assistant(ToolResultPart("call_1", (TextPart("abc"),), is_error=True)),
    assistant(ToolResultPart("call_1", (DataPart(b"abc", "image/png"),))),
    assistant(ToolResultPart("call_1", (DataPart(b"abd", "image/png"),))),
    assistant(DataPart(b"abc", "image/png")),
    assistant(DataPart(b"abc", "image/jpeg")),
    assistant(DataPart(b"abc", "image/png", "name")),
]


def test_messages_that_are_sent_differently_have_different_fingerprints() -> None:
    for first, second in combinations(DIFFERENT, 2):
        assert fingerprint(first) != fingerprint(second), (first, second)


def test_the_order_of_arguments_does_not_matter() -> None:
    message = assistant(ToolCallPart("c", "f", {"a": 1, "b": 2}))
    assert fingerprint(message) == fingerprint(assistant(ToolCallPart("c", "f", {"b": 2, "a": 1})))


@pytest.mark.parametrize("strange", ["\ud83d", {"\udc00": 1}, {1: 2}, object, {"deep": [{"\ud800"}]}])
def test_values_that_cannot_be_encoded_have_different_fingerprints(strange: Any) -> None:
    first, second = (assistant(ToolCallPart("c", "f", [strange, number])) for number in (1, 2))
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(first) == fingerprint(assistant(ToolCallPart("c", "f", [strange, 1])))


def request(**changes: Any) -> ChatRequest:
    return ChatRequest(**{"model": "m", "messages": (), **changes})


def test_tools_and_settings_are_fingerprinted_together() -> None:
    requests = [
        request(),
        request(tools=(Tool("a"),)),
        request(tools=(Tool("a", "described"),)),
        request(tools=(Tool("a", "", {"type": "object"}),)),
        request(tools=(Tool("a"), Tool("b"))),
        request(tool_choice="required"),
        request(extra={"tools": [{"type": "web_search"}]}),
        request(extra={"providerOptions": {"anthropic": {"thinking": {"type": "adaptive"}}}}),
    ]
    assert len({toolset_fingerprint(item) for item in requests}) == len(requests)


@pytest.mark.parametrize(
    "extra",
    [
        {"service_tier": "flex"},
        {"request_id": "a1b2"},
        {"user": "u", "providerOptions": {"gateway": {"order": ["anthropic"]}}},
    ],
)
def test_options_that_do_not_reach_the_prompt_are_not_fingerprinted(extra: dict[str, object]) -> None:
    assert toolset_fingerprint(request(extra=extra)) == toolset_fingerprint(request())


def test_a_prefix_fingerprint_depends_on_all_its_messages_and_the_model() -> None:
    messages = [fingerprint(message) for message in DIFFERENT]
    prefixes = prefix_fingerprints("m", messages)
    assert prefix_fingerprints("m", messages[:5]) == prefixes[:5]
    assert prefix_fingerprints("other", messages)[0] != prefixes[0]
    edited = prefix_fingerprints("m", [*messages[:3], b"edited", *messages[4:]])
    assert edited[:3] == prefixes[:3]
    assert not set(edited[3:]) & set(prefixes[3:])


def test_an_answer_is_recognised_when_the_editor_sends_it_back() -> None:
    call = ToolCallPart("call_1", "read", {"path": "a"})
    streamed: list[Part] = [
        ThinkingPart("hm", metadata={"signature": "s"}),
        TextPart("Let me "),
        TextPart("look.\n"),
        call,
    ]
    returned: list[Part] = [TextPart("Let me look."), call]
    assert answer_fingerprint("m", streamed) == answer_fingerprint("m", returned)
    assert answer_fingerprint("m", streamed) != answer_fingerprint(
        "m", [TextPart("Let me look."), call, call]
    )
    assert answer_fingerprint("m", streamed) != answer_fingerprint("other", streamed)
