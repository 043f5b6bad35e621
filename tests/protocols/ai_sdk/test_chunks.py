"""Single chunks that no recording contains: unusual shapes and errors."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from tests.protocols.ai_sdk.streams import DONE, FINISH, failures, full

from tollbridge.protocols.ai_sdk.state import ERROR_LIMIT
from tollbridge.protocols.ai_sdk.stream import FullDecoder
from tollbridge.types.events import (
    Data,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    Usage,
)

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_steps_of_a_truncated_stream_are_billed() -> None:
    step = {"type": "finish-step", "usage": {"inputTokens": 10, "outputTokens": 3}}
    [failed] = full(step, step)
    assert isinstance(failed, Failed)
    assert failed.error.usage == Usage(20, 6, 26)


def test_a_total_replaces_the_sum_of_its_steps() -> None:
    step = {"type": "finish-step", "usage": {"inputTokens": 10, "outputTokens": 3}}
    total = {"type": "finish", "finishReason": "stop", "totalUsage": {"inputTokens": 25, "outputTokens": 7}}
    assert full(step, step, total) == [Finished("stop", usage=Usage(25, 7, 32), context=Usage(10, 3, 13))]
    assert full(step, step, FINISH) == [Finished("stop", usage=Usage(20, 6, 26), context=Usage(10, 3, 13))]


def test_merged_streams_are_billed_together_and_finish_once() -> None:
    first = {
        "type": "finish",
        "finishReason": "tool-calls",
        "totalUsage": {"inputTokens": 10, "outputTokens": 1},
    }
    second = {"type": "finish", "finishReason": "stop", "totalUsage": {"inputTokens": 20, "outputTokens": 2}}
    assert full(first, second) == [Finished("stop", usage=Usage(30, 3, 33), context=Usage(20, 2, 22))]


@pytest.mark.parametrize("count", [None, "10", True, -1, float("nan"), 1e300, [], {}])
def test_an_invalid_count_is_unknown(count: Any) -> None:
    chunk = {"type": "finish", "totalUsage": {"inputTokens": count, "outputTokens": 3}}
    decoder = FullDecoder()
    decoder.feed_parsed(chunk)
    [finished] = decoder.close()
    assert isinstance(finished, Finished)
    assert finished.usage == Usage(None, 3)


def test_reasoning_metadata_is_merged_from_start_deltas_and_end() -> None:
    events = full(
        {"type": "reasoning-start", "id": "r", "providerMetadata": {"openai": {"itemId": "rs"}}},
        {"type": "reasoning-delta", "id": "r", "text": "hm", "providerMetadata": {"google": {"sign": "g"}}},
        {"type": "reasoning-end", "id": "r", "providerMetadata": {"openai": {"encrypted": "e"}}},
        FINISH,
    )
    metadata = {"openai": {"itemId": "rs", "encrypted": "e"}, "google": {"sign": "g"}}
    assert events == [ReasoningDelta("hm", "r"), ReasoningEnded("r", metadata), DONE]


def test_the_metadata_of_a_block_that_never_ends_is_kept() -> None:
    start = {"type": "reasoning-start", "id": "r", "providerMetadata": {"anthropic": {"redactedData": "x"}}}
    assert full(start, FINISH)[0] == ReasoningEnded("r", {"anthropic": {"redactedData": "x"}})


def test_two_interleaved_blocks_keep_their_ids() -> None:
    deltas = [{"type": "reasoning-delta", "id": block, "text": block} for block in ("a", "a", "b", "a")]
    expected = [ReasoningDelta("aa", "a"), ReasoningDelta("b", "b"), ReasoningDelta("a", "a")]
    assert full(*deltas, FINISH)[:3] == expected


TEXT = b64encode(PNG).decode()
NUMBERS = {str(index): byte for index, byte in enumerate(PNG)}


@pytest.mark.parametrize(
    "carrier",
    [
        {"file": {"base64": TEXT, "mediaType": "image/png"}},
        {"file": {"base64Data": TEXT, "mediaType": "image/png"}},
        {"file": {"uint8Array": NUMBERS, "mediaType": "image/png"}},
        {"file": {"uint8ArrayData": NUMBERS, "mediaType": "image/png"}},
        {"file": {"uint8Array": list(PNG), "mediaType": "image/png"}},
        {"file": {"uint8Array": {"type": "Buffer", "data": list(PNG)}, "mediaType": "image/png"}},
        {"base64": TEXT, "mimeType": "image/png"},
        {"uint8ArrayData": NUMBERS, "mimeType": "image/png"},
        {"data": TEXT, "mediaType": "image/png"},
        {"data": TEXT.rstrip("="), "mediaType": "image/png"},
        {"data": {"type": "data", "data": TEXT}, "mediaType": "image/png"},
        {"data": f"data:image/png;base64,{TEXT}", "mediaType": "image/png"},
        {"url": f"data:image/png;base64,{TEXT}", "mediaType": "image/png"},
        {"url": f"data:image/png;base64,{TEXT}"},
        {"url": "data:image/png,%89PNG%0D%0A%1A%0A"},
    ],
    ids=str,
)
def test_a_file_is_read_in_every_serialized_form(carrier: dict[str, Any]) -> None:
    assert full({"type": "file", **carrier}, FINISH) == [File("image/png", PNG), DONE]


@pytest.mark.parametrize(
    "carrier",
    [
        {"url": "https://example.com/x.png"},
        {"data": "https://example.com/x.png"},
        {"data": {"type": "url", "url": "https://example.com/x.png"}},
    ],
)
def test_a_link_to_a_file_is_passed_on(carrier: dict[str, Any]) -> None:
    linked = File("image/png", url="https://example.com/x.png")
    assert full({"type": "file", "mediaType": "image/png", **carrier}, FINISH) == [linked, DONE]


@pytest.mark.parametrize(
    "carrier",
    [
        {},
        {"file": None},
        {"file": {"base64": "not base64!"}},
        {"file": {"base64": "é"}},
        {"file": {"uint8Array": {"0": 1, "2": 3}}},
        {"file": {"uint8Array": [256]}},
        {"file": {"uint8Array": ["a"]}},
        {"file": {"uint8Array": 7}},
        {"url": "data:image/png;base64"},
    ],
    ids=str,
)
def test_an_invalid_file_is_an_error_and_the_stream_continues(carrier: dict[str, Any]) -> None:
    events = full({"type": "file", **carrier}, {"type": "text-delta", "text": "on"}, FINISH)
    assert events[:2] == [TextDelta("on"), DONE]
    assert len(failures(events)) == 1


def test_a_source_of_an_unknown_kind_is_ignored() -> None:
    new = {"type": "source", "sourceType": "video", "id": "s"}
    page = {"type": "source-url", "sourceId": "s", "url": "u"}
    assert full(new, page, FINISH) == [Source("url", "s", "u"), DONE]


@pytest.mark.parametrize("kind", [[None], {}, 7])
def test_the_chunk_type_decides_if_the_source_type_is_not_text(kind: object) -> None:
    page = {"type": "source-url", "sourceType": kind, "sourceId": "s", "url": "u"}
    assert full(page, FINISH) == [Source("url", "s", "u"), DONE]


def test_data_keeps_its_name_its_id_and_any_value() -> None:
    assert full({"type": "data-a-b", "id": "1", "data": None}, FINISH)[0] == Data("a-b", None, "1")


PROMPT = "the secret plan of the user"
CALL_ERROR = {
    "name": "AI_APICallError",
    "url": "https://api.test",
    "requestBodyValues": {"messages": [{"content": PROMPT}]},
    "statusCode": 429,
    "responseBody": '{"error":{"message":"Slow down","type":"rate_limit_exceeded"}}',
}


@pytest.mark.parametrize(
    ("error", "message", "kind"),
    [
        ("plain", "plain", "server"),
        ({"message": "m"}, "m", "server"),
        ({"error": {"message": "m", "type": "overloaded_error"}}, "m", "overloaded"),
        ({"type": "error", "error": "m"}, "m", "server"),
        (CALL_ERROR, "Slow down", "rate_limited"),
        (
            {"name": "GatewayRateLimitError", "statusCode": 429, "cause": CALL_ERROR},
            "Slow down",
            "rate_limited",
        ),
        ({"name": "AI_RetryError", "cause": {"data": {"error": {"message": "m"}}}}, "m", "server"),
        ({"name": "X", "responseBody": PROMPT}, "X; the stream contained no message.", "server"),
        ({"name": "X", "statusCode": 401}, "X; the stream contained no message.", "authentication"),
        ({}, "The stream reported an error without a message.", "server"),
        ("", "The stream reported an error without a message.", "server"),
        (None, "The stream reported an error without a message.", "server"),
        ([1], "The stream reported an error without a message.", "server"),
        (json.dumps(CALL_ERROR), "Slow down", "rate_limited"),
    ],
    ids=str,
)
def test_an_error_of_any_shape_has_a_message_and_a_kind(error: Any, message: str, kind: str) -> None:
    [_, failed] = full({"type": "error", "error": error}, FINISH)
    assert isinstance(failed, Failed)
    assert (failed.error.message, failed.error.kind) == (message, kind)
    assert PROMPT not in str(failed.error)


def test_the_error_of_a_ui_stream_is_its_text() -> None:
    assert failures(full({"type": "error", "errorText": "m"}, FINISH)) == ["m"]


def test_an_error_is_emitted_after_the_end_and_nothing_is_lost() -> None:
    events = full({"type": "error", "error": "m"}, {"type": "text-delta", "text": "on"}, FINISH)
    assert events[:2] == [TextDelta("on"), DONE]
    assert failures(events) == ["m"]


def test_the_number_of_errors_of_a_stream_is_limited() -> None:
    events = full(*({"type": "error", "error": f"m{number}"} for number in range(100)))
    assert len(events) == ERROR_LIMIT


def test_an_error_body_without_a_type_is_an_error() -> None:
    assert failures(full({"error": {"message": "No such route", "code": 404}})) == ["No such route"]


def test_cache_writes_that_only_the_step_reports_are_part_of_the_total() -> None:
    """As in version 5, whose total has no provider metadata."""
    tokens = {"inputTokens": 50, "outputTokens": 5, "totalTokens": 55}
    step = {"type": "finish-step", "finishReason": "stop", "usage": tokens}
    metadata = {"anthropic": {"cacheCreationInputTokens": 40}}
    (finished,) = full({**step, "providerMetadata": metadata}, {**FINISH, "totalUsage": tokens})
    assert finished == Finished("stop", usage=Usage(50, 5, 55, cache_write_tokens=40))
