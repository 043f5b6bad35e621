"""Whatever comes from outside is read in linear time: twice the input takes at most 2.5 times as long.

`PATTERNS` lists every regular expression of the source, `READERS` every function and decoder that reads data
of a server, a model, a file or an editor, with inputs that make a careless reader slow. A pattern or a reader
that is missing here fails a test.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.pumps import MAX_RATIO, MAX_SIZE, SOURCE, Pump, find_patterns, find_ratio, find_slow_pumps, pump
from tollbridge.catalog.models import filter_models
from tollbridge.cli.markdown import MarkdownWriter, render_markdown
from tollbridge.cli.output import to_json
from tollbridge.cli.prompt import clean_typed_text
from tollbridge.cli.replay import read_headers
from tollbridge.cli.screen import Wrapper
from tollbridge.cli.terminal import one_line
from tollbridge.compat import fields, rules
from tollbridge.config.schema import Settings
from tollbridge.config.toml_text import find_lines
from tollbridge.frontends.vscode.images import shorten_images
from tollbridge.frontends.vscode.markers import decode_marker
from tollbridge.frontends.vscode.models import encode_models
from tollbridge.history.arguments import repair_arguments, valid_input
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols import all_protocols
from tollbridge.protocols import errors as protocol_errors
from tollbridge.protocols.ai_sdk.state import read_arguments
from tollbridge.protocols.ai_sdk.stream import LineDecoder
from tollbridge.protocols.ai_sdk.wire import repair_text
from tollbridge.protocols.anthropic_messages.caller import CODEC as MESSAGES_CALLER
from tollbridge.protocols.anthropic_messages.wire import read_model_page
from tollbridge.protocols.billing import parse_cost, read_credits, read_generation
from tollbridge.protocols.chat_completions.caller import CODEC as COMPLETIONS_CALLER
from tollbridge.protocols.detect import DetectingDecoder
from tollbridge.protocols.errors import MESSAGE_LIMIT, ErrorResponseDecoder, error_from, read_error_response
from tollbridge.protocols.jsonrpc import Reader, encode_notification, read_message
from tollbridge.protocols.lenient import read_object
from tollbridge.protocols.model_list import read_endpoints, read_models
from tollbridge.protocols.openresponses.caller import CODEC as RESPONSES_CALLER
from tollbridge.protocols.openresponses.wire import Response
from tollbridge.protocols.sse import SseDecoder
from tollbridge.recorder.keys import KeyRedactor, _key_pattern, hide_keys
from tollbridge.recorder.recording import read_line
from tollbridge.recorder.redaction import ContentRedactor, hide_content, hide_secrets
from tollbridge.tokens.media import PAGE_TOKENS, PRICES, SECOND_TOKENS, count_pages, price_of
from tollbridge.tokens.prompt_cache import make_chain
from tollbridge.tokens.tokenizers import Tokenizer, family_of, tokenizer
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import parse_amount
from tollbridge.types.media import detect_mime, display_mime, image_size, sniff
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    decode_metadata,
    read_reasoning_pack,
)
from tollbridge.types.models import ID_LIMIT, identify
from tollbridge.types.text import join_escaped_surrogates, read_json, read_json_to_depth, replace_surrogates
from tollbridge.types.urls import hide_userinfo

# --- Regular expressions ---


class Use(NamedTuple):
    """How a pattern is used.

    Attributes:
        method: The method that is called.
        limit: The length of the longest text it is given, if that is limited.
        patterns: The patterns, if they are not in a variable of the module.
    """

    method: str = "search"
    limit: int = MAX_SIZE
    patterns: tuple[re.Pattern[Any], ...] = ()


MATCH, FULLMATCH, FINDALL, SPLIT, SUB = map(Use, ("match", "fullmatch", "findall", "split", "sub"))
IN_MESSAGE = Use(limit=MESSAGE_LIMIT + 1)
IN_MODEL_ID = Use(limit=ID_LIMIT)
# Settings are written by the user, and the scripted model reads what the tests send.
SETTING = 2_000
IN_PROMPT = 8_000
REPAIR_PATTERNS, TOO_LONG_PATTERNS = (
    tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in patterns)
    for patterns in ((rule.pattern for rule in rules.REPAIR_RULES), protocol_errors.TOO_LONG_PATTERNS)
)

PATTERNS: dict[str, Use] = {
    "cli/config.py:_USERINFO": Use("sub", SETTING),
    "cli/markdown.py:_FENCE": MATCH,
    "cli/markdown.py:_HEADING": MATCH,
    "cli/markdown.py:_ITEM": MATCH,
    "cli/markdown.py:_QUOTE": MATCH,
    "cli/markdown.py:_STYLES": SUB,
    "cli/options.py:read_attachment": FINDALL,
    "cli/prompt.py:_KEY_SEQUENCES": SUB,
    "cli/replay.py:_STATUS_LINE": MATCH,
    "cli/replay.py:read_headers": SPLIT,
    "cli/screen.py:_PIECES": FINDALL,
    "compat/profiles.py:profile_file": Use("sub", SETTING),
    "compat/fields.py:_CONDITION": IN_MESSAGE,
    "compat/fields.py:_REJECTION": IN_MESSAGE,
    "compat/fields.py:_mentions": IN_MESSAGE._replace(
        patterns=tuple(re.compile(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)") for name in fields.FIELD_ALIASES)
    ),
    "compat/fields.py:_unsupported_pattern": IN_MESSAGE._replace(
        patterns=(fields._unsupported_pattern("store"),)
    ),
    "compat/fields.py:names_a_parameter": IN_MESSAGE,
    "compat/fields.py:param_field": SPLIT,
    "compat/fields.py:refused_fields": SPLIT,
    "compat/repairs.py:_QUOTATION": Use("sub", MESSAGE_LIMIT + 1),
    "compat/repairs.py:_TOKEN": Use("sub", MESSAGE_LIMIT + 1),
    "compat/rules.py:RepairRule.matches": IN_MESSAGE._replace(patterns=REPAIR_PATTERNS),
    "config/headers.py:_HEADER_NAME": Use("fullmatch", SETTING),
    "config/headers.py:_RANDOM_VALUE": Use("fullmatch", SETTING),
    "config/headers.py:_SECRET_NAME": Use(limit=SETTING),
    "config/headers.py:_SECRET_VALUE": Use("match", SETTING),
    "config/headers.py:_HEADER_SOURCE": Use("fullmatch", SETTING),
    "config/headers.py:_UUID": Use("fullmatch", SETTING),
    "config/headers.py:_HEADER_VALUE": Use("fullmatch", SETTING),
    "config/keys.py:variables_for": Use("sub", SETTING),
    "config/validation.py:_ERROR_PATH": Use(limit=SETTING),
    "config/validation.py:_INVALID_CHOICE": Use("match", SETTING),
    "config/validation.py:_KEY_SOURCE": Use("fullmatch", SETTING),
    "config/validation.py:_UNKNOWN_FIELD": Use("match", SETTING),
    "config/names.py:quote_name": FULLMATCH,
    "config/errors.py:_TYPE_MISMATCH": Use("sub", SETTING),
    "config/toml_text.py:_LINE_OR_MARK": FINDALL,
    "frontends/vscode/images.py:_EMBEDDED": SUB,
    "frontends/vscode/images.py:_LINK": SUB,
    "history/contents.py:_MIME": MATCH,
    "history/names.py:VALID_NAME": MATCH,
    "history/names.py:_INVALID_CHARACTERS": SUB,
    "history/arguments.py:_SPACE": MATCH,
    "history/arguments.py:_complete": SUB,
    "history/arguments.py:_remove_trailing_commas": SUB,
    "history/arguments.py:_STRING": FINDALL,
    "local/process.py:_SECRET_NAME": Use(),
    "local/process.py:LocalModel._last_error": Use("findall", 4096),
    "protocols/ai_sdk/__init__.py:CODE_LINE": MATCH,
    "protocols/ai_sdk/chunks.py:_TOOL_FAILED": MATCH,
    "protocols/ai_sdk/requests.py:_JWT": Use("fullmatch", SETTING),
    "protocols/ai_sdk/state.py:_SURROGATE": Use(),
    "policy/thinking.py:_BUDGET_MODELS": IN_MODEL_ID,
    "protocols/anthropic_messages/requests.py:_INVALID_IN_ID": SUB,
    "policy/limits.py:_OLD_LIMITS": IN_MODEL_ID,
    "policy/caching.py:_CACHE_CONTROL": IN_MODEL_ID,
    "policy/limits.py:_NEW_LIMIT": IN_MODEL_ID,
    "protocols/detect.py:_LINE": MATCH,
    "protocols/detect.py:_BLANK": MATCH,
    "protocols/errors.py:_BEFORE_EMBEDDED": MATCH,
    "protocols/errors.py:_BREAKDOWN": IN_MESSAGE,
    "protocols/errors.py:_BREAKDOWN_ENTRY": IN_MESSAGE._replace(method="findall"),
    "protocols/errors.py:_INCLUDES_OUTPUT": IN_MESSAGE,
    "protocols/errors.py:_NUMBER": FULLMATCH,
    "protocols/errors.py:_OUTPUT": IN_MESSAGE,
    "protocols/errors.py:_STATUS": FULLMATCH,
    "protocols/errors.py:_find_too_long": IN_MESSAGE._replace(patterns=TOO_LONG_PATTERNS),
    "protocols/errors.py:_UPSTREAM_STATUS": IN_MESSAGE,
    "protocols/errors.py:_parse_body": FINDALL,
    "protocols/jsonrpc.py:_find_id": Use(limit=512),
    "protocols/openresponses/requests.py:_COMPARING_MODELS": Use(),
    "protocols/sse.py:_BLANK_LINES": SUB,
    "protocols/sse.py:_COMMENTS": SUB,
    "protocols/sse.py:_NAMED": FINDALL,
    "protocols/sse.py:_PLAIN": FINDALL,
    "recorder/files.py:_DRAFT_NAME": FULLMATCH,
    "recorder/files.py:_RECORDING_NAME": FULLMATCH,
    "recorder/redaction.py:SECRET_NAMES": Use(),
    "recorder/redaction.py:_LINES": FINDALL,
    "recorder/redaction.py:_LINE_PREFIX": MATCH,
    "recorder/redaction.py:_LINE_WITHOUT_CONTENT": FULLMATCH,
    "recorder/redaction.py:_STRING": SUB,
    "recorder/redaction.py:_WORDS": SUB,
    "recorder/keys.py:_key_pattern": Use(
        "sub", patterns=(_key_pattern(frozenset({"sk-a/very\\long=key"})), _key_pattern(frozenset({"abc"})))
    ),
    "testing/task.py:_BUG": Use(),
    "testing/conversation.py:_FAULT": Use(),
    "testing/task.py:_COMMAND": Use(),
    "testing/task.py:_LINES": Use(),
    "testing/model.py:_LONG": Use(),
    "testing/task.py:_NEW": Use(),
    "testing/task.py:_OLD": Use(),
    "testing/conversation.py:_PATH": Use(limit=IN_PROMPT),
    "testing/conversation.py:PATH_NAMES": Use(),
    "testing/model.py:_PATTERNS": Use(),
    "testing/conversation.py:_PLACE": Use(limit=IN_PROMPT),
    "testing/conversation.py:_QUOTED": Use("findall", IN_PROMPT),
    "testing/task.py:_TASK_FILE": Use(limit=500),
    "testing/conversation.py:_USER_REQUEST": Use("findall", IN_PROMPT),
    "testing/model.py:_WORD": FINDALL,
    "testing/task.py:_WORKSPACE": Use(),
    "testing/model.py:_is_requested": FINDALL,
    "testing/model.py:choose_tools": Use(patterns=(re.compile(r"(?<![\w-])a_tool(?![\w-])"),)),
    "testing/requests.py:_TOKEN": FINDALL,
    "testing/strict.py:_VALID_CALL_ID": MATCH,
    "testing/validation.py:_CONVERSION_ERROR": Use("fullmatch", IN_PROMPT),
    "testing/validation.py:_MISSING_FIELD": Use(),
    "tokens/prompt_cache.py:_CHUNK": FINDALL,
    "policy/caching.py:_COMPILED": IN_MODEL_ID,
    "tokens/prompt_cache.py:_LIFETIME": FULLMATCH,
    "tokens/features.py:_RUNS": FINDALL,
    "tokens/media.py:_PDF_ENTRIES": FINDALL,
    "tokens/media.py:_find_entry": IN_MODEL_ID._replace(
        patterns=tuple(re.compile(pattern) for pattern, _ in (*PRICES, *PAGE_TOKENS, *SECOND_TOKENS))
    ),
    "tokens/tokenizers.py:_COMPILED": IN_MODEL_ID,
    "types/errors.py:_redact": Use("sub", patterns=(re.compile(r"(?<![A-Za-z0-9])abc(?![A-Za-z0-9])"),)),
    "types/models.py:_DATE": IN_MODEL_ID,
    "types/models.py:_STAGE": IN_MODEL_ID,
    "types/models.py:_VERSION": IN_MODEL_ID,
    "types/models.py:identify": IN_MODEL_ID._replace(method="sub"),
    "types/text.py:join_escaped_surrogates": SUB,
    "types/text.py:limit_text_depth": FINDALL,
    "types/urls.py:hide_userinfo": SUB,
    "types/urls.py:has_userinfo": MATCH,
}
find_patterns_once = cache(find_patterns)


def test_every_regular_expression_of_the_source_is_listed() -> None:
    assert sorted(find_patterns_once()) == sorted(PATTERNS)


def slow_input(pattern: re.Pattern[Any], use: Use) -> str | None:
    """Return a derived input that the pattern does not read in linear time, with the ratio."""
    read = getattr(pattern, use.method)
    call = (lambda data: read(data[:0], data)) if use.method == "sub" else read
    for label, make in find_slow_pumps(call, pattern, use.limit):
        size, ratio = find_ratio(call, make, use.limit)
        if ratio > MAX_RATIO:
            return (
                f"{pattern.pattern!r}.{use.method}({label}): {ratio:.1f} times as long for twice n = {size}"
            )
    return None


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize("place", sorted(PATTERNS))
def test_every_regular_expression_takes_linear_time(place: str) -> None:
    use = PATTERNS[place]
    patterns = use.patterns or tuple(find_patterns_once().get(place, ()))
    assert patterns, "pass the patterns in the table: they are not constants of the module"
    assert [slow for pattern in patterns if (slow := slow_input(pattern, use))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", "match"),  # cubic
        (r"<title[^>]*>\s*([^<]{1,200}?)\s*</title>", "search"),
        (r"/Count\s+(\d{1,6})[^<>]*?/Type\s*/Pages\b", "findall"),
        (r"\w+stral", "search"),
    ],
)
def test_patterns_that_are_known_to_be_slow_are_found(pattern: str, method: str) -> None:
    assert slow_input(re.compile(pattern, re.DOTALL), Use(method)) is not None


# --- Readers ---


def numbered(template: str, prefix: str = "", suffix: str = "", separator: str = "") -> Pump:
    """Return a pump of entries that differ: `#` is replaced by the number of the entry."""

    def make(size: int) -> bytes:
        count = max(1, size // (len(template) + len(separator)))
        entries = separator.join(template.replace("#", str(number)) for number in range(count))
        return (prefix + entries + suffix).encode()

    return make


def frames(chunk: dict[str, Any]) -> Pump:
    return numbered(f"data: {json.dumps(chunk)}\n\n")


def lines(chunk: dict[str, Any]) -> Pump:
    return numbered(f"{json.dumps(chunk)}\n")


def listed(entry: dict[str, Any], prefix: str = '{"data": [', suffix: str = "]}") -> Pump:
    return numbered(json.dumps(entry), prefix, suffix, ", ")


def feed(new: Callable[[], Any], step: int | None = None) -> Callable[[bytes], None]:
    """Return a reader that passes the data to a decoder, in pieces of `step` bytes."""

    def read(data: bytes) -> None:
        decoder = new()
        for start in range(0, len(data), step or len(data)):
            decoder.feed(data[start : start + (step or len(data))])
        if hasattr(decoder, "close"):
            decoder.close()

    return read


BYTES: list[Pump] = [
    *(
        pump(b"", unit)
        for unit in (b" ", b"\n", b"\r", b"[", b"{", b'{"a":', b'"', b"\\", b":\n", b"x", b"\xff")
    ),
    *(
        pump(b"", unit)
        for unit in (b"data:\n", b"data: x\n", b"event: x\n", b"data: {}\n\n", b"<title", b"0:1\n")
    ),
    *(pump(start, unit) for start in (b'{"a": "', b'data: {"a": "') for unit in (b"x", b"\\ud83d", b"\\\\")),
    *(
        pump(b'{"error": {"message": "', unit, b'"}}')
        for unit in (b" ", b"0", b"(", b"{'a':", b"maximum context ")
    ),
]
TEXTS: list[Pump] = [
    *(
        pump("", unit)
        for unit in (" ", "\n", "\t", ",", ", ", "a", "é", "0", '"', "\\", "{", "[", "{}", "]", "}")
    ),
    *(
        pump("", unit)
        for unit in ('{"a": 1}', '"a",', "```", "```\n", "\x9b", "\ud83d", "-", "/", ":", "<", "/Count 1")
    ),
    *(
        pump(start, unit)
        for start in ("```json\n", "{", '{"a": "', '{"a": 1')
        for unit in ("\n", " ", ", ", "\\", "x")
    ),
    *(pump("```json\n", unit, "\n```") for unit in ("\n", "```\n", " \n")),
]

ITEM = {"type": "response.output_item.added", "item": {"type": "message", "id": "i#"}}
RESPONSES: list[Pump] = [
    frames({"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "x#"}),
    frames({"type": "response.output_text.delta", "item_id": "m#", "delta": "x"}),
    frames({"type": "response.function_call_arguments.delta", "item_id": "m", "delta": "x"}),
    frames(ITEM | {"output_index": "#"}),
    frames(
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "call_id": "c#", "name": "t"},
        }
    ),
    frames(
        {
            "type": "response.output_item.done",
            "item": {"type": "function_call", "call_id": "c#", "name": "t", "arguments": "{}"},
        }
    ),
    frames(
        {
            "type": "response.output_item.done",
            "item": {"type": "message", "content": [{"type": "output_text", "text": "#"}]},
        }
    ),
    frames({"type": "response.output_item.done", "item": {"type": "reasoning", "summary": [{"text": "#"}]}}),
    frames({"type": "response.output_text.done", "text": "#"}),
    frames(
        {"type": "response.output_text.annotation.added", "annotation": {"type": "url_citation", "url": "u#"}}
    ),
    frames({"type": "unknown#"}),
    numbered(
        json.dumps({"type": "message", "content": [{"type": "output_text", "text": "#"}]}),
        'data: {"type": "response.completed", "response": {"status": "completed", "output": [',
        "]}}\n\n",
        ",",
    ),
    numbered(
        json.dumps({"type": "function_call", "call_id": "c#", "name": "t", "arguments": "{}"}),
        '{"status": "completed", "output": [',
        "]}",
        ",",
    ),
]


def completion(**delta: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta}]}


def call(number: Any, **function: Any) -> dict[str, Any]:
    return {"index": number, "id": f"c{number}", "type": "function", "function": function}


COMPLETIONS: list[Pump] = [
    frames(completion(content="x#")),
    frames(completion(reasoning_content="x#")),
    frames(completion(reasoning_details=[{"type": "reasoning.text", "text": "x#", "index": 0}])),
    frames(completion(tool_calls=[call(0, name="t", arguments="x")])),
    frames(completion(tool_calls=[call("#", name="t", arguments="{}")])),
    frames(completion(annotations=[{"type": "url_citation", "url_citation": {"url": "u#"}}])),
    frames({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    frames({"error": {"message": "#"}}),
]
MESSAGES: list[Pump] = [
    frames({"type": "content_block_start", "index": "#", "content_block": {"type": "text", "text": ""}}),
    frames({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x#"}}),
    frames({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}}),
    frames(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": "x"},
        }
    ),
    frames({"type": "content_block_stop", "index": "#"}),
    frames({"type": "ping"}),
    frames({"type": "unknown#"}),
]


def body(field: str, entry: dict[str, Any]) -> Pump:
    """Return a pump of request bodies with many entries in one field."""
    messages = "" if field == "messages" else '"messages": [{"role": "user", "content": "x"}], '
    return listed(entry, f'{{"model": "m", {messages}"{field}": [')


RESULT = {"type": "tool_result", "tool_use_id": "c#", "content": "x"}
CALLER_MESSAGES: list[Pump] = [
    body("messages", {"role": "user", "content": "x#"}),
    body("messages", {"role": "tool", "tool_call_id": "c#", "content": "x"}),
    body("messages", {"role": "user", "content": [RESULT]}),
    body("tools", {"type": "function", "function": {"name": "t#"}}),
]
CALLER_ITEMS: list[Pump] = [
    body("input", {"role": "user", "content": "x#"}),
    body("input", {"role": "assistant", "content": "x#"}),
    body("input", {"type": "function_call_output", "call_id": "c#", "output": "x"}),
    body("input", {"type": "unknown#"}),
    body("tools", {"type": "function", "name": "t#"}),
]
CHUNKS: list[dict[str, Any]] = [
    {"type": "text-delta", "id": "t", "delta": "x#", "text": "x", "textDelta": "x"},
    {"type": "text-start", "id": "t#"},
    {"type": "reasoning-delta", "id": "r#", "delta": "x", "text": "x"},
    {"type": "tool-input-start", "toolCallId": "c#", "id": "c#", "toolName": "t"},
    {"type": "tool-input-delta", "toolCallId": "c", "id": "c", "inputTextDelta": "x", "delta": "x"},
    {"type": "tool-input-available", "toolCallId": "c#", "toolName": "t", "input": {}},
    {"type": "tool-call", "toolCallId": "c#", "toolName": "t", "input": {}, "args": {}},
    {"type": "tool-result", "toolCallId": "c#", "toolName": "t", "output": "x", "result": "x"},
    {"type": "source-url", "sourceId": "s#", "url": "u"},
    {"type": "data-x", "data": {"a": "#"}},
    {
        "type": "file",
        "mediaType": "image/png",
        "url": "data:image/png;base64,iVBORw0KGgo=",
        "data": "iVBORw0KGgo=",
    },
    {"type": "unknown#"},
]
AI_SDK: dict[str, list[Pump]] = {
    "ai-sdk-ui": list(map(frames, CHUNKS)),
    "ai-sdk-model": list(map(frames, CHUNKS)),
    "ai-sdk-full": list(map(lines, CHUNKS)),
    "ai-sdk-data": [
        *(
            numbered(f"{code}:{json.dumps(value)}\n")
            for code, value in (("0", "x#"), ("g", "x"), ("2", [{"a": "#"}]))
        ),
        *(numbered(f'{code}:{{"toolCallId": "c#", "toolName": "t", "args": {{}}}}\n') for code in "9bc"),
    ],
}
MODELS: list[Pump] = [
    listed({"id": "m#", "context_window": 1000, "pricing": {"input": "0.1"}}),
    listed({"id": "m#", "context_window": "9" * 401, "pricing": {"input": "1e999999"}}),
    listed({"id": "m#", "name": "\ud83d"}),
    listed({"id": "-1" * 300}),
    pump(b'{"data": [{"id": "', b"-1", b'"}]}'),
    pump(b'{"data": [{"id": "m", "context_window": ', b"9", b"}]}"),
    pump(b'{"data": [{"id": "m", "pricing": {"input": "', b"9", b'"}}]}'),
    numbered('"t#"', '{"data": [{"id": "m", "tags": [', "]}]}", ","),
    numbered('{"provider_name": "p#", "status": 0}', '{"data": {"endpoints": [', "]}}", ","),
]
ERRORS: list[Pump] = [
    *(
        numbered(entry, prefix, suffix, ",")
        for prefix, suffix in (('{"detail": [', "]}"), ("[", "]"))
        for entry in ('{"loc": ["body", #], "msg": "No."}', '"x"', "{}")
    ),
    pump(b'{"detail": [{"msg": "No.", "loc": [', b'"a", ', b"1]}]}"),
    pump(b'{"error": {"message": "', b"1,", b' tokens but the limit is 1"}}'),
    pump(b'{"error": {"message": "m", "headers": {"retry-after": "', b"9", b'"}}}'),
    pump(b'{"error": {"message": "m", "headers": {"retry-after": "', b"Mon, ", b'"}}}'),
    pump(b"<html><title", b" ", b"</title>"),
    pump(b"<title>", b"x ", b"</title>"),
    numbered('data: {"error": "#"}\n\n'),
]


def ids(size: int) -> list[str]:
    return [f"id {number}" for number in range(max(1, size // 20))]


def calls(size: int) -> ChatRequest:
    parts = [ToolCallPart(id_, "a tool", "{}") for id_ in ids(size)]
    results = [ToolResultPart(id_, (TextPart("x"),)) for id_ in ids(size)]
    return ChatRequest(model="m", messages=(Message(Role.ASSISTANT, parts), Message(Role.USER, results)))


def orphans(size: int) -> ChatRequest:
    return ChatRequest(
        model="m",
        messages=tuple(Message(Role.USER, [ToolResultPart(id_, (TextPart("x"),))]) for id_ in ids(size)),
    )


def texts(size: int) -> ChatRequest:
    roles = (Role.ASSISTANT, Role.USER)
    return ChatRequest(model="m", messages=tuple(Message(roles[0], [TextPart(id_)]) for id_ in ids(size)))


def same_ids(size: int) -> ChatRequest:
    numbers = range(max(1, size // 20))
    parts = [ToolCallPart("call_0", f"tool_{number}", "{}") for number in numbers]
    results = [ToolResultPart("call_0", (TextPart(f"{number}"),)) for number in numbers]
    return ChatRequest(model="m", messages=(Message(Role.ASSISTANT, parts), Message(Role.USER, results)))


def thoughts(size: int) -> ChatRequest:
    parts = [ThinkingPart(id_) for id_ in ids(size)]
    return ChatRequest(model="m", messages=(Message(Role.ASSISTANT, parts), Message(Role.USER, "Hi")))


def requests(size: int) -> bytes:
    return encode_notification("m", {"a": "x"}) * max(1, size // 60)


def make_system_chain(text: str) -> None:
    make_chain(ChatRequest(model="m", messages=[Message(Role.SYSTEM, text)]))


def count_tokens(text: str) -> int:
    loaded = tokenizer()
    assert isinstance(loaded, Tokenizer)
    return loaded.count(text)


def read_every_line(data: bytes) -> None:
    for line in data.split(b"\n"):
        try:
            read_line(line)
        except ValueError:
            continue


def render_in_pieces(text: str) -> None:
    writer = MarkdownWriter(io.StringIO())
    for start in range(0, len(text), 64):
        writer.write(text[start : start + 64])
    writer.close_line()


def ignoring(read: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a reader that ignores the exceptions for invalid data."""

    def call(data: Any) -> None:
        with suppress(ValueError, BridgeError):
            read(data)

    return call


class Case(NamedTuple):
    """A reader and its inputs. A decoder is also given the data in pieces."""

    read: Callable[[Any], object]
    pumps: list[Pump]


def decoder(new: Callable[[], Any], pumps: list[Pump]) -> tuple[Case, Case]:
    return Case(feed(new), pumps), Case(feed(new, 64), pumps[:20])


DECODERS = {name: new for protocol in all_protocols() for name, new in protocol.decoders.items()}

PDF = [
    pump(b"%PDF-", unit)
    for unit in (b"/Count 1", b"/Type ", b"/Type /Pages ", b"/Type /Page", b" ", b"<", b"/Count")
]
IMAGES = [
    pump(start, unit)
    for start in (b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"BM")
    for unit in (b"\xff", b"\xff\x01", b"\0")
]
RECORDING = numbered('{"line":"received","at":#,"data":"eHh4"}\n')

READERS: dict[str, tuple[Case, ...]] = {
    "catalog/models.py:filter_models": (
        Case(
            lambda body: encode_models(filter_models(read_models(body), Settings(favourites=("m1*",)))),
            MODELS[:4],
        ),
    ),
    "cli/markdown.py:MarkdownWriter": (
        Case(lambda text: render_markdown(text, io.StringIO()), TEXTS),
        Case(render_in_pieces, TEXTS[:20]),
    ),
    "cli/prompt.py:clean_typed_text": (
        Case(clean_typed_text, [*TEXTS, pump("", "\x7f"), pump("", "\x1b[")]),
    ),
    "cli/replay.py:read_headers": (Case(read_headers, TEXTS),),
    "cli/screen.py:Wrapper": (Case(lambda text: Wrapper(lambda: 80).feed(text), TEXTS),),
    "cli/output.py:to_json": (Case(to_json, TEXTS),),
    "cli/terminal.py:one_line": (Case(one_line, TEXTS),),
    "config/toml_text.py:find_lines": (Case(find_lines, TEXTS),),
    "frontends/vscode/images.py:shorten_images": (
        Case(shorten_images, [*TEXTS, pump("", "![Image](file://"), pump("![Image](file://", "/a")]),
        Case(shorten_images, [pump("", "![Image](data:image/png;base64,"), pump("![Image](data:", "A")]),
    ),
    "frontends/vscode/markers.py:decode_marker": (Case(decode_marker, BYTES),),
    "history/normalize.py:normalize_request": (
        Case(normalize_request, [calls, orphans, texts, same_ids, thoughts]),
    ),
    "history/arguments.py:repair_arguments": (
        Case(repair_arguments, TEXTS),
        Case(lambda text: repair_arguments(text, complete=True), TEXTS),
    ),
    "history/arguments.py:valid_input": (Case(valid_input, TEXTS),),
    "protocols/ai_sdk/state.py:read_arguments": (Case(ignoring(read_arguments), TEXTS),),
    "protocols/lenient.py:read_object": (
        Case(
            lambda body: read_object(json.loads(body), Response),
            [
                numbered(item, '{"id":1,"output":[', "]}", ",")
                for item in ('{"id":#}', '{"content":[{"text":#}]}', "#", '{"id":"#"}')
            ],
        ),
    ),
    "protocols/ai_sdk/stream.py:DataDecoder": decoder(DECODERS["ai-sdk-data"], AI_SDK["ai-sdk-data"] + BYTES),
    "protocols/ai_sdk/stream.py:FullDecoder": decoder(DECODERS["ai-sdk-full"], AI_SDK["ai-sdk-full"] + BYTES),
    "protocols/ai_sdk/stream.py:LineDecoder": decoder(LineDecoder, BYTES),
    "protocols/ai_sdk/stream.py:UiDecoder": (
        *decoder(DECODERS["ai-sdk-ui"], AI_SDK["ai-sdk-ui"] + BYTES),
        *decoder(DECODERS["ai-sdk-model"], AI_SDK["ai-sdk-model"]),
    ),
    "protocols/ai_sdk/wire.py:repair_text": (Case(repair_text, TEXTS),),
    "protocols/anthropic_messages/caller.py:MessageDecoder": (
        Case(ignoring(lambda body: MESSAGES_CALLER.decode(read_json(body))), CALLER_MESSAGES),
    ),
    "protocols/anthropic_messages/stream.py:StreamDecoder": decoder(
        DECODERS["anthropic-messages"], MESSAGES + BYTES
    ),
    "protocols/anthropic_messages/wire.py:read_model_page": (
        Case(ignoring(read_model_page), MODELS + BYTES),
    ),
    "protocols/billing.py:read_credits": (Case(ignoring(read_credits), BYTES),),
    "protocols/billing.py:read_generation": (Case(ignoring(read_generation), BYTES),),
    "protocols/billing.py:parse_cost": (Case(parse_cost, TEXTS),),
    "protocols/chat_completions/caller.py:CompletionDecoder": (
        Case(ignoring(lambda body: COMPLETIONS_CALLER.decode(read_json(body))), CALLER_MESSAGES),
    ),
    "protocols/chat_completions/stream.py:StreamDecoder": decoder(
        DECODERS["chat-completions"], COMPLETIONS + BYTES
    ),
    "protocols/detect.py:DetectingDecoder": decoder(DetectingDecoder, BYTES),
    "protocols/errors.py:ErrorResponseDecoder": decoder(
        lambda: ErrorResponseDecoder(500, {}), ERRORS + BYTES
    ),
    "protocols/errors.py:error_from": (Case(error_from, TEXTS),),
    "protocols/errors.py:read_error_response": (
        Case(lambda body: read_error_response(400, {}, body), ERRORS + BYTES),
        Case(lambda text: read_error_response(429, {"retry-after": text, "x-request-id": text}, b""), TEXTS),
    ),
    "protocols/jsonrpc.py:Reader": decoder(Reader, [requests, *BYTES]),
    "protocols/jsonrpc.py:read_message": (Case(read_message, BYTES),),
    "protocols/model_list.py:read_endpoints": (Case(ignoring(read_endpoints), MODELS + BYTES),),
    "protocols/model_list.py:read_models": (Case(ignoring(read_models), MODELS + BYTES),),
    "protocols/openresponses/caller.py:ResponsesDecoder": (
        Case(ignoring(lambda body: RESPONSES_CALLER.decode(read_json(body))), CALLER_ITEMS),
    ),
    "protocols/openresponses/stream.py:StreamDecoder": decoder(DECODERS["openresponses"], RESPONSES + BYTES),
    "protocols/sse.py:SseDecoder": decoder(SseDecoder, BYTES),
    "recorder/recording.py:read_line": (Case(read_every_line, [RECORDING]), Case(ignoring(read_line), BYTES)),
    "recorder/redaction.py:ContentRedactor": decoder(ContentRedactor, BYTES + RESPONSES[:3]),
    "recorder/keys.py:KeyRedactor": decoder(lambda: KeyRedactor(["x" * 20, "xy"]), BYTES),
    "recorder/redaction.py:hide_content": (Case(hide_content, BYTES),),
    "recorder/keys.py:hide_keys": (Case(lambda data: hide_keys(data, ["x" * 20]), BYTES),),
    "recorder/redaction.py:hide_secrets": (Case(hide_secrets, BYTES),),
    "tokens/prompt_cache.py:make_chain": (Case(make_system_chain, TEXTS),),
    "tokens/media.py:count_pages": (Case(count_pages, PDF + BYTES),),
    "tokens/media.py:price_of": (Case(price_of.__wrapped__, TEXTS),),
    "tokens/tokenizers.py:Tokenizer.count": (Case(count_tokens, TEXTS),),
    "tokens/tokenizers.py:family_of": (
        Case(family_of.__wrapped__, [*TEXTS, pump("", "claude"), pump("", "astral")]),
    ),
    "types/media.py:detect_mime": (Case(lambda data: detect_mime(data, "image/png"), IMAGES + BYTES),),
    "types/media.py:display_mime": (Case(lambda data: display_mime(data, ""), IMAGES + BYTES),),
    "types/media.py:image_size": (Case(image_size, IMAGES),),
    "types/media.py:sniff": (Case(sniff, IMAGES + BYTES),),
    "types/messages.py:decode_metadata": (
        Case(decode_metadata, [*TEXTS, pump("tollbridge:", "QUJD"), pump("tollbridge:", "W1tb")]),
    ),
    "types/messages.py:read_reasoning_pack": (Case(read_reasoning_pack, BYTES),),
    "types/models.py:identify": (Case(identify, TEXTS),),
    "types/text.py:join_escaped_surrogates": (Case(join_escaped_surrogates, BYTES),),
    "types/text.py:read_json": (Case(ignoring(read_json), BYTES),),
    "types/text.py:read_json_to_depth": (Case(ignoring(read_json_to_depth), BYTES),),
    "types/text.py:replace_surrogates": (Case(replace_surrogates, TEXTS),),
    "types/events.py:parse_amount": (Case(parse_amount, TEXTS),),
    "types/urls.py:hide_userinfo": (
        Case(hide_userinfo, [*TEXTS, pump("", "://"), pump("://", "a"), pump("", "://a@")]),
    ),
}
# Functions whose names look like those of a reader.
NOT_READERS: dict[str, str] = {
    "frontends/vscode/requests.py:decode_chat": "its parameter is decoded",
    "frontends/vscode/requests.py:decode_message": "its parameter is decoded",
    "frontends/vscode/requests.py:read_prompt_text": "its parameter is decoded",
    "frontends/stdio/parameters.py:read_parameters": "a call of msgspec",
    "protocols/ai_sdk/chunks.py:parse_error": "calls error_from",
    "protocols/ai_sdk/chunks.py:read_file": "a chunk of the decoders above",
    "protocols/__init__.py:read_key": "reads one field",
    "protocols/ai_sdk/detect.py:AiSdkDecoder": "passes everything to the decoders above",
    "protocols/anthropic_messages/wire.py:read_cache_diagnosis": "an object of StreamDecoder",
    "protocols/billing.py:read_token_count": "reads one number",
    "protocols/billing.py:read_billing": "objects of the decoders above",
    "protocols/billing.py:read_billing_headers": "calls parse_cost",
    "protocols/chat_completions/wire.py:read_usage": "an object of StreamDecoder",
    "protocols/openresponses/items.py:decode_image": "an image of StreamDecoder",
    "protocols/detect.py:Decoder": "a protocol class",
    "protocols/detect.py:GuardedDecoder": "passes everything to the decoders above",
    "protocols/detect.py:detect_by_headers": "compares names",
    "protocols/detect.py:detect_by_start": "called by DetectingDecoder",
    "protocols/errors.py:read_token_counts": "is given a truncated message",
    "protocols/stream.py:decode_body": "calls a function of this list",
    "protocols/model_list.py:read_model": "called by read_models",
    "protocols/model_list.py:read_only_page": "calls read_models",
    "protocols/openresponses/wire.py:read_cache_diagnosis": "an object of StreamDecoder",
    "protocols/openresponses/wire.py:read_call_signatures": "an item of StreamDecoder",
    "protocols/openresponses/wire.py:read_long_writes": "an object of StreamDecoder",
    "protocols/openresponses/wire.py:read_reasoning_signatures": "an item of StreamDecoder",
    "protocols/openresponses/wire.py:read_searches": "an object of StreamDecoder",
    "protocols/openresponses/wire.py:read_usage": "an object of StreamDecoder",
    "protocols/caller.py:CallerCodec": "passes everything to the decoders above",
    "protocols/caller_request.py:RequestDecoder": "the base class of three decoders above",
    "protocols/caller_request.py:read_arguments": "reads one field",
    "protocols/caller_request.py:read_content": "reads one field",
    "protocols/caller_request.py:read_custom_input": "its parameter is decoded",
    "protocols/caller_request.py:read_data_url": "reads one field",
    "protocols/caller_request.py:read_output_format": "reads one field",
    "protocols/sse.py:_LineDecoder": "called by SseDecoder",
    "protocols/stream.py:BaseDecoder": "the base class of three decoders above",
    "recorder/recording.py:read_recording": "calls read_line",
    "recorder/redaction.py:hide_secret_values": "calls hide_secrets",
    "tokens/prompts.py:read_message": "counts texts with Tokenizer",
    "tokens/prompts.py:read_toolset": "counts texts with Tokenizer",
    "types/errors.py:hide_key": "is given truncated texts",
    "types/text.py:read_mapping": "checks a type",
}
READER_PACKAGES = (
    "frontends/stdio",
    "frontends/vscode",
    "history",
    "protocols",
    "recorder",
    "tokens",
    "types",
)
READER_PREFIXES = ("decode_", "detect_", "hide_", "parse_", "read_", "repair_", "sniff")


def test_every_reader_of_the_source_is_listed() -> None:
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith(READER_PACKAGES):
            continue
        for node in ast.parse(path.read_text()).body:
            is_decoder = isinstance(node, ast.ClassDef) and any(
                isinstance(method, ast.FunctionDef) and method.name in ("feed", "decode")
                for method in node.body
            )
            is_function = isinstance(node, ast.FunctionDef) and node.name.startswith(READER_PREFIXES)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and (is_decoder or is_function):
                names.add(f"{place}:{node.name}")
    assert names - set(READERS) - set(NOT_READERS) == set()
    assert set(NOT_READERS) <= names


def slow_inputs(place: str, inputs: slice) -> list[str]:
    """Return the inputs that a reader does not read in linear time, with the ratio."""
    slow: list[str] = []
    for read, pumps in READERS[place]:
        for make in pumps[inputs]:
            size, ratio = find_ratio(read, make)
            if ratio > MAX_RATIO:
                slow.append(f"{make(60)!r}: {ratio:.1f} times as long for twice n = {size}")
    return slow


@pytest.mark.series
@pytest.mark.timed
@pytest.mark.parametrize("place", sorted(READERS))
def test_every_reader_takes_linear_time_for_some_inputs(place: str) -> None:
    assert slow_inputs(place, slice(None, None, 16)) == []


# Takes about 2 minutes on one core.
@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.skipif(not os.environ.get("ALL_INPUTS"), reason="takes minutes; set ALL_INPUTS=1 to run it")
@pytest.mark.parametrize("place", sorted(READERS))
def test_every_reader_takes_linear_time_for_all_inputs(place: str) -> None:
    assert slow_inputs(place, slice(None)) == []


def test_a_quadratic_reader_is_found() -> None:
    def read(text: str) -> None:
        while text:
            text = text[1:]

    assert find_ratio(read, pump("", "x"))[1] > MAX_RATIO
