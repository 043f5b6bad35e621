"""The scenarios: every way the gateway can answer or fail, by name, with a line that says what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from tollbridge.testing import faults as quirks
from tollbridge.testing import faults as tampering
from tollbridge.testing import model as demo
from tollbridge.testing import refusals as rejects
from tollbridge.testing import refusals as replies
from tollbridge.testing.faults import (
    Chunk,
    Framing,
    Tamper,
    as_they_are,
    cut_oddly,
    join_all,
    without_last_newlines,
)
from tollbridge.testing.refusals import (
    RETRY_AFTER,
    MakeReply,
    RequestRejected,
    page,
    refusal,
    shaped,
    unnested,
)
from tollbridge.testing.responses import ReasoningName, ScriptedAnswer


def _always(_body: Mapping[str, Any]) -> bool:
    return True


def _as_it_is(body: dict[str, Any]) -> dict[str, Any]:
    return body


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in place of the usual. The defaults are the usual."""

    says: str
    # Something else than an answer: every time, or only when `when` holds for the body, or only the first
    # time this very request comes (`once`).
    reply: MakeReply | None = None
    when: Callable[[Mapping[str, Any]], bool] = _always
    once: bool = False
    silent: bool = False
    closes: bool = False
    redirect: Literal["same", "elsewhere"] | None = None
    # What the protocol has and this server does not: rules of `pickiness`, paths, and forms of its own.
    refuses: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    body: Callable[[dict[str, Any]], dict[str, Any]] = _as_it_is
    # The answer, its events, their bytes.
    words: tuple[str, ...] = ()
    answer: Callable[[ScriptedAnswer], ScriptedAnswer] = tampering.same_answer
    reasoning: ReasoningName = "reasoning_summary_text"
    events: Tamper = tampering.leave
    numbered: bool = True
    framing: Framing = Framing()
    chunks: Callable[[Iterable[Chunk]], Iterator[Chunk]] = as_they_are
    encoding: Literal["gzip", "br"] | None = None
    streams_anyway: bool = False


_WAIT = {"Retry-After": str(RETRY_AFTER)}
_TOO_MANY = refusal(429, "rate_limit_exceeded", "Too many requests; wait as Retry-After says.", _WAIT)
_BROKEN = refusal(500, "server_error", "The server failed, as it was asked to.")

_ANSWERS: dict[str, Scenario] = {
    "demo": Scenario(says="answers as the words of the last user message ask (the default)"),
    **{name: Scenario(says=says, words=(name,)) for name, (_, says) in demo.WORDS.items()},
    "content-filter": Scenario(
        says="stops half-way, incomplete for content_filter", answer=tampering.filter_answer
    ),
    "line-separators": Scenario(
        says="puts U+2028, U+2029 and U+0085 into the text", answer=tampering.separate_lines
    ),
    "reasoning-summary": Scenario(
        says="thinks, told by response.reasoning_summary_text.*", words=("reasoning",)
    ),
    "reasoning-raw": Scenario(
        says="thinks, told by response.reasoning.* (the specification's name)",
        words=("reasoning",),
        reasoning="reasoning",
    ),
    "reasoning-text": Scenario(
        says="thinks, told by response.reasoning_text.* (OpenAI's name)",
        words=("reasoning",),
        reasoning="reasoning_text",
    ),
}

_REPLIES: dict[str, Scenario] = {
    "unauthorized": Scenario(
        says="401", reply=refusal(401, "invalid_api_key", "The API key is missing or wrong.")
    ),
    "forbidden": Scenario(says="403", reply=refusal(403, "forbidden", "This key may not use this model.")),
    "not-found": Scenario(says="404", reply=refusal(404, "model_not_found", "The model does not exist.")),
    "rate-limit": Scenario(says="429 with Retry-After in seconds", reply=_TOO_MANY),
    "rate-limit-date": Scenario(says="429 with Retry-After as a date", reply=replies.rate_limit_by_date),
    "rate-limit-once": Scenario(
        says="429 with Retry-After the first time a request comes, then fine", reply=_TOO_MANY, once=True
    ),
    "server-error": Scenario(says="500", reply=_BROKEN),
    "server-error-once": Scenario(
        says="500 the first time a request comes, then fine", reply=_BROKEN, once=True
    ),
    "overloaded": Scenario(
        says="503", reply=refusal(503, "overloaded", "The server is overloaded; try again later.")
    ),
    "context-too-long": Scenario(
        says="400, the prompt does not fit, with the numbers",
        reply=refusal(
            400,
            "context_length_exceeded",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 "
            "tokens. Please reduce the length of the messages.",
        ),
    ),
    "html-error": Scenario(says="502 with an HTML page", reply=page(502, replies.HTML, "text/html")),
    "text-error": Scenario(
        says="500 with plain text", reply=page(500, "Internal Server Error", "text/plain")
    ),
    "empty-error": Scenario(says="500 with no body", reply=page(500, "", "text/plain")),
    "detail-error": Scenario(
        says="422 with a JSON `detail` list",
        reply=shaped(
            422, {"detail": [{"loc": ["body", "input"], "msg": "Field required", "type": "missing"}]}
        ),
    ),
    "list-error": Scenario(
        says="400 whose JSON `error` is a list",
        reply=shaped(400, {"success": False, "error": [{"path": ["input"], "message": "Invalid input"}]}),
    ),
    "string-error": Scenario(
        says="400 whose JSON `error` is a string", reply=shaped(400, {"error": "The request is not right."})
    ),
    "bare-error": Scenario(
        says="400 whose JSON error has only message and type",
        reply=shaped(
            400, {"error": {"message": "The request is not right.", "type": "invalid_request_error"}}
        ),
    ),
    "sse-error": Scenario(
        says="500 with an event stream as its body", reply=page(500, replies.SSE_ERROR, "text/event-stream")
    ),
    "html-page": Scenario(
        says="200 with an HTML page (a captive portal)",
        reply=page(200, "<!DOCTYPE html><html><body>Please log in</body></html>", "text/html"),
    ),
    "redirect": Scenario(says="307 to another path of the same host", redirect="same"),
    "redirect-elsewhere": Scenario(
        says="307 to another host and port (also ours, so it can be seen what arrives)", redirect="elsewhere"
    ),
    "stall-headers": Scenario(says="says nothing at all, then hangs up", silent=True),
    "hang-up": Scenario(says="closes the connection without an answer", closes=True),
    "hang-up-once": Scenario(
        says="closes the connection the first time a request comes, then fine", closes=True, once=True
    ),
}

_STREAMS: dict[str, Scenario] = {
    "error-event": Scenario(
        says="an error event mid-stream, then response.failed", events=tampering.say_error
    ),
    "error-event-flat": Scenario(
        says="an error event in OpenAI's flat shape mid-stream, and the end",
        events=tampering.say_flat_error,
        framing=Framing(done=False),
    ),
    "failed": Scenario(says="response.failed mid-stream", events=tampering.fail),
    "failed-at-once": Scenario(
        says="HTTP 200, then response.failed before anything is said", events=tampering.fail_at_once
    ),
    "disconnect": Scenario(says="closes the connection mid-stream", events=tampering.disconnect),
    "reset": Scenario(says="resets the connection mid-stream", events=tampering.reset),
    "stall": Scenario(says="goes silent mid-stream, then hangs up", events=tampering.stall),
    "no-terminal": Scenario(
        says="ends the body cleanly mid-stream, with [DONE] and no terminal event", events=tampering.end_early
    ),
    "garbage": Scenario(
        says="bytes that are no events mid-stream, and the end",
        events=tampering.send_garbage,
        framing=Framing(done=False),
    ),
    "cut-frames": Scenario(says="writes of 1 to 17 bytes that cut frames and characters", chunks=cut_oddly),
    "one-write": Scenario(says="the whole stream in one write", chunks=join_all),
    "crlf": Scenario(says="lines end with CRLF", framing=Framing(newline=b"\r\n")),
    "cr": Scenario(says="lines end with CR", framing=Framing(newline=b"\r")),
    "no-event-lines": Scenario(says="no event: lines", framing=Framing(event_lines=False)),
    "no-space": Scenario(says="no space after the colons", framing=Framing(space=b"")),
    "multi-line": Scenario(says="JSON spread over several data: lines", framing=Framing(multi_line=True)),
    "no-done": Scenario(says="no [DONE]", framing=Framing(done=False)),
    "unterminated": Scenario(
        says="no [DONE], and the last frame is not ended",
        framing=Framing(done=False),
        chunks=without_last_newlines,
    ),
    "byte-order-mark": Scenario(says="a byte order mark first", events=tampering.send_byte_order_mark),
    "keep-alive": Scenario(says="a comment before every event", events=tampering.keep_alive),
    "gzip": Scenario(says="compressed with gzip", encoding="gzip"),
    "brotli": Scenario(says="compressed with brotli", encoding="br"),
    "streams-anyway": Scenario(says="streams though it was not asked to", streams_anyway=True),
    "oversized-frame": Scenario(says="one frame of 65 MiB mid-stream", events=tampering.oversize),
    "changing-ids": Scenario(says="item ids that change with every event", events=tampering.change_ids),
    "arguments-in-done": Scenario(
        says="a tool's arguments only in arguments.done", words=("tool",), events=tampering.arguments_in_done
    ),
    "arguments-in-item": Scenario(
        says="a tool's arguments only in output_item.done",
        words=("tool",),
        events=tampering.arguments_in_item,
    ),
    "arguments-in-response": Scenario(
        says="a tool's arguments only in response.completed",
        words=("tool",),
        events=tampering.arguments_in_response,
    ),
    "duplicate-added": Scenario(
        says="every tool call announced twice, under two ids",
        words=("tool",),
        events=tampering.announce_twice,
    ),
    "open-items": Scenario(says="no .done event at all before the terminal one", events=tampering.leave_open),
    "only-deltas": Scenario(
        says="no items, parts or .done events but for tool calls", events=tampering.only_deltas
    ),
    "no-sequence": Scenario(says="no sequence numbers", numbered=False),
    "usage-null": Scenario(says="usage is null", events=tampering.usage_null),
    "usage-zero": Scenario(says="usage is all zero", events=tampering.usage_zero),
}

_QUIRKS: dict[str, Scenario] = {
    "interleaved": Scenario(
        says="two tool calls, told side by side", words=("parallel",), events=quirks.interleave
    ),
    "scrambled-arguments": Scenario(
        says="a tool's argument deltas are obfuscated; done has them plain",
        words=("tool",),
        events=quirks.scramble,
    ),
    "wrong-index": Scenario(
        says="two tool calls, both announced at index 0", words=("parallel",), events=quirks.lose_count
    ),
    "renamed-calls": Scenario(
        says="a tool call whose call_id differs in the final response",
        words=("tool",),
        events=quirks.rename_calls,
    ),
    "vendor-events": Scenario(
        says="events, items and fields nobody has heard of", events=quirks.add_vendor_events
    ),
    "odd-lines": Scenario(says="id: and retry: lines and empty data: lines", events=quirks.add_lines),
    "sparse": Scenario(
        says="fields left out wherever they can be guessed, and times with fractions", events=quirks.thin_out
    ),
}

# Servers that take less than the protocol has. Each is what some server is known to do.
_SERVERS: dict[str, Scenario] = {
    "no-developer": Scenario(says="400 for the developer role", refuses=("developer",)),
    "instructions-only": Scenario(
        says="400 for the developer and system roles", refuses=("developer", "system")
    ),
    "users-only": Scenario(says="400 for any system prompt", refuses=("developer", "system", "instructions")),
    "no-arrays": Scenario(says="400 for content that is an array", refuses=("arrays",)),
    "arrays-only": Scenario(says="400 for content that is a string", refuses=("strings",)),
    "no-calls": Scenario(says="400 for function calls and their results in the input", refuses=("calls",)),
    "nested-tools": Scenario(
        says="400 for tools that are not nested under `function`", refuses=("flat tools",), body=unnested
    ),
    "text-results": Scenario(says="400 for tool results of more than text", refuses=("rich results",)),
    "text-only": Scenario(says="400 for images and files", refuses=("images", "files")),
    "no-reasoning-input": Scenario(
        says="400 for reasoning in the input and for `include`", refuses=("reasoning", "include")
    ),
    "no-parameters": Scenario(
        says="400 for store, temperature, metadata, parallel_tool_calls and max_output_tokens",
        refuses=("store", "temperature", "metadata", "parallel_tool_calls", "max_output_tokens"),
    ),
    "no-input-tokens": Scenario(says="404 where tokens are counted", missing=("/responses/input_tokens",)),
    "no-models": Scenario(says="404 where models are listed", missing=("/models",)),
    "picky": Scenario(
        says="no developer role, calls, rich results, files, include, store; no count of tokens; no usage",
        refuses=("developer", "calls", "rich results", "files", "include", "store"),
        missing=("/responses/input_tokens",),
        events=tampering.usage_null,
        numbered=False,
        framing=Framing(event_lines=False, done=False),
    ),
}

_REJECTS: dict[str, Scenario] = {
    name: Scenario(says=reject.says, reply=reject.reply, when=reject.when)
    for name, reject in rejects.REJECTION_RULES.items()
}

SCENARIOS: dict[str, Scenario] = {**_ANSWERS, **_REPLIES, **_REJECTS, **_STREAMS, **_QUIRKS, **_SERVERS}
# Those whose output the specification allows: an image is OpenAI's own item, as is its name for reasoning.
VALID: frozenset[str] = frozenset(_ANSWERS) - {"image", "reasoning-text"}


def find_scenario(name: str) -> Scenario:
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise RequestRejected(
            400,
            "unknown_scenario",
            f"There is no scenario {name[:80]!r}. Known: {', '.join(SCENARIOS)}.",
            param="scenario",
        )
    return scenario


def describe_scenarios() -> list[tuple[str, str]]:
    """Name and meaning of every scenario, for help texts and tables."""
    return [(name, scenario.says) for name, scenario in SCENARIOS.items()]
