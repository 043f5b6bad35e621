"""The real SDK accepts converted conversations, and its model receives every value."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from tollbridge.protocols.ai_sdk.requests import convert_messages
from tollbridge.types.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

RunNode = Callable[..., str]
Target = Literal[5, 6, 7]

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100")
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def model(*parts: Part | str) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (TextPart(text),))


def call(call_id: str = "call_1", name: str = "read_file", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(call_id, name, arguments)


def result(
    *parts: TextPart | DataPart | str, call_id: str = "call_1", is_error: bool = False
) -> ToolResultPart:
    contents = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return ToolResultPart(call_id, contents, is_error)


def picture(data: bytes = PNG, mime: str = "image/png") -> DataPart:
    return DataPart(data, mime)


def as_json(value: Any) -> DataPart:
    return DataPart(json.dumps(value, ensure_ascii=False).encode(), "application/json")


DEEP: Any = {"a": [1, 2.5, None, True, {"b": ["", {"c": "é😀"}]}], "empty": {}, "none": None}

CONVERSATIONS: dict[str, list[Message]] = {
    "one question": [user("Hello?")],
    "question and answer": [user("Hello?"), model("Hello!"), user("How are you?")],
    "two texts in one message": [user("first", "second")],
    "users in a row": [user("one"), user("two")],
    "models in a row": [user("go"), model("one"), model("two"), user("on")],
    "a model begins": [model("I begin."), user("Do.")],
    "a model ends": [user("Begin:"), model("Once upon")],
    "a system prompt": [system("Be brief."), user("Hi")],
    "two system prompts": [system("Be brief."), system("Be kind."), user("Hi")],
    "a system prompt in the middle": [user("Hi"), model("Hello"), system("Be brief."), user("Go on")],
    "every kind of character": [user('a\n\r\n\u2028\u2029\x85\x0b\0😀👩‍👩‍👧שלום漢字"quote"\\back')],
    "half a character": [user("half \ud83d and \ude00 half")],
    "a very long text": [user("word " * 20_000)],
    "an image": [user("What is this?", picture())],
    "an image alone": [user(picture())],
    "two images": [user("Compare", picture(), "with", picture(JPEG, "image/jpeg"))],
    "an image with a lying label": [user(picture(PNG, "image/jpeg"))],
    "a named PDF": [user("Read", DataPart(PDF, "application/pdf", "paper.pdf"))],
    "a text file": [user(DataPart(b"line one\nline two", "text/plain", "notes.txt"))],
    "an unlabelled file": [user(DataPart(b"\x00\x01\x02", ""))],
    "an image in an answer": [user("Draw"), model("Here:", picture()), user("Nice")],
    "a PDF in an answer": [user("Write"), model(DataPart(PDF, "application/pdf")), user("Thanks")],
    "a call and its result": [user("Read a"), model(call(path="a")), user(result("content"))],
    "text before a call": [user("Read a"), model("I will.", call(path="a")), user(result("content"))],
    "text after a result": [user("Read a"), model(call(path="a")), user(result("content"), "And now?")],
    "text before a result": [user("Read a"), model(call(path="a")), user("Here it is:", result("content"))],
    "parallel calls": [
        user("Read both"),
        model(call("c1", path="a"), call("c2", path="b")),
        user(result("A", call_id="c1"), result("B", call_id="c2")),
    ],
    "results in another order": [
        user("Read both"),
        model(call("c1", path="a"), call("c2", path="b")),
        user(result("B", call_id="c2")),
        user(result("A", call_id="c1")),
    ],
    "a result that comes late": [
        user("Read a"),
        model(call(path="a")),
        user("Wait."),
        user(result("content")),
    ],
    "calls in turn": [
        user("Read a, then b"),
        model(call("c1", path="a")),
        user(result("A", call_id="c1")),
        model("Next.", call("c2", path="b")),
        user(result("B", call_id="c2")),
        model("Both read."),
        user("Thanks"),
    ],
    "the same id in two turns": [
        user("Read a"),
        model(call("call_0", path="a")),
        user(result("A", call_id="call_0")),
        model(call("call_0", path="b")),
        user(result("B", call_id="call_0")),
    ],
    "a call without arguments": [
        user("Go"),
        model(ToolCallPart("call_1", "now", None)),
        user(result("12:00")),
    ],
    "a call with empty arguments": [
        user("Go"),
        model(ToolCallPart("call_1", "now", {})),
        user(result("12:00")),
    ],
    "a call with arguments as text": [
        user("Run"),
        model(ToolCallPart("call_1", "script", "print(1)\nexit()")),
        user(result("1")),
    ],
    "a call with deep arguments": [user("Go"), model(call(**DEEP)), user(result("done"))],
    "an empty result": [user("Go"), model(call()), user(result())],
    "a result of empty text": [user("Go"), model(call()), user(result(""))],
    "a result of several texts": [user("Go"), model(call()), user(result("one", "two", "three"))],
    "a result of JSON": [user("Go"), model(call()), user(result(as_json(DEEP)))],
    "a result of JSON null": [user("Go"), model(call()), user(result(as_json(None)))],
    "a result of a JSON string": [user("Go"), model(call()), user(result(as_json("text")))],
    "a result of broken JSON": [
        user("Go"),
        model(call()),
        user(result(DataPart(b'{"a":', "application/json"))),
    ],
    "a result with an image": [user("Look"), model(call()), user(result("The screen:", picture()))],
    "a result that is an image": [user("Look"), model(call()), user(result(picture(JPEG, "image/jpeg")))],
    "a result with a PDF": [
        user("Get"),
        model(call()),
        user(result("Got:", DataPart(PDF, "application/pdf", "p.pdf"))),
    ],
    "a result with a named image": [
        user("Look"),
        model(call()),
        user(result(DataPart(PNG, "image/png", "x.png"))),
    ],
    "a result with JSON and an image": [user("Look"), model(call()), user(result(as_json(DEEP), picture()))],
    "a result with a text file": [
        user("Get"),
        model(call()),
        user(result(DataPart(b"x = 1", "text/x-python"))),
    ],
    "an error": [user("Read"), model(call()), user(result("No such file", is_error=True))],
    "an error of several texts": [
        user("Read"),
        model(call()),
        user(result("No", "such file", is_error=True)),
    ],
    "an error of JSON": [user("Read"), model(call()), user(result(as_json({"code": 2}), is_error=True))],
    "an error with an image": [
        user("Look"),
        model(call()),
        user(result("Failed:", picture(), is_error=True)),
    ],
    "an empty error": [user("Read"), model(call()), user(result(is_error=True))],
    "a call without a result": [user("Read"), model(call(path="a")), user("Never mind.")],
    "a call without a result at the end": [user("Read"), model(call(path="a"))],
    "one of two results is missing": [
        user("Read both"),
        model(call("c1", path="a"), call("c2", path="b")),
        user(result("A", call_id="c1")),
    ],
    "a result without a call": [user("Hi"), user(result("content", call_id="gone")), user("So?")],
    "two results of one call": [user("Read"), model(call()), user(result("first")), user(result("second"))],
    "thinking": [user("Think"), model(ThinkingPart("Let me see"), "Done."), user("Good")],
    "signed thinking": [
        user("Think"),
        model(ThinkingPart("Let me see", "r1", {"anthropic": {"signature": "sig-abc"}}), call()),
        user(result("ok")),
    ],
    "redacted thinking": [
        user("Think"),
        model(ThinkingPart("", None, {"anthropic": {"redactedData": "BLOB"}}), "Done."),
        user("Good"),
    ],
    "empty texts and messages": [user(""), user("", "Hi"), model(), model("")],
    "a result inside an answer": [user("Go"), model(call(), result("inside"), "Done."), user("Good")],
    "a call inside a question": [user("Look:", call()), user(result("found"))],
}
TARGETS: list[Target] = [5, 6, 7]


def values(messages: list[Message]) -> Iterator[Any]:
    """Return every value of a conversation that a model must receive."""
    for part in (part for message in messages for part in message.parts):
        match part:
            case TextPart(text):
                yield text
            case ThinkingPart(text, _, metadata):
                yield text
                yield from leaves(metadata)
            case ToolCallPart(call_id, name, given):
                yield from (call_id, name)
                yield from leaves(given)
            case ToolResultPart(call_id, inner):
                yield call_id
                yield from values([Message(Role.USER, inner)])
            case DataPart(data, mime, name):
                yield name
                if mime == "application/json":
                    try:
                        yield from leaves(json.loads(data))
                    except ValueError:
                        yield data.decode()
                else:
                    yield data


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def received(value: Any, values: list[Any]) -> bool:
    """Whether a value was received. A text can also be a part of a longer text."""
    if value in (None, "", True, False):
        return True
    texts = [text for text in values if isinstance(text, str)]
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return any(b64encode(value).decode() in other or text in other for other in texts)
    if isinstance(value, str):
        escaped = json.dumps(value, ensure_ascii=False)[1:-1]
        return any(value in other or escaped in other for other in texts)
    return value in values or any(str(value) in other for other in texts)


@pytest.fixture(scope="module")
def verdicts(run_node: RunNode) -> dict[tuple[str, Target], dict[str, Any]]:
    lines = []
    for name, messages in CONVERSATIONS.items():
        for target in TARGETS:
            converted = convert_messages(messages, target=target)
            line = {"name": name, "target": target, "messages": converted}
            lines.append(json.dumps({**line, "instructions": converted.instructions}))
    printed = [
        json.loads(line)
        for line in run_node("check_messages.mjs", stdin="\n".join(lines)).strip().split("\n")
    ]
    return {(one["name"], one["target"]): one for one in printed}


def test_there_are_enough_conversations() -> None:
    assert len(CONVERSATIONS) >= 40


each = pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name in CONVERSATIONS for target in TARGETS], ids=str
)


@each
def test_the_real_schema_accepts_the_conversation(
    verdicts: dict[tuple[str, Target], dict[str, Any]], name: str, target: Target
) -> None:
    assert verdicts[name, target]["refused"] == []


@each
def test_the_real_model_receives_every_value(
    verdicts: dict[tuple[str, Target], dict[str, Any]], name: str, target: Target
) -> None:
    verdict, messages = verdicts[name, target], CONVERSATIONS[name]
    assert verdict["error"] is None
    leaf_values = list(leaves(verdict["prompt"]))
    if name == "an image in an answer":
        messages = [user("Draw"), model("Here:", "[image/png: 16 bytes]"), user("Nice")]  # as requested
    lost = [value for value in values(messages) if not received(value, leaf_values)]
    assert lost == []


@each
def test_texts_keep_their_order(
    verdicts: dict[tuple[str, Target], dict[str, Any]], name: str, target: Target
) -> None:
    """Return roles and texts, without system prompts, which move to the front, and without results."""
    if name == "an image in an answer":
        return
    prompt = [
        message for message in verdicts[name, target]["prompt"] if message["role"] in ("user", "assistant")
    ]
    texts = [part["text"] for message in prompt for part in message["content"] if part["type"] == "text"]
    expected = [
        part.text
        for message in CONVERSATIONS[name]
        if message.role is not Role.SYSTEM
        for part in message.parts
        if isinstance(part, TextPart) and part.text
    ]
    assert "".join(texts) == "".join(expected).encode("utf-16", "surrogatepass").decode(
        "utf-16", "surrogatepass"
    )
