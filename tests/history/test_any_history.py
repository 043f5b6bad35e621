"""Any history becomes a request that a server which forgives nothing accepts, and nothing is lost."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.history.invariants import check_order, check_reasoning, check_results, is_text, texts, urls
from tests.history.random_histories import HERE, MODEL, Maker

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory
from tollbridge.history.content import Receiver
from tollbridge.history.normalize import NormalizedRequest, normalize_request
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.testing.server import Gateway
from tollbridge.testing.strict import check_rules, check_schema
from tollbridge.testing.validation import check_conversation, read_create, read_input, read_tools
from tollbridge.turn import Bridge
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.reasoning import PACK_MIME, Origin
from tollbridge.types.text import replace_surrogates, write_json

HISTORIES = 5_000
SENT = 300
TARGETS = (
    Receiver(origin=HERE),
    Receiver(),
    Receiver(images=False, files=False, origin=HERE),
    Receiver(rich_results=False, reasoning=False),
    Receiver(calls=False, origin=HERE),
)


def requests(seed: int, count: int, maker: Maker | None = None) -> list[ChatRequest]:
    maker = maker or Maker(seed)
    return [maker.request() for _ in range(count)]


@pytest.mark.parametrize("seed", range(len(TARGETS)))
def test_any_history_becomes_a_request_that_a_strict_server_accepts(seed: int) -> None:
    target = TARGETS[seed]
    for request in requests(seed, HISTORIES // len(TARGETS)):
        made = normalize_request(request, target)
        body = as_read(encode_request(made.request))
        check_schema(body)
        check_rules(body["input"])
        read_create(body)
        read_tools(body.get("tools"))
        items = read_input(body["input"])
        check_conversation(items, [f"input[{n}]" for n in range(len(items))])
        check_nothing_lost(request, target, made, body)
        check_order(request, body["input"])
        check_reasoning(request, target, body["input"], HERE)
        if target.calls:
            check_results(request, body["input"], made.names)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_legal_already_is_not_changed_again(seed: int) -> None:
    for request in requests(100 + seed, 100):
        once = normalize_request(request, Receiver(origin=HERE)).request
        twice = normalize_request(once, Receiver(origin=HERE))
        assert twice.request == once
        assert twice.changes == ()


def as_read(body: dict[str, Any]) -> Any:
    """What a server reads that takes no half characters and no NaN."""
    return msgspec.json.decode(write_json(body).encode())


def check_nothing_lost(
    request: ChatRequest, target: Receiver, made: NormalizedRequest, body: dict[str, Any]
) -> None:
    said = "\n".join(texts(body["input"]))
    sent_files = "\n".join(urls(body["input"]))
    for part in parts(request):
        match part:
            case TextPart(text):
                assert replace_surrogates(text).strip() in said
            case DataPart(data, mime) if mime != PACK_MIME:
                check_file(data, mime, said, sent_files, target)
            case ToolCallPart(_, name, given):
                assert made.names.out(name) in said
                check_input(given, said)


def check_file(data: bytes, label: str, said: str, sent_files: str, target: Receiver) -> None:
    """Its words, its bytes, or a note that says how large it was and why it is not there."""
    mime = detect_mime(data, label)
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
        assert replace_surrogates(given) in said or write_json(replace_surrogates(given))[1:-1] in said


def parts(request: ChatRequest) -> Iterable[Part]:
    for message in request.messages:
        for part in message.parts:
            yield part
            if isinstance(part, ToolResultPart):
                yield from part.parts


async def test_hundreds_of_histories_cross_the_bridge_to_a_strict_gateway_over_a_socket() -> None:
    """Some of the reasoning in them is the gateway's own, which it takes back as it gave it or not at all."""
    parts: list[Part] = []
    async with Gateway(strict=True) as gateway, OpenResponsesClient(gateway.url) as client:
        bridge = Bridge(client, lessons=CompatMemory())
        question = ChatRequest(
            model=MODEL, messages=(Message(Role.USER, "Think about it."),), reasoning_effort="low"
        )
        answer: list[Part] = []
        await bridge.answer(question, answer.extend)
        maker = Maker(7, Origin.of(MODEL, gateway.url), answer)
        asked = len(gateway.requests)
        for request in requests(7, SENT, maker):
            # A tool that must be called would be called; the rest is any request.
            plain = msgspec.structs.replace(request, tool_choice=None, max_output_tokens=16)
            await bridge.answer(plain, parts.extend)
        arrived = list(gateway.requests)[asked:]
    assert len(arrived) == SENT
    assert [arrival.status for arrival in arrived] == [200] * SENT
    assert parts
    sealed = [item for each in arrived for item in each.body["input"] if item.get("encrypted_content")]
    assert len(sealed) > 20
