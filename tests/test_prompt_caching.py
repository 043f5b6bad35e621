"""Prompt caching: what is sent to request it, and that the bytes a cache has seen do not change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import (
    AiSdkClient,
    AnthropicMessagesClient,
    ChatCompletionsClient,
    OpenResponsesClient,
)
from tollbridge.compat.fields import omitted_fields
from tollbridge.compat.profiles import find_quirks
from tollbridge.compat.repairs import find_repair
from tollbridge.config.parameters import apply_settings
from tollbridge.config.schema import Settings
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from tollbridge.types.errors import InvalidRequest
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.urls import VERCEL_URL

OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
LOCAL_URL = "http://127.0.0.1:8080/v1"
CLAUDE = "anthropic/claude-sonnet-4.5"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"

Client = OpenResponsesClient | ChatCompletionsClient | AnthropicMessagesClient
# Each protocol with a gateway that caches.
CLIENTS: dict[str, tuple[type[Client], str]] = {
    "openresponses": (OpenResponsesClient, VERCEL_URL),
    "chat-completions": (ChatCompletionsClient, VERCEL_URL),
    "openai": (ChatCompletionsClient, OPENAI_URL),
    "anthropic-messages": (AnthropicMessagesClient, ANTHROPIC_MESSAGES.base_url),
}


def send(client: GatewayClient, request: ChatRequest, settings: Settings | None = None) -> bytes:
    """Return the body that a turn sends."""
    request = apply_settings(request, settings or Settings(), client.base_url)
    quirks = find_quirks(client.base_url, request.model) or Quirks()
    request = msgspec.structs.replace(request, quirks=quirks)
    origin = Origin.of(request.model, client.base_url)
    return client.encode_request(normalize_request(request, LearnedQuirks(quirks), origin).request)


# --- The property ---

# Not blank: providers reject blank messages, so these are not sent.
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(str.strip)
images = st.binary(max_size=20).map(lambda data: DataPart(PNG + data, "image/png"))
arguments = st.dictionaries(texts, st.one_of(texts, st.integers(), st.booleans(), st.none()), max_size=3)
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(texts, st.just({"type": "string"}), max_size=3)}
)
tools = st.lists(
    st.builds(Tool, st.from_regex(r"[a-z][a-z_]{2,12}", fullmatch=True), texts, schemas),
    min_size=1,
    max_size=4,
    unique_by=lambda tool: tool.name,
)


@st.composite
def conversations(draw: st.DrawFn, origin: Origin) -> tuple[list[Tool], list[Message]]:
    """Draw the tools and messages of an agent: turns of several tool rounds, with reasoning and images."""
    offered = draw(tools)
    messages = [Message(Role.SYSTEM, draw(texts))]
    calls = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message(Role.USER, (TextPart(draw(texts)), *draw(st.lists(images, max_size=1)))))
        for _ in range(draw(st.integers(0, 3))):
            thinking = [ThinkingPart(draw(texts), "r", add_origin(origin, {"signature": "s"}))]
            thinking = draw(st.sampled_from([thinking, []]))
            parts = [TextPart(text) for text in draw(st.lists(texts, max_size=1))]
            numbers = range(calls, calls + draw(st.integers(1, 3)))
            calls = numbers.stop
            question: list[Part] = [
                ToolCallPart(f"call_{number}", draw(st.sampled_from(offered)).name, draw(arguments))
                for number in numbers
            ]
            answers = [
                ToolResultPart(
                    f"call_{number}",
                    (TextPart(draw(texts)), *draw(st.lists(images, max_size=1))),
                    draw(st.booleans()),
                )
                for number in numbers
            ]
            messages += [Message(Role.ASSISTANT, (*thinking, *parts, *question)), Message(Role.USER, answers)]
        messages.append(Message(Role.ASSISTANT, draw(texts)))
    return offered, messages


def requests_of(offered: list[Tool], messages: list[Message], **fields: Any) -> Iterator[ChatRequest]:
    """Yield the requests of a conversation: one for each message of the user."""
    for index, message in enumerate(messages):
        if message.role is Role.USER:
            yield ChatRequest(tools=offered, messages=messages[: index + 1], **fields)


def cached_part(body: bytes) -> bytes:
    """Return a body up to the end of its last message. Breakpoints are not part of the prompt.

    Quotation marks are escaped in strings, so the searched bytes cannot be in the text of a message.
    """
    start, end, _ = body.replace(b',"cache_control":{"type":"ephemeral"}', b"").partition(b'],"stream":')
    assert end
    return start


@pytest.mark.parametrize("name", CLIENTS)
@given(data=st.data())
def test_the_prompt_of_a_request_is_a_prefix_of_the_next_one(name: str, data: st.DataObject) -> None:
    kind, url = CLIENTS[name]
    client = kind(url)
    offered, messages = data.draw(conversations(Origin.of(CLAUDE, client.base_url)))
    fields = {"model": CLAUDE, "conversation": "c", "reasoning_effort": "low", "max_output_tokens": 2_000}
    bodies = [send(client, request) for request in requests_of(offered, messages, **fields)]
    again = [send(client, request) for request in requests_of(offered, messages, **fields)]
    assert bodies == again
    for earlier, later in pairwise(bodies):
        start = cached_part(earlier)
        assert cached_part(later).startswith(start + b",")
        for field in ("tools", "instructions", "system"):
            values = [json.dumps(_without_marks(json.loads(body).get(field))) for body in (earlier, later)]
            assert values[0] == values[1]


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_marks(item) for name, item in value.items() if name != "cache_control"}
    return value


# --- What is sent ---

HELLO = ChatRequest(
    model=CLAUDE,
    messages=[Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hello")],
    conversation="4f1c0a52-chat-of-the-editor",
)


def body_of(client: GatewayClient, request: ChatRequest = HELLO, **settings: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(send(client, request, Settings(**settings)))
    return body


def test_vercel_is_asked_to_cache_and_gets_a_key_of_the_conversation() -> None:
    body = body_of(OpenResponsesClient(VERCEL_URL))
    assert body["caching"] == "auto"
    key = body["prompt_cache_key"]
    assert 16 <= len(key) <= 64
    assert "editor" not in key
    other = msgspec.structs.replace(HELLO, conversation="another")
    assert body_of(OpenResponsesClient(VERCEL_URL), other)["prompt_cache_key"] != key
    without = msgspec.structs.replace(HELLO, conversation=None)
    assert "prompt_cache_key" not in body_of(OpenResponsesClient(VERCEL_URL), without)


@pytest.mark.parametrize("client", [ChatCompletionsClient(VERCEL_URL), AiSdkClient()], ids=["chat", "ai-sdk"])
def test_the_other_protocols_of_vercel_have_an_option_for_it(client: GatewayClient) -> None:
    body = body_of(client)
    assert body["providerOptions"] == {"gateway": {"caching": "auto"}}
    assert "prompt_cache_key" not in body


def test_openai_gets_the_key_in_both_protocols() -> None:
    responses, completions = OpenResponsesClient(OPENAI_URL), ChatCompletionsClient(OPENAI_URL)
    key = body_of(responses)["prompt_cache_key"]
    assert body_of(completions)["prompt_cache_key"] == key
    assert "caching" not in body_of(responses)
    assert "providerOptions" not in body_of(completions)


MARK = {"type": "ephemeral"}


def test_anthropic_gets_breakpoints_after_the_system_prompt_and_the_last_two_user_messages() -> None:
    messages = [
        Message(Role.SYSTEM, "Be brief."),
        Message(Role.USER, "one"),
        Message(Role.ASSISTANT, "1"),
        Message(Role.USER, "two"),
        Message(Role.ASSISTANT, [ToolCallPart("c", "look", {})]),
        Message(Role.USER, [TextPart("and?"), ToolResultPart("c", (TextPart("seen"),))]),
    ]
    request = msgspec.structs.replace(HELLO, messages=tuple(messages), tools=(Tool("look"),))
    body = body_of(AnthropicMessagesClient(), request)
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    marked = [
        (index, block["type"])
        for index, message in enumerate(body["messages"])
        for block in message["content"]
        if "cache_control" in block
    ]
    # In this protocol, tool results come first: the text ends the last message.
    assert marked == [(2, "text"), (4, "text")]
    assert "caching" not in body


def test_claude_on_openrouter_gets_breakpoints_and_other_models_do_not() -> None:
    client = ChatCompletionsClient(OPENROUTER_URL)
    body = body_of(client)
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "Hello", "cache_control": MARK}]
    other = msgspec.structs.replace(HELLO, model="openai/gpt-5")
    assert b"cache" not in send(client, other)


@pytest.mark.parametrize("kind", [OpenResponsesClient, ChatCompletionsClient, AnthropicMessagesClient])
def test_a_server_that_is_not_known_to_cache_on_request_is_not_asked(kind: type[Client]) -> None:
    assert b"cach" not in send(kind(LOCAL_URL), HELLO)
    assert b"cach" not in send(kind("https://strict.example/v1"), HELLO)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_setting_turns_it_off(name: str) -> None:
    kind, url = CLIENTS[name]
    assert b"cach" in send(kind(url), HELLO)
    assert b"cach" not in send(kind(url), HELLO, Settings(prompt_caching=False))


def test_a_request_without_settings_is_not_changed() -> None:
    """Clients send what the caller sets, and nothing else."""
    request = msgspec.structs.replace(HELLO, quirks=find_quirks(VERCEL_URL, CLAUDE))
    assert b"cach" not in OpenResponsesClient(VERCEL_URL).encode_request(request)


def test_the_caching_options_of_the_caller_are_kept() -> None:
    extra = {"prompt_cache_key": "mine", "caching": "off"}
    body = body_of(OpenResponsesClient(VERCEL_URL), msgspec.structs.replace(HELLO, extra=extra))
    assert (body["prompt_cache_key"], body["caching"]) == ("mine", "off")
    options = {"providerOptions": {"gateway": {"caching": False, "order": ["bedrock"]}}}
    body = body_of(ChatCompletionsClient(VERCEL_URL), msgspec.structs.replace(HELLO, extra=options))
    assert body["providerOptions"] == options["providerOptions"]


@pytest.mark.parametrize("field", ["prompt_cache_key", "caching"])
def test_a_field_that_the_gateway_rejects_is_left_out_and_learned(field: str) -> None:
    quirks = find_quirks(VERCEL_URL, CLAUDE)
    assert quirks is not None
    request = msgspec.structs.replace(HELLO, cache_prompt=True, quirks=quirks)
    error = InvalidRequest(
        f"Unknown parameter: '{field}'.", status=400, param=field, code="unknown_parameter"
    )
    repair = find_repair(error, request, LearnedQuirks(quirks))
    assert repair is not None
    assert repair.learned.quirks.without == {field}
    repaired = msgspec.structs.replace(request, quirks=repair.learned.quirks)
    assert field not in json.loads(OpenResponsesClient(VERCEL_URL).encode_request(repaired))
    # The answer is the same without it, so users need not know.
    assert omitted_fields(repaired, repair.learned.quirks) == []


def test_breakpoints_that_the_gateway_rejects_are_left_out() -> None:
    quirks = find_quirks(ANTHROPIC_MESSAGES.base_url, CLAUDE)
    assert quirks is not None
    request = msgspec.structs.replace(HELLO, cache_prompt=True, quirks=quirks)
    message = "messages.0.content.0.text.cache_control: Extra inputs are not permitted"
    repair = find_repair(InvalidRequest(message, status=400), request, LearnedQuirks(quirks))
    assert repair is not None
    repaired = msgspec.structs.replace(request, quirks=repair.learned.quirks)
    assert b"cache_control" not in AnthropicMessagesClient().encode_request(repaired)
