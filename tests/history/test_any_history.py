"""Any history becomes a request that a server which forgives nothing accepts, and nothing is lost."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.history.histories import HERE, Maker

from tollbridge.bridge import Bridge
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.json import read_json, write_json
from tollbridge.core.media import true_mime
from tollbridge.core.messages import ChatRequest, DataPart, Part, TextPart, ToolCallPart, ToolResultPart
from tollbridge.core.reasoning import CARRIED
from tollbridge.core.texts import mended
from tollbridge.gateway import Gateway
from tollbridge.gateway.strict import check_laws, check_schema
from tollbridge.gateway.validation import check_conversation, read_create, read_input, read_tools
from tollbridge.gateways.openresponses.encode import encode_request
from tollbridge.healing import RememberedLessons
from tollbridge.history import Sanitised, Target, sanitise

HISTORIES = 5_000
SENT = 300
TARGETS = (
    Target(origin=HERE),
    Target(),
    Target(images=False, files=False, origin=HERE),
    Target(rich_results=False, reasoning=False),
    Target(calls=False, origin=HERE),
)


def requests(seed: int, count: int) -> list[ChatRequest]:
    maker = Maker(seed)
    return [maker.request() for _ in range(count)]


@pytest.mark.parametrize("seed", range(len(TARGETS)))
def test_any_history_becomes_a_request_that_a_strict_server_accepts(seed: int) -> None:
    target = TARGETS[seed]
    for request in requests(seed, HISTORIES // len(TARGETS)):
        made = sanitise(request, target)
        body = as_read(encode_request(made.request))
        check_schema(body)
        check_laws(body["input"])
        read_create(body)
        read_tools(body.get("tools"))
        items = read_input(body["input"])
        check_conversation(items, [f"input[{n}]" for n in range(len(items))])
        check_nothing_lost(request, target, made, body)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_legal_already_is_not_changed_again(seed: int) -> None:
    for request in requests(100 + seed, 100):
        once = sanitise(request, Target(origin=HERE)).request
        twice = sanitise(once, Target(origin=HERE))
        assert twice.request == once
        assert twice.changes == ()


def as_read(body: dict[str, Any]) -> Any:
    """What a server reads that takes no half characters and no NaN."""
    return msgspec.json.decode(write_json(body).encode())


def check_nothing_lost(request: ChatRequest, target: Target, made: Sanitised, body: dict[str, Any]) -> None:
    said = "\n".join(texts(body["input"]))
    sent_files = "\n".join(urls(body["input"]))
    for part in parts(request):
        match part:
            case TextPart(text):
                assert mended(text).strip() in said
            case DataPart(data, mime) if mime != CARRIED:
                check_file(data, mime, said, sent_files, target)
            case ToolCallPart(_, name, given):
                assert made.names.out(name) in said
                check_input(given, said)


def check_file(data: bytes, label: str, said: str, sent_files: str, target: Target) -> None:
    """Its words, its bytes, or a note that says how large it was and why it is not there."""
    mime = true_mime(data, label)
    if mime.startswith(("text/", "application/json")) and is_text(data):
        assert data.decode().strip() in said
    elif not data or not (target.images if mime.startswith("image/") else target.files):
        assert f"{len(data):,} bytes, left out: " in said
    else:
        assert b64encode(data).decode() in sent_files


def check_input(given: Any, said: str) -> None:
    if isinstance(given, dict) and "text" in given:
        assert given["text"] in said
    elif isinstance(given, str) and given.startswith("raw"):
        # As it was, or inside JSON where the call itself is told as text.
        assert mended(given) in said or write_json(mended(given))[1:-1] in said


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def parts(request: ChatRequest) -> Iterable[Part]:
    for message in request.messages:
        for part in message.parts:
            yield part
            if isinstance(part, ToolResultPart):
                yield from part.parts


def texts(items: list[dict[str, Any]]) -> Iterable[str]:
    """Every text a model will read of the input, arguments with their JSON taken apart."""
    for item in items:
        content = item.get("content") or item.get("output") or ""
        yield from [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
        if item["type"] == "function_call":
            yield item["name"]
            yield from strings(read_json(item["arguments"]))


def strings(value: Any) -> Iterable[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)


def urls(items: list[dict[str, Any]]) -> Iterable[str]:
    for item in items:
        content = item.get("content") or item.get("output") or ""
        for part in content if isinstance(content, list) else ():
            yield part.get("image_url") or part.get("file_data") or ""


async def test_hundreds_of_histories_cross_the_bridge_to_a_strict_gateway_over_a_socket() -> None:
    parts: list[Part] = []
    async with Gateway(strict=True) as gateway, OpenResponsesClient(gateway.url) as client:
        bridge = Bridge(client, lessons=RememberedLessons())
        for request in requests(7, SENT):
            # A tool that must be called would be called; the rest is any request.
            asked = msgspec.structs.replace(request, tool_choice=None, max_output_tokens=16)
            await bridge.answer(asked, parts.extend)
        answered = [arrival for arrival in gateway.requests if arrival.status == 200]
    assert len(answered) == len(gateway.requests)
    assert parts
