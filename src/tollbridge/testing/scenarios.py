"""The scenarios: every way in which the gateway can answer or fail, by name, each with a description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from tollbridge.protocols.openresponses.wire import encode_usage
from tollbridge.testing import faults
from tollbridge.testing.faults import Chunk, Fault, Framing
from tollbridge.testing.model import WORDS
from tollbridge.testing.refusals import (
    BAD_GATEWAY_PAGE,
    REJECTION_RULES,
    RETRY_AFTER,
    SSE_ERROR,
    MakeReply,
    drop_attachments,
    drop_items,
    flatten_tools,
    make_error,
    make_json_error,
    make_page,
    make_rate_limit,
    make_retry_date,
    reject,
)
from tollbridge.testing.responses import Disconnect, Event, ReasoningName, ScriptedAnswer
from tollbridge.types.events import Usage


class Scenario(msgspec.Struct, frozen=True):
    """How the gateway handles a request. The defaults are the normal behaviour."""

    description: str  # one line for help texts and tables
    reply: MakeReply | None = None  # creates a reply that is sent in place of a response
    # What happens in place of a response: the connection is closed at once or after a silence, or the request
    # is redirected to another path of the same host, or to another host and port.
    fault: Literal["disconnect", "silence", "redirect", "redirect elsewhere"] | None = None
    applies: Callable[[Mapping[str, Any]], bool] = lambda _body: True  # `reply` or `fault`, to a body
    once: bool = False  # apply them only to the first of several equal requests
    lacks: tuple[str, ...] = ()  # the features that the server lacks, by their names in `SERVER_RULES`
    missing_paths: tuple[str, ...] = ()  # ends of the paths that do not exist
    # Converts a body that has a form of its own to the form of the protocol.
    body: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
    words: tuple[str, ...] = ()  # what to ask the scripted model for, besides the words in the message
    answer: Callable[[ScriptedAnswer], ScriptedAnswer] = lambda answer: answer
    reasoning: ReasoningName = "reasoning_summary_text"  # the events that carry reasoning
    events: Fault = lambda steps, _: steps
    numbered: bool = True  # events have a `sequence_number`
    framing: Framing = Framing()
    chunks: Callable[[Iterable[Chunk]], Iterator[Chunk]] = iter  # how the bytes are divided into writes
    encoding: Literal["gzip", "br"] | None = None
    always_streams: bool = False  # even if the request did not ask for a stream
    switches_provider: bool = False  # the next provider answers, if the prompt cache has several


_RATE_LIMIT = make_rate_limit(lambda: str(RETRY_AFTER))
_FLAT_ERROR: Event = {"type": "error", "code": "server_error", "message": faults.FAILURE, "param": None}
_NO_DONE = Framing(done=False)
_SERVER_ERROR = make_error(500, "server_error", "This is a simulated server error.")

_ANSWERS: dict[str, Scenario] = {
    "demo": Scenario("answers according to words in the last user message (the default)"),
    **{name: Scenario(description, words=(name,)) for name, (_, description) in WORDS.items()},
    "content-filter": Scenario("stops mid-answer with content_filter", answer=faults.cut_answer_by_filter),
    "line-separators": Scenario(
        "puts U+2028, U+2029 and U+0085 into the text", answer=faults.add_line_separators
    ),
    "reasoning-summary": Scenario(
        "reasoning sent as response.reasoning_summary_text.*", words=("reasoning",)
    ),
    "reasoning-raw": Scenario(
        "reasoning sent as response.reasoning.* (the specification's name)",
        words=("reasoning",),
        reasoning="reasoning",
    ),
    "reasoning-text": Scenario(
        "reasoning sent as response.reasoning_text.* (OpenAI's name)",
        words=("reasoning",),
        reasoning="reasoning_text",
    ),
}

_REPLIES: dict[str, Scenario] = {
    "unauthorized": Scenario("401", make_error(401, "invalid_api_key", "The API key is missing or wrong.")),
    "forbidden": Scenario("403", make_error(403, "forbidden", "This key is not allowed to use this model.")),
    "not-found": Scenario("404", make_error(404, "model_not_found", "The model does not exist.")),
    "rate-limit": Scenario("429 with Retry-After in seconds", _RATE_LIMIT),
    "rate-limit-date": Scenario("429 with Retry-After as a date", make_rate_limit(make_retry_date)),
    "rate-limit-once": Scenario("429 with Retry-After on the first attempt only", _RATE_LIMIT, once=True),
    "server-error": Scenario("500", _SERVER_ERROR),
    "server-error-once": Scenario("500 on the first attempt only", _SERVER_ERROR, once=True),
    "overloaded": Scenario(
        "503", make_error(503, "overloaded", "The server is overloaded; try again later.")
    ),
    "context-too-long": Scenario(
        "400, the prompt is too long, with the token counts",
        make_error(
            400,
            "context_length_exceeded",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 "
            "tokens. Please reduce the length of the messages.",
        ),
    ),
    "html-error": Scenario("502 with an HTML page", make_page(502, BAD_GATEWAY_PAGE, "text/html")),
    "text-error": Scenario("500 with plain text", make_page(500, "Internal Server Error", "text/plain")),
    "empty-error": Scenario("500 with no body", make_page(500, "", "text/plain")),
    "detail-error": Scenario(
        "422 with a JSON `detail` list",
        make_json_error(
            422, {"detail": [{"loc": ["body", "input"], "msg": "Field required", "type": "missing"}]}
        ),
    ),
    "list-error": Scenario(
        "400 whose JSON `error` is a list",
        make_json_error(400, {"success": False, "error": [{"path": ["input"], "message": "Invalid input"}]}),
    ),
    "string-error": Scenario(
        "400 whose JSON `error` is a string", make_json_error(400, {"error": "The request is not right."})
    ),
    "bare-error": Scenario(
        "400 whose JSON error has only message and type",
        make_json_error(
            400, {"error": {"message": "The request is not right.", "type": "invalid_request_error"}}
        ),
    ),
    "sse-error": Scenario(
        "500 with an event stream as its body", make_page(500, SSE_ERROR, "text/event-stream")
    ),
    "html-page": Scenario(
        "200 with an HTML page (a captive portal)",
        make_page(200, "<!DOCTYPE html><html><body>Please log in</body></html>", "text/html"),
    ),
    "redirect": Scenario("307 to another path of the same host", fault="redirect"),
    "redirect-elsewhere": Scenario(
        "307 to another host and port (also served by this process)", fault="redirect elsewhere"
    ),
    "stall-headers": Scenario("sends nothing, then disconnects", fault="silence"),
    "hang-up": Scenario("closes the connection without an answer", fault="disconnect"),
    "hang-up-once": Scenario(
        "closes the connection on the first attempt only", fault="disconnect", once=True
    ),
}

_STREAMS: dict[str, Scenario] = {
    "error-event": Scenario("an error event mid-stream, then response.failed", events=faults.send_error),
    "error-event-flat": Scenario(
        "an error event in OpenAI's flat shape mid-stream, then EOF",
        events=faults.break_stream(_FLAT_ERROR),
        framing=_NO_DONE,
    ),
    "failed": Scenario("response.failed mid-stream", events=faults.fail),
    "failed-at-once": Scenario(
        "HTTP 200, then response.failed before any output", events=faults.fail_at_once
    ),
    "failed-counted": Scenario(
        "HTTP 200, then response.failed with usage before any output", events=faults.fail_after_counting
    ),
    "disconnect": Scenario("closes the connection mid-stream", events=faults.break_stream(Disconnect())),
    "reset": Scenario("resets the connection mid-stream", events=faults.break_stream(Disconnect(reset=True))),
    "stall": Scenario("sends nothing more mid-stream, then disconnects", events=faults.stall),
    "no-terminal": Scenario(
        "ends the body cleanly mid-stream, with [DONE] and no terminal event", events=faults.break_stream()
    ),
    "garbage": Scenario(
        "garbage bytes mid-stream, then EOF", events=faults.break_stream(faults.GARBAGE), framing=_NO_DONE
    ),
    "cut-frames": Scenario(
        "writes of 1 to 17 bytes that cut frames and characters", chunks=faults.split_chunks
    ),
    "one-write": Scenario("the whole stream in one write", chunks=faults.join_chunks),
    "crlf": Scenario("lines end with CRLF", framing=Framing(newline=b"\r\n")),
    "cr": Scenario("lines end with CR", framing=Framing(newline=b"\r")),
    "no-event-lines": Scenario("no event: lines", framing=Framing(event_lines=False)),
    "no-space": Scenario("no space after the colons", framing=Framing(space=b"")),
    "multi-line": Scenario("JSON spread over several data: lines", framing=Framing(multi_line=True)),
    "no-done": Scenario("no [DONE]", framing=_NO_DONE),
    "unterminated": Scenario(
        "no [DONE], and the last frame is not terminated", framing=_NO_DONE, chunks=faults.strip_last_newlines
    ),
    "byte-order-mark": Scenario("a byte order mark first", events=faults.send_byte_order_mark),
    "keep-alive": Scenario("a comment before every event", events=faults.send_comments),
    "gzip": Scenario("compressed with gzip", encoding="gzip"),
    "brotli": Scenario("compressed with brotli", encoding="br"),
    "streams-anyway": Scenario("streams although the request did not ask for a stream", always_streams=True),
    "oversized-frame": Scenario("one frame of 65 MiB mid-stream", events=faults.send_oversized_frame),
    "changing-ids": Scenario("item ids that change with every event", events=faults.change_ids),
    "arguments-in-done": Scenario(
        "a tool's arguments only in arguments.done",
        words=("tool",),
        events=faults.drop_events(faults.ARGUMENTS_DELTA),
    ),
    "arguments-in-item": Scenario(
        "a tool's arguments only in output_item.done",
        words=("tool",),
        events=faults.drop_events(faults.ARGUMENTS_DELTA, faults.ARGUMENTS_DONE),
    ),
    "arguments-in-response": Scenario(
        "a tool's arguments only in response.completed",
        words=("tool",),
        events=faults.move_arguments_to_response,
    ),
    "duplicate-added": Scenario(
        "every tool call announced twice, under two ids", words=("tool",), events=faults.announce_twice
    ),
    "open-items": Scenario("no .done events before the terminal event", events=faults.drop_events(".done")),
    "only-deltas": Scenario(
        "no items, parts or .done events except for tool calls", events=faults.keep_only_deltas
    ),
    "no-sequence": Scenario("no sequence numbers", numbered=False),
    "usage-null": Scenario("usage is null", events=faults.set_usage(None)),
    "cache-writes": Scenario(
        "usage with the tokens written to the prompt cache", events=faults.report_cache_writes
    ),
    "provider-switch": Scenario(
        "another provider answers, whose prompt cache is empty", switches_provider=True
    ),
    "usage-zero": Scenario("usage is all zero", events=faults.set_usage(encode_usage(Usage()))),
}

_QUIRKS: dict[str, Scenario] = {
    "interleaved": Scenario("two tool calls, interleaved", words=("parallel",), events=faults.interleave),
    "scrambled-arguments": Scenario(
        "a tool's argument deltas are obfuscated; .done has the plain arguments",
        words=("tool",),
        events=faults.scramble_arguments,
    ),
    "wrong-index": Scenario(
        "two tool calls, both announced at index 0", words=("parallel",), events=faults.announce_at_index_zero
    ),
    "renamed-calls": Scenario(
        "a tool call whose call_id differs in the final response", words=("tool",), events=faults.rename_calls
    ),
    "vendor-events": Scenario("unknown events, items and fields", events=faults.add_vendor_events),
    "odd-lines": Scenario("id: and retry: lines and empty data: lines", events=faults.add_odd_lines),
    "sparse": Scenario(
        "optional fields omitted, and times with fractions", events=faults.remove_optional_fields
    ),
}

# Servers that lack a part of the protocol. Each scenario is the behaviour of a known server.
_SERVERS: dict[str, Scenario] = {
    "no-developer": Scenario("400 for the developer role", lacks=("developer",)),
    "instructions-only": Scenario("400 for the developer and system roles", lacks=("developer", "system")),
    "users-only": Scenario("400 for any system prompt", lacks=("developer", "system", "instructions")),
    "no-arrays": Scenario("400 for content that is an array", lacks=("arrays",)),
    "arrays-only": Scenario("400 for content that is a string", lacks=("strings",)),
    "no-calls": Scenario("400 for function calls and their results in the input", lacks=("calls",)),
    "nested-tools": Scenario(
        "400 for tools that are not nested under `function`", lacks=("flat tools",), body=flatten_tools
    ),
    "text-results": Scenario("400 for tool results that are not text", lacks=("rich results",)),
    "text-only": Scenario("400 for images and files", lacks=("images", "files")),
    "no-reasoning-input": Scenario(
        "400 for reasoning in the input and for `include`", lacks=("reasoning", "include")
    ),
    "no-parameters": Scenario(
        "400 for store, temperature, metadata, parallel_tool_calls and max_output_tokens",
        lacks=("store", "temperature", "metadata", "parallel_tool_calls", "max_output_tokens"),
    ),
    "ignored-attachments": Scenario(
        "accepts images and files, but the model does not see them", body=drop_attachments
    ),
    "ignored-calls": Scenario(
        "accepts function calls and their results in the input, but the model does not see them",
        body=drop_items("function_call", "function_call_output"),
    ),
    "ignored-reasoning": Scenario(
        "accepts reasoning in the input, but the model does not see it", body=drop_items("reasoning")
    ),
    "no-input-tokens": Scenario(
        "404 from the token-count endpoint", missing_paths=("/responses/input_tokens",)
    ),
    "no-models": Scenario("404 from the model-list endpoint", missing_paths=("/models",)),
    "picky": Scenario(
        "no developer role, calls, rich results, files, include, store; no token count; no usage",
        lacks=("developer", "calls", "rich results", "files", "include", "store"),
        missing_paths=("/responses/input_tokens",),
        events=faults.set_usage(None),
        numbered=False,
        framing=Framing(event_lines=False, done=False),
    ),
}

_REJECTS: dict[str, Scenario] = {
    name: Scenario(description, reply, applies=applies)
    for name, (description, applies, reply) in REJECTION_RULES.items()
}

SCENARIOS: dict[str, Scenario] = {**_ANSWERS, **_REPLIES, **_REJECTS, **_STREAMS, **_QUIRKS, **_SERVERS}
# The scenarios whose output the specification allows. Images and `reasoning_text` exist only in OpenAI's API.
VALID: frozenset[str] = frozenset(_ANSWERS) - {"image", "reasoning-text"}


def find_scenario(name: str) -> Scenario:
    """Return the scenario with this name. An unknown name is rejected."""
    scenario = SCENARIOS.get(name)
    if scenario is None:
        reject("unknown_scenario", unknown_scenario_message(name), "scenario")
    return scenario


def unknown_scenario_message(name: str) -> str:
    return f"Unknown scenario {name[:80]!r}. Valid scenarios: {', '.join(SCENARIOS)}."


def describe_scenarios() -> list[tuple[str, str]]:
    """Return name and description of every scenario, for help texts and tables."""
    return [(name, scenario.description) for name, scenario in SCENARIOS.items()]
