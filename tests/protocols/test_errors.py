"""Error responses of every shape become one exception, and no input makes the decoder raise."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recorded_streams import openresponses

from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.errors import (
    BY_CODE,
    CODE_LIMIT,
    ERROR_BODY_LIMIT,
    MESSAGE_LIMIT,
    ErrorResponseDecoder,
    error_from,
    read_error_response,
)
from tollbridge.types.errors import (
    BridgeError,
    ContentFiltered,
    ContextTooLong,
    GatewayError,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Overloaded,
    RateLimited,
    ServerFailed,
    TimedOut,
)
from tollbridge.types.events import ID_LIMIT, NAME_LIMIT, Failed, Finished, ToolCall

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
RECORDED = openresponses()

# The content of each recorded error response, read from the recordings.
RECORDED_REFUSALS: dict[str, tuple[type[BridgeError], str | None, str]] = {
    "litellm.badjson": (InvalidRequest, "invalid_request_error", "Invalid JSON payload: unexpected end"),
    "litellm.badkey": (NotAuthenticated, "no_db_connection", "No connected db."),
    "litellm.badmodel": (InvalidRequest, "invalid_request_error", "/responses: Invalid model name passed"),
    "litellm.err400-stream": (InvalidRequest, "invalid_request_error", "litellm.BadRequestError: Lm_studio"),
    "litellm.err429-stream": (RateLimited, "throttling_error", "litellm.RateLimitError: RateLimitError"),
    "litellm.err500-stream": (ServerFailed, "internal_server_error", "litellm.InternalServerError: "),
    "litellm.noinput": (InvalidRequest, "invalid_request_error", "/responses: Missing required parameter"),
    "llamacpp.badjson": (InvalidRequest, "invalid_request_error", "[json.exception.parse_error.101] parse"),
    "llamacpp.toolong-stream": (ContextTooLong, "exceed_context_size_error", "request (9031 tokens) exceeds"),
    "transformers.badjson": (InvalidRequest, "json_invalid", "JSON decode error at body.10"),
    "transformers.noinput": (ServerFailed, None, "Internal Server Error"),
}


def refuse(status: int, body: object, headers: dict[str, str] | None = None) -> BridgeError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_error_response(status, headers or {}, data, now=NOW)


def test_every_recorded_error_response_is_listed() -> None:
    assert {name for name, r in RECORDED.items() if r.status and r.status >= 400} == set(RECORDED_REFUSALS)


@pytest.mark.parametrize("name", RECORDED_REFUSALS)
def test_recorded_error_responses_are_decoded(name: str) -> None:
    recording = RECORDED[name]
    kind, code, message = RECORDED_REFUSALS[name]
    assert recording.status is not None
    error = read_error_response(recording.status, recording.headers, recording.body, now=NOW)
    assert (type(error), error.status, error.code) == (kind, recording.status, code)
    assert error.message.startswith(message)


def test_the_retry_delay_of_a_provider_behind_a_proxy_is_used() -> None:
    recording = RECORDED["litellm.err429-stream"]
    error = read_error_response(429, recording.headers, recording.body, now=NOW)
    assert error.retry_after == 1.0
    assert error.request_id == "be95f39f-6a40-46ef-8c8f-aeef1425b1ec"


SHAPES: list[tuple[int, object, type[BridgeError], str | None, str]] = [
    # nested, as in the specification
    (400, {"error": {"message": "No.", "type": "invalid_request", "param": None, "code": None}}, InvalidRequest, "invalid_request", "No."),  # noqa: E501
    (404, {"error": {"message": "No.", "type": "model_not_found", "param": {"modelId": "x"}}}, NotFound, "model_not_found", "No."),  # noqa: E501
    (424, {"error": {"message": "No.", "type": "failed_dependency", "code": 424}}, ServerFailed, "failed_dependency", "No."),  # noqa: E501
    # flat
    (400, {"message": "No.", "code": "bad_request"}, InvalidRequest, "bad_request", "No."),
    (400, {"type": "error", "code": "server_error", "message": "No.", "param": None}, ServerFailed, "server_error", "No."),  # noqa: E501
    # Anthropic's
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Overloaded, "overloaded_error", "Overloaded"),  # noqa: E501
    # a list, as responses.js gives it, and Google's list around everything
    (400, {"success": False, "error": [{"path": ["input"], "message": "Invalid input"}]}, InvalidRequest, None, "Invalid input"),  # noqa: E501
    (429, [{"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}], RateLimited, "resource_exhausted", "Quota."),  # noqa: E501
    (400, {"errors": [{"message": "One."}, {"message": "Two."}]}, InvalidRequest, None, "One."),
    # FastAPI's
    (422, {"detail": [{"loc": ["body", "input"], "msg": "Field required", "type": "missing"}]}, InvalidRequest, "missing", "Field required at body.input"),  # noqa: E501
    # one entry per alternative of a union: the deepest is the most specific
    (422, {"detail": [{"loc": ["body", "input", "str"], "msg": "Input should be a valid string", "type": "string_type"}, {"loc": ["body", "input", "list", 0, "message", "content"], "msg": "Field required", "type": "missing"}, {"loc": ["body", "input", "list", 0, "call"], "msg": "Input should be a valid call", "type": "call"}]}, InvalidRequest, "missing", "Field required at body.input.list.0.message.content"),  # noqa: E501
    # ogx's list inside two objects
    (400, {"error": {"detail": {"errors": [{"loc": ["body"], "msg": "One.", "type": "a"}, {"loc": ["body", "model"], "msg": "Field required", "type": "missing"}]}}}, InvalidRequest, "missing", "Field required at body.model"),  # noqa: E501
    # a validation error as the `repr` of Python objects, alone or behind a prefix
    (400, {"error": {"message": "[{'type': 'missing', 'loc': ('body', 'input'), 'msg': 'Field required', 'input': {'model': 'm'}}]", "type": "invalid_request_error"}}, InvalidRequest, "missing", "Field required at body.input"),  # noqa: E501
    (500, {"detail": "{'error': {'message': 'No such tool.', 'type': 'invalid_request_error', 'code': None}}"}, InvalidRequest, "invalid_request_error", "No such tool."),  # noqa: E501
    (500, {"error": {"message": "Error code: 429 - {'error': {'message': 'Slow down.', 'code': 'rate_limit_exceeded'}}"}}, RateLimited, "rate_limit_exceeded", "Slow down."),  # noqa: E501
    (400, b"{'detail': [{'loc': ('body',), 'msg': 'It\\'s empty'}]}", InvalidRequest, None, "It's empty at body"),  # noqa: E501
    (400, {"error": {"message": '{"error": {"message": "Inner.", "code": "invalid_prompt"}}'}}, InvalidRequest, "invalid_prompt", "Inner."),  # noqa: E501
    # an object that is not an error is part of the message
    (400, {"error": {"message": "{'temperature': 3} is not allowed"}}, InvalidRequest, None, "{'temperature': 3} is not allowed"),  # noqa: E501
    (400, {"error": {"message": "{'temperature': 3}"}}, InvalidRequest, None, "{'temperature': 3}"),
    (401, {"detail": "Not authenticated"}, NotAuthenticated, None, "Not authenticated"),
    # Mistral's message that is an object
    (422, {"object": "error", "message": {"detail": [{"msg": "No.", "type": "missing"}]}}, InvalidRequest, "missing", "No."),  # noqa: E501
    # Ollama's string
    (404, {"error": "model 'x' not found"}, NotFound, None, "model 'x' not found"),
    # a name and a message
    (400, {"statusCode": 400, "error": "Bad Request", "message": "model is required"}, InvalidRequest, "bad request", "model is required"),  # noqa: E501
    (401, {"error": "invalid_api_key", "message": "The key is wrong."}, NotAuthenticated, "invalid_api_key", "The key is wrong."),  # noqa: E501
    # OpenAI's invalid key: the type is unspecific, the code is specific
    (401, {"error": {"message": "Incorrect API key.", "type": "invalid_request_error", "code": "invalid_api_key"}}, NotAuthenticated, "invalid_api_key", "Incorrect API key."),  # noqa: E501
    (400, {"error": {"message": "No.", "type": "authentication_error", "code": "invalid_request"}}, NotAuthenticated, "invalid_request", "No."),  # noqa: E501
    # not JSON
    (500, b"Internal Server Error", ServerFailed, None, "Internal Server Error"),
    (500, b"", ServerFailed, None, "HTTP 500 with an empty body."),
    (502, b"<html><head><title>502 Bad\nGateway</title></head></html>", ServerFailed, None, "The gateway answered with \"502 Bad Gateway\" instead of JSON."),  # noqa: E501
    (502, b"<!DOCTYPE html><html></html>", ServerFailed, None, "The gateway answered with an HTML page instead of JSON."),  # noqa: E501
    (500, b'"No."', ServerFailed, None, "No."),
    (500, b"null", ServerFailed, None, "The gateway gave no reason."),
    (500, b"{}", ServerFailed, None, "The gateway gave no reason."),
    (500, {"error": {"code": "model_error"}}, ServerFailed, "model_error", "The gateway gave no message, only the code \"model_error\"."),  # noqa: E501
    # an event stream as the body of an error
    (500, b'event: error\ndata: {"error": {"message": "No.", "code": "500"}}\n\ndata: [DONE]\n\n', ServerFailed, "500", "No."),  # noqa: E501
    (500, b'data: {"type": "response.created", "response": {}}\r\n\r\ndata: {"type": "error", "error": {"message": "No."}}\r\n\r\n', ServerFailed, None, "No."),  # noqa: E501
    (500, b'\xef\xbb\xbf{"error": {"message": "No."}}', ServerFailed, None, "No."),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "code", "message"), SHAPES)
def test_an_error_of_any_shape_has_a_class_a_code_and_a_message(
    status: int, body: object, kind: type[BridgeError], code: str | None, message: str
) -> None:
    error = refuse(status, body)
    assert (type(error), error.status, error.code, error.message) == (kind, status, code, message)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((400, InvalidRequest), (401, NotAuthenticated), (402, NotPermitted), (403, NotPermitted)),
        *((404, NotFound), (405, InvalidRequest), (407, NotAuthenticated), (408, TimedOut)),
        *((409, Overloaded), (413, InvalidRequest), (422, InvalidRequest), (429, RateLimited)),
        *((500, ServerFailed), (502, ServerFailed), (503, Overloaded), (504, TimedOut), (529, Overloaded)),
    ],
)
def test_a_status_alone_determines_the_class(status: int, kind: type[BridgeError]) -> None:
    assert type(refuse(status, b"")) is kind


@pytest.mark.parametrize("code", BY_CODE)
def test_a_code_alone_determines_the_class(code: str) -> None:
    assert type(error_from({"error": {"code": code, "message": "No."}})) is BY_CODE[code]
    assert type(error_from({"error": {"type": code.upper(), "message": "No."}})) is BY_CODE[code]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_prompt", InvalidRequest),
        ("invalid_image_format", InvalidRequest),
        ("image_too_large", InvalidRequest),
        ("image_content_policy_violation", ContentFiltered),
        ("vector_store_timeout", TimedOut),
    ],
)
def test_the_codes_of_a_failed_response_are_in_the_table(code: str, kind: type[BridgeError]) -> None:
    assert type(error_from({"code": code, "message": "No."})) is kind


def test_a_specific_code_has_priority_over_the_status() -> None:
    filtered = {"error": {"message": "No.", "code": "content_filter"}}
    assert type(refuse(400, filtered)) is ContentFiltered


def test_a_status_has_priority_over_an_unspecific_code() -> None:
    assert type(refuse(429, {"error": {"message": "No.", "type": "invalid_request_error"}})) is RateLimited


def test_a_status_in_the_code_field_is_used_if_there_is_no_other() -> None:
    error = error_from({"error": {"message": "No.", "code": "429"}})
    assert (type(error), error.status) == (RateLimited, 429)


@pytest.mark.parametrize(
    ("upstream", "kind"),
    [(401, NotAuthenticated), (429, RateLimited), (503, Overloaded), (500, ServerFailed)],
)
def test_the_status_of_the_provider_in_a_message_determines_the_class(
    upstream: int, kind: type[BridgeError]
) -> None:
    # The error event of open-responses-server 0.4: the status of its provider is only in the message.
    payload = {"type": "error", "error": {"message": f"Error from LLM API: {upstream}"}}
    error = error_from(payload)
    assert (type(error), error.status) == (kind, upstream)
    assert type(refuse(500, payload)) is kind
    assert type(refuse(400, payload)) is InvalidRequest  # the server's own status is more specific


@pytest.mark.parametrize("field", ["param", "request_id", "generationId", "code", "type", "message"])
def test_every_text_of_an_error_has_a_limit(field: str) -> None:
    error = refuse(400, {"error": {"message": "No.", field: "x" * 100_000}}, {"x-request-id": "y" * 8000})
    texts = (error.message, error.code, error.param, error.request_id)
    assert max(len(text or "") for text in texts) <= MESSAGE_LIMIT + 1


def test_an_error_without_code_and_status_is_a_gateway_error() -> None:
    error = error_from({"error": {"message": "No."}})
    assert (type(error), error.status, error.code) == (GatewayError, None, None)


# Messages of real servers.
TOO_LONG: list[tuple[str, int | None, int | None]] = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9031 tokens. Please reduce the length of the messages.", 9031, 8192),  # noqa: E501
    ("This model's maximum context length is 8,192 tokens. However, you requested 10,000 tokens (9000 in the messages, 1000 in the completion).", 9000, 8192),  # noqa: E501
    ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 285012 tokens. Please reduce the length of the messages.", 285012, 272000),  # noqa: E501
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None, None),  # noqa: E501
    ("prompt is too long: 210194 tokens > 200000 maximum", 210194, 200000),
    ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again", 188240, 200000),  # noqa: E501
    ("This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens. Please reduce the length of the input messages.", 3000, 2048),  # noqa: E501
    ("You passed 5001 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4096 tokens.", 5001, 4096),  # noqa: E501
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 5000, 4096),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1200000, 1048576),  # noqa: E501
    ("The input token count exceeds the maximum number of tokens allowed 1048576.", None, 1048576),
    ("request (9031 tokens) exceeds the available context size (2048 tokens), try increasing it", 9031, 2048),
    ("the request exceeds the available context size, try increasing it", None, None),
    ("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens.\nmodel=x", 131072, 128000),  # noqa: E501
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537812, 131072),
    ("This endpoint's maximum context length is 40960 tokens. However, you requested about 50000 tokens (45000 of text input, 5000 in the output).", 45000, 40960),  # noqa: E501
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 40000, 32768),  # noqa: E501
    ("Input is too long for requested model.", None, None),
    # the output limit is not a part of the prompt
    ("This model's maximum context length is 8192 tokens. However, you requested 14800 tokens (6800 in the messages, 8000 in the completion). Please reduce the length of the messages or completion.", 6800, 8192),  # noqa: E501
    ("This model's maximum context length is 8,192 tokens. However, you requested 15,000 tokens (6,800 in the messages, 200 in the functions, and 8,000 in the completion).", 7000, 8192),  # noqa: E501
    ("This model's maximum context length is 4097 tokens, however you requested 4353 tokens (4097 in your prompt; 256 for the completion). Please reduce your prompt; or completion length.", 4097, 4097),  # noqa: E501
    ("This endpoint's maximum context length is 40960 tokens. However, you requested about 53000 tokens (45000 of text input, 3000 of tool input, 5000 in the output). Please reduce the length of either one.", 48000, 40960),  # noqa: E501
    ("This model's maximum context length is 4096 tokens. However, you requested 9000 output tokens and your prompt contains at least 1 input tokens, for a total of at least 9001 tokens.", None, 4096),  # noqa: E501
    ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.", None, 4096),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "tokens", "limit"), TOO_LONG)
def test_a_prompt_that_is_too_long_is_an_error_with_token_counts(
    sentence: str, tokens: int | None, limit: int | None
) -> None:
    error = refuse(400, {"error": {"message": sentence, "type": "invalid_request_error"}})
    assert isinstance(error, ContextTooLong)
    assert (error.tokens, error.limit) == (tokens, limit)
    assert error.message == sentence


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"),
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."),
        (429, "Rate limit reached: Limit 30000, Used 29000, Requested 2000 tokens per minute."),
        (400, "Invalid 'tools': array too long. Expected maximum length 128, got 200."),
    ],
)
def test_other_limits_are_not_context_window_errors(status: int, sentence: str) -> None:
    error = refuse(status, {"error": {"message": sentence, "type": "invalid_request_error"}})
    assert not isinstance(error, ContextTooLong)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"Retry-After": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"llm_provider-retry-after": "7"}, 7.0),
        ({"retry-after": "Mon, 16 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Monday, 16-Nov-26 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Mon Nov 16 12:00:30 2026"}, 30.0),
        ({"retry-after": "Mon, 16 Nov 2026 13:00:30 +0100"}, 30.0),
        ({"retry-after": "Mon, 16 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Mon, 16 Nov 2026 10:00:00 +99999999999999999"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_a_retry_delay_is_read_in_all_formats(headers: dict[str, str], seconds: float | None) -> None:
    assert refuse(429, b"", headers).retry_after == seconds


def test_an_error_event_can_contain_the_headers_of_the_provider() -> None:
    inner = {"message": "No.", "code": "rate_limit_exceeded", "headers": {"Retry-After": "3", "odd": 1}}
    assert error_from({"type": "error", "error": inner}).retry_after == 3.0


@pytest.mark.parametrize(
    ("headers", "body", "request_id"),
    [
        ({"X-Request-Id": "r1", "x-vercel-id": "v1"}, b"", "r1"),
        ({"request-id": "r2"}, b"", "r2"),
        ({"x-vercel-id": "v1"}, b"", "v1"),
        ({"x-request-id": "r1"}, b'{"error": {"message": "No."}, "generationId": "gen_1"}', "gen_1"),
        ({"x-request-id": "r1"}, b'{"error": {"message": "No."}, "request_id": "req_1"}', "req_1"),
        ({"x-request-id": "r1"}, b'{"error": {"message": "No."}, "request_id": 7}', "r1"),
        ({}, b"", None),
    ],
)
def test_the_request_id_is_read_from_the_headers(
    headers: dict[str, str], body: bytes, request_id: str | None
) -> None:
    assert refuse(500, body, headers).request_id == request_id


def test_a_prompt_in_a_message_is_truncated() -> None:
    prompt = "my secret diary " * 10_000
    for body in (
        {"error": {"message": f"Invalid prompt: {prompt}", "code": "invalid_prompt"}},
        {"detail": [{"loc": ["body", "input"], "msg": "Bad value", "type": "x", "input": prompt}]},
        {"error": {"code": prompt, "type": {"input": prompt}}},
        prompt,
    ):
        error = refuse(400, body)
        assert len(error.message) <= MESSAGE_LIMIT + 1
        assert len(error.code or "") <= CODE_LIMIT
    assert refuse(400, {"detail": [{"msg": "Bad value", "input": prompt}]}).message == "Bad value"


def test_a_message_is_always_printable() -> None:
    refuse(400, rb'{"error": {"message": "half \ud83d a face"}}').message.encode()


def test_an_error_body_is_limited_in_size() -> None:
    decoder = ErrorResponseDecoder(500, {"Retry-After": "4"})
    for _ in range(3):
        assert decoder.feed(b"x" * ERROR_BODY_LIMIT) == []
    (failed,) = decoder.close()
    assert isinstance(failed, Failed)
    assert failed.error.retry_after == 4.0
    assert len(failed.error.message) == MESSAGE_LIMIT + 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([*BY_CODE, "²", "400", ","]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "errors", "detail", "message", "msg", "loc", "code", "type", "status"])
            | st.sampled_from(["headers", "request_id", "generationId", "n_ctx", "n_prompt_tokens", "title"])
            | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "Retry-After-Ms", "x-request-id", "llm_provider-retry-after"])
    | st.text(),
    st.text() | st.sampled_from(["1 Jan 99999999999999999999 00:00:00 GMT", "²", "1e999", "-1", "0x1"]),
    max_size=4,
)
BODIES = (
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n")
    | JSON.map(lambda value: repr(value).encode("utf-8", "replace"))
    | JSON.map(lambda value: json.dumps({"error": {"message": repr(value)}}).encode())
)


def checked(error: BridgeError) -> None:
    assert isinstance(error, BridgeError)
    assert 0 < len(error.message) <= MESSAGE_LIMIT + 1
    assert error.code is None or 0 < len(error.code) <= CODE_LIMIT
    assert error.retry_after is None or 0 <= error.retry_after < float("inf")


@settings(max_examples=400, deadline=None)
@given(st.integers(400, 599), HEADERS, BODIES)
def test_no_bytes_and_no_headers_raise(status: int, headers: dict[str, str], body: bytes) -> None:
    checked(read_error_response(status, headers, body, now=NOW))


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_no_json_value_raises(payload: Any) -> None:
    checked(error_from(payload, now=NOW))


@settings(deadline=None)
@given(st.sampled_from(TOO_LONG), st.text(alphabet="0123456789,. tokensmaximum", max_size=40))
def test_no_message_about_token_limits_raises(known: tuple[str, int | None, int | None], odd: str) -> None:
    for sentence in (odd + known[0], known[0].replace("9", odd), known[0].replace("0", ",")):
        checked(refuse(400, {"error": {"message": sentence}}))


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"Internal\nError ", "The gateway's answer is not an event stream: Internal Error"),
        (b"x" * 10_000, f"The gateway's answer is not an event stream: {'x' * MESSAGE_LIMIT}…"),
        (b"<html><title>Log in</title>", 'The gateway\'s answer is not an event stream, but "Log in".'),
    ],
)
@pytest.mark.parametrize(
    "protocol", ["openresponses", "chat-completions", "anthropic-messages", "ai-sdk-model"]
)
def test_a_successful_response_of_plain_text_shows_the_text(
    body: bytes, message: str, step: int, protocol: str
) -> None:
    decoder = decoder_for(protocol)
    events = [
        event for start in range(0, len(body), step) for event in decoder.feed(body[start : start + step])
    ]
    failed = (events + decoder.close())[0]
    assert isinstance(failed, Failed)
    assert failed.error.message == message


@pytest.mark.parametrize("protocol", ["openresponses", "chat-completions", "anthropic-messages"])
def test_a_stream_without_json_shows_the_text(protocol: str) -> None:
    decoder = decoder_for(protocol)
    (failed,) = decoder.feed(b"data: no JSON\n\n") + decoder.close()
    assert isinstance(failed, Failed)
    assert failed.error.message == "The gateway's answer is not an event stream: data: no JSON"


def test_names_and_messages_of_events_have_limits() -> None:
    long = "x" * 100_000
    call, finished = ToolCall(long, long, {}), Finished("stop", response_id=long, model=long)
    texts = (call.call_id, call.name, finished.response_id, finished.model)
    assert [len(text or "") for text in texts] == [ID_LIMIT, NAME_LIMIT, ID_LIMIT, ID_LIMIT]
    assert len(GatewayError(long).message) < 3_000
