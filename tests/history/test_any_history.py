"""Any history becomes a request that a strict server accepts, and no content is lost."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.history.invariants import check_order, check_reasoning, check_results, is_text, texts, urls
from tests.history.random_histories import HERE, MODEL, Maker
from tests.turns import Runner

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.history.normalize import NormalizedRequest, normalize_request
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.openresponses.schema import CreateBody
from tollbridge.testing.server import Gateway
from tollbridge.testing.strict import check_rules, check_schema
from tollbridge.testing.validation import check_conversation, read_input, read_shape, read_tools
from tollbridge.types.media import detect_mime
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.text import replace_surrogates, write_json

# For each server, and in the sample that `make check` runs.
HISTORIES, SAMPLE = 1_000, 100
SENT = 300
SERVERS: tuple[tuple[Quirks, Origin | None], ...] = (
    (Quirks(), HERE),
    (Quirks(), None),
    (Quirks(images=False, files=False), HERE),
    (Quirks(rich_results=False, reasoning=False), None),
    (Quirks(calls=False), HERE),
)


def requests(seed: int, count: int, maker: Maker | None = None) -> list[ChatRequest]:
    maker = maker or Maker(seed)
    return [maker.request() for _ in range(count)]


@pytest.mark.parametrize("seed", range(len(SERVERS)))
def test_any_history_becomes_a_request_that_a_strict_server_accepts(
    seed: int, pytestconfig: pytest.Config
) -> None:
    quirks, origin = SERVERS[seed]
    for request in requests(seed, SAMPLE if pytestconfig.getoption("--sample") else HISTORIES):
        normalized = normalize_request(request, LearnedQuirks(quirks), origin)
        body = as_read(encode_request(normalized.request))
        check_schema(body)
        check_rules(body["input"])
        read_shape(body, CreateBody, "")
        read_tools(body.get("tools"))
        items = read_input(body["input"])
        check_conversation(items, [f"input[{n}]" for n in range(len(items))])
        check_nothing_lost(request, quirks, normalized, body)
        check_order(request, body["input"])
        check_reasoning(request, quirks, origin, body["input"], HERE)
        if quirks.calls:
            check_results(request, body["input"], normalized.names)


@pytest.mark.parametrize("seed", range(3))
def test_a_normalized_request_is_not_changed_again(seed: int) -> None:
    for request in requests(100 + seed, 100):
        once = normalize_request(request, origin=HERE).request
        twice = normalize_request(once, origin=HERE)
        assert twice.request == once
        assert twice.changes == ()


def as_read(body: dict[str, Any]) -> Any:
    """Encode and decode as a strict server does, which rejects lone surrogates and NaN."""
    return msgspec.json.decode(write_json(body).encode())


def check_nothing_lost(
    request: ChatRequest, quirks: Quirks, normalized: NormalizedRequest, body: dict[str, Any]
) -> None:
    text_sent = "\n".join(texts(body["input"]))
    sent_files = "\n".join(urls(body["input"]))
    for part in parts(request):
        match part:
            case TextPart(text):
                assert replace_surrogates(text).strip() in text_sent
            case DataPart(data, mime) if mime != PACK_MIME:
                check_file(data, mime, text_sent, sent_files, quirks)
            case ToolCallPart(_, name, given):
                assert normalized.names.out(name) in text_sent
                check_input(given, text_sent)


def check_file(data: bytes, label: str, text_sent: str, sent_files: str, quirks: Quirks) -> None:
    """Check that the text, the bytes, or a note with the size and the reason was sent."""
    mime = detect_mime(data, label)
    if mime.startswith(("text/", "application/json")) and is_text(data):
        assert data.decode().strip() in text_sent
    elif not data or not (quirks.images if mime.startswith("image/") else quirks.files):
        assert f"{len(data):,} bytes, removed: " in text_sent
    else:
        assert b64encode(data).decode() in sent_files


def check_input(sent_input: Any, text_sent: str) -> None:
    if isinstance(sent_input, dict) and "text" in sent_input:
        assert sent_input["text"] in text_sent
    elif isinstance(sent_input, str) and sent_input.startswith("raw"):
        # As it was, or within JSON if the call is sent as text.
        assert (
            replace_surrogates(sent_input) in text_sent
            or write_json(replace_surrogates(sent_input))[1:-1] in text_sent
        )


def parts(request: ChatRequest) -> Iterable[Part]:
    for message in request.messages:
        for part in message.parts:
            yield part
            if isinstance(part, ToolResultPart):
                yield from part.parts


async def test_a_strict_gateway_accepts_hundreds_of_random_histories() -> None:
    """Some of their reasoning was issued by the gateway, which accepts it only unchanged."""
    parts: list[Part] = []
    async with Gateway(strict=True) as gateway, OpenResponsesClient(gateway.url) as client:
        runner = Runner(client, compat=CompatMemory())
        question = ChatRequest(
            model=MODEL, messages=(Message(Role.USER, "Think about it."),), reasoning_effort="low"
        )
        answer: list[Part] = []
        await runner.run(question, answer.extend)
        maker = Maker(7, Origin.of(MODEL, gateway.url), answer)
        before = len(gateway.requests)
        for request in requests(7, SENT, maker):
            # Without tool_choice: the gateway would call the tool.
            plain = msgspec.structs.replace(request, tool_choice=None, max_output_tokens=16)
            await runner.run(plain, parts.extend)
        arrived = list(gateway.requests)[before:]
    assert len(arrived) == SENT
    assert [arrival.status for arrival in arrived] == [200] * SENT
    assert parts
    sealed = [item for arrival in arrived for item in arrival.body["input"] if item.get("encrypted_content")]
    assert len(sealed) > 20
