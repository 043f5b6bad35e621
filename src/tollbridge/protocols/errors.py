"""Convert the error responses of gateways to exceptions.

`read_error_response` and `error_from` choose the exception class by the error code, then by the HTTP status,
each in a table. Prompts that do not fit the context window are also recognized by their message, because some
servers have no code for this error; `read_token_counts` extracts the numbers from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

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
from tollbridge.types.events import Event, Failed

# The tokens of the prompt, and the maximum of the model.
_TOKENS, _LIMIT = r"(?P<tokens>\d[\d,]*)", r"(?P<limit>\d[\d,]*)"
TOO_LONG_PATTERNS = (
    rf"request \({_TOKENS} tokens\) exceeds the available context size \({_LIMIT}",
    rf"prompt is too long: {_TOKENS} tokens > {_LIMIT}",
    rf"`?max_tokens`? exceed context limit: {_TOKENS} \+ [\d,]+ > {_LIMIT}",
    rf"passed {_TOKENS} input tokens.*?context length is only {_LIMIT}",
    rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_LIMIT}",
    rf"prompt contains {_TOKENS} tokens.*?too large for model with {_LIMIT}",
    # A number of `requested` tokens includes the output limit, and `at least` is not an exact number:
    # neither is used.
    rf"(?:maximum (?:context|prompt) length is|configured limit of|context length of only) {_LIMIT}"
    rf"(?:.*?(?:resulted in|contains|request has|your (?:messages|prompt)(?:(?!at least)[^\d])*)"
    rf"(?: about)? ?{_TOKENS})?",
    rf"input token count \(?{_TOKENS}\)? exceeds the maximum[^\d]*{_LIMIT}",
    rf"input token count exceeds the maximum[^\d]*{_LIMIT}",
    rf"{_TOKENS} (?:input )?tokens?,? (?:but|which|and)[^\d]{{0,60}}(?:limit|maximum|window)"
    rf"[^\d]{{0,30}}{_LIMIT}",
    r"(?:input|prompt) is too long",
    r"input length and `?max_tokens`? exceed context",
    r"exceeds? (?:the|this|its) (?:available |model'?s? )?(?:maximum )?(?:context|prompt) "
    r"(?:length|window|size)",
    r"maximum context length",
    r"context (?:length|window) (?:was )?exceeded",
)
# For example "(6800 in the messages, 200 in the functions, and 8000 in the completion)".
_BREAKDOWN = re.compile(r"\(([^()]*\b(?:completion|output)\b[^()]*)\)", re.IGNORECASE)
_BREAKDOWN_ENTRY = re.compile(r"(\d(?:[\d,]*\d)?) ([^\d,;]+)")
_OUTPUT = re.compile(r"\b(?:completion|output)\b", re.IGNORECASE)
_INCLUDES_OUTPUT = re.compile(r"\b(?:requested|max_tokens|completion|output)\b", re.IGNORECASE)


def _find_too_long(pattern: str, message: str) -> re.Match[str] | None:
    # The patterns are compiled on first use: most programs never see such a message.
    return re.search(pattern, message, re.IGNORECASE | re.DOTALL)


def read_token_counts(fields: Mapping[str, Any], message: str) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt, without those reserved for the output, and the limit of the model."""
    tokens, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(tokens, int) and isinstance(limit, int):
        return tokens, limit
    for pattern in TOO_LONG_PATTERNS:
        match = _find_too_long(pattern, message)
        if match and match.groupdict():
            groups = match.groupdict()
            tokens = _sum_breakdown(message) or _parse_number(groups.get("tokens"))
            return tokens, _parse_number(groups.get("limit"))
    return None, None


def _sum_breakdown(message: str) -> int | None:
    """Return the sum of the prompt's entries in a breakdown, if the message contains one."""
    breakdown = _BREAKDOWN.search(message)
    entries = _BREAKDOWN_ENTRY.findall(breakdown[1]) if breakdown else []
    return sum(_parse_number(digits) or 0 for digits, label in entries if not _OUTPUT.search(label)) or None


def _parse_number(digits: str | None) -> int | None:
    return int(digits.replace(",", "")) if digits else None


# Longer messages are truncated: some servers quote the prompt in the message. All patterns above are applied
# to truncated messages only, because some of them take time in proportion to the square of the length.
MESSAGE_LIMIT = 600
# Longer codes, parameter names and request ids are truncated; a longer retry delay is ignored.
CODE_LIMIT = 100
PARAM_LIMIT = 200
REQUEST_ID_LIMIT = 200
_DELAY_LIMIT = 100
# The maximum number of bytes that are read of an error response, and of an HTML page to find its title.
ERROR_BODY_LIMIT = 1024 * 1024
# The first bytes of a successful response that are kept for the error if it is neither a stream nor JSON.
HEAD_LIMIT = 4096
_PAGE_LIMIT = 64 * 1024
_TITLE_LIMIT = 200
# The maximum number of characters of an error inside a message, of entries in a list of errors, and of steps
# in the path to an invalid value.
_EMBEDDED_LIMIT = 20_000
_ENTRY_LIMIT = 1_000
_PATH_LIMIT = 20

# The error codes of each class. `no_db_connection` is sent by LiteLLM without a database, for any key but the
# master key.
_CODES: dict[type[BridgeError], str] = {
    ContentFiltered: "bio_policy content_filter content_filtered content_policy_violation "
    "image_content_policy_violation moderation_blocked",
    ContextTooLong: "context_length_exceeded context_window_exceeded exceed_context_size_error",
    InvalidRequest: "bad_request empty_image_file failed_to_download_image image_file_not_found "
    "image_file_too_large image_parse_error image_too_large image_too_small invalid_argument "
    "invalid_base64_image invalid_image invalid_image_format invalid_image_mode "
    "invalid_image_url invalid_prompt invalid_request invalid_request_error "
    "unsupported_image_media_type",
    NotAuthenticated: "authentication_error invalid_api_key invalid_authentication no_db_connection "
    "unauthenticated unauthorized",
    NotFound: "model_not_found not_found not_found_error",
    NotPermitted: "access_denied billing_error forbidden permission_denied permission_error",
    Overloaded: "engine_overloaded overloaded overloaded_error server_overloaded service_unavailable "
    "unavailable",
    RateLimited: "insufficient_quota rate_limit_error rate_limit_exceeded resource_exhausted slow_down "
    "throttling_error too_many_requests",
    ServerFailed: "api_error failed_dependency internal internal_error internal_server_error model_error "
    "server_error",
    TimedOut: "deadline_exceeded request_timeout timeout timeout_error vector_store_timeout",
}
BY_CODE = {code: cls for cls, codes in _CODES.items() for code in codes.split()}

BY_STATUS: dict[int, type[BridgeError]] = {
    401: NotAuthenticated,
    402: NotPermitted,  # out of credits
    403: NotPermitted,
    404: NotFound,
    407: NotAuthenticated,  # sent by a proxy
    408: TimedOut,
    409: Overloaded,  # conflict with another request; a retry can succeed
    424: ServerFailed,
    429: RateLimited,
    503: Overloaded,
    504: TimedOut,
    529: Overloaded,
}

# For these classes, the status or the message can be more specific than the code.
_UNSPECIFIC = {InvalidRequest, ServerFailed}

# The fields for the message, the most specific first.
_MESSAGE_NAMES = ("message", "msg", "error_description", "title")

# Types of the event that contains an error; they do not describe the error.
_NOT_CODES = {"", "error", "response.failed"}

_REQUEST_ID = ("x-request-id", "request-id", "x-vercel-id", "x-litellm-call-id", "x-correlation-id")
_RETRY_AFTER = ("retry-after", "llm_provider-retry-after")
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
# The status of a provider, in the messages of open-responses-server and of OpenAI's Python client.
_UPSTREAM_STATUS = re.compile(r"\b(?:Error from LLM API|Error code): ([45]\d\d)\b", re.ASCII)
# What can precede an error object inside a message, such as "Error code: 400 - {'error': {…".
_BEFORE_EMBEDDED = re.compile(r"\s{0,9}(?:Error code: )?(?:[45]\d\d(?:: | - ))?(?=[\[{])", re.ASCII)


def read_error_response(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None
) -> BridgeError:
    """Return the exception for an HTTP response with an error status, or with an error in its body.

    The body can have any format. `now` is the current time, to convert a `Retry-After` date to seconds.
    """
    payload = _parse_body(body)
    if isinstance(payload, str):
        payload = {"message": payload or f"HTTP {status} with an empty body."}
    error = error_from(payload, status=status, now=now)
    _apply_headers(error, headers, now)
    return error


def error_from(payload: object, *, status: int | None = None, now: datetime | None = None) -> BridgeError:
    """Return the exception for a JSON error.

    `payload` is a nested or flat object, a list of errors, an object with `detail`, or a string.
    """
    fields = _flatten(payload)
    codes = _read_codes(fields)
    message = _read_message(fields, codes)
    if status is None:  # some servers send the status as the code
        status = next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    upstream = _UPSTREAM_STATUS.search(_text(fields.get("message")) or "", 0, MESSAGE_LIMIT)
    if upstream and (status is None or status >= 500):
        status = int(upstream[1])
    error_class = _choose_class(codes, status, message)
    code = next((code for code in codes if not code.isdigit()), codes[0] if codes else None)
    error = error_class(message, status=status, code=code, param=_text(fields.get("param"), PARAM_LIMIT))
    if isinstance(error, ContextTooLong):
        error.tokens, error.limit = read_token_counts(fields, message)
        # Whether the number of tokens that did not fit includes, or can include, the output limit.
        error.shared = _INCLUDES_OUTPUT.search(message) is not None
    ids = (_text(fields.get(name), REQUEST_ID_LIMIT) for name in ("request_id", "generationId"))
    error.request_id = next((id_ for id_ in ids if id_), None)
    headers = fields.get("headers")  # the headers of the gateway's provider
    if isinstance(headers, dict):
        _apply_headers(error, {name: value for name, value in headers.items() if isinstance(value, str)}, now)
    return error


def _apply_headers(error: BridgeError, headers: Mapping[str, str], now: datetime | None) -> None:
    """Set the request id, unless the body contained one, and the retry delay."""
    values = {name.lower(): value for name, value in headers.items()}
    ids = (values[name][:REQUEST_ID_LIMIT] for name in _REQUEST_ID if values.get(name))
    error.request_id = error.request_id or next(ids, None)
    delay = _read_retry_delay(values, now or datetime.now(UTC))
    error.retry_after = error.retry_after if delay is None else delay


def _read_codes(fields: Mapping[str, Any]) -> list[str]:
    """Return the error codes, the most reliable first."""
    values = [str(fields[name]) for name in ("code", "type") if isinstance(fields.get(name), (str, int))]
    codes = [value[:CODE_LIMIT].lower() for value in values if value.lower() not in _NOT_CODES]
    status = _text(fields.get("status"))  # Google's field for the code; other servers: the response status
    return [*codes, status.lower()] if status and status.lower() in BY_CODE else codes


def _choose_class(codes: list[str], status: int | None, message: str) -> type[BridgeError]:
    classes = [BY_CODE[code] for code in codes if code in BY_CODE]
    by_code = next((cls for cls in classes if cls not in _UNSPECIFIC), classes[0] if classes else None)
    if by_code is not None and by_code not in _UNSPECIFIC:
        return by_code
    is_specific = status in (401, 403, 404, 429)
    if not is_specific and any(_find_too_long(pattern, message) for pattern in TOO_LONG_PATTERNS):
        return ContextTooLong
    if status in BY_STATUS:
        return BY_STATUS[status]
    if by_code is not None:
        return by_code
    if status is None:
        return GatewayError
    return InvalidRequest if 400 <= status < 500 else ServerFailed


def _parse_body(body: bytes) -> object:
    """Return the JSON value of a body, which can be an event stream; else its text as one line."""
    content = body.strip().removeprefix(b"\xef\xbb\xbf")
    values: list[object] = []
    for candidate in (content, *re.findall(rb"(?m)^data: ?(.*?)\r?$", content)):
        try:
            values.append(json.loads(candidate.decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            continue
    if values:  # prefer the event with a message
        return next((value for value in values if "message" in _flatten(value)), values[0])
    if content[:1] == b"<":
        return f"The gateway answered with {_describe_page(content)} instead of JSON."
    return " ".join(content.decode("utf-8", "replace").split())


def describe_body(body: bytes) -> str:
    """Return a sentence about a body that is neither a stream nor JSON, with the first part of its text."""
    content = body.strip()
    if content[:1] == b"<":
        return f"The gateway's answer is not an event stream, but {_describe_page(content)}."
    text = " ".join(content.decode("utf-8", "replace").split())
    text = text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + "…"
    # No quotation marks: a key at the end of a truncated message is found only directly before the ellipsis.
    return f"The gateway's answer is not an event stream: {text}"


def _describe_page(page: bytes) -> str:
    """Return the title of an HTML page in quotation marks, on one line. A very long title is left out."""
    page = page[:_PAGE_LIMIT]
    lowered = page.lower()
    start = lowered.find(b"<title")
    text = page[lowered.find(b">", start) + 1 :].partition(b"<")[0] if start >= 0 else b""
    title = " ".join(text.decode("utf-8", "replace").split()) if len(text) <= _TITLE_LIMIT else ""
    return f'"{title}"' if title else "an HTML page"


def _flatten(payload: object) -> dict[str, Any]:
    """Merge the fields of nested error objects: `{"error": {...}}`, a list of errors, FastAPI's `detail`."""
    fields: dict[str, Any] = {}
    for _ in range(8):  # more levels than any known server uses
        if isinstance(payload, dict):
            inner = next((payload[key] for key in ("error", "errors", "detail") if payload.get(key)), None)
            if inner is None:
                inner = _read_embedded(payload.get("message"))
                if inner is not None:  # it replaces the text that contains it
                    payload = {name: value for name, value in payload.items() if name != "message"}
            fields = {**fields, **payload}
            if inner is None:
                return fields
            payload = inner
        elif isinstance(payload, list) and payload:
            # The entries of FastAPI are one per alternative of a union. The deepest one is the most specific.
            payload = max(payload[:_ENTRY_LIMIT], key=_depth)
        elif (embedded := _read_embedded(payload)) is not None:
            payload = embedded
        else:
            break
    if isinstance(payload, str) and payload:
        if _text(fields.get("message")):  # if there is a message, the string is the error code
            fields.setdefault("code", payload)
        else:
            fields["message"] = payload
    return fields


def _depth(entry: object) -> int:
    """Return the length of the path in an entry of FastAPI's `detail`; 0 for other entries."""
    path = entry.get("loc") if isinstance(entry, dict) else None
    return len(path) if isinstance(path, list | tuple) else 0


def _read_embedded(message: object) -> dict[str, Any] | list[Any] | None:
    """Return the error in a message that is an object, or the text of one in JSON or Python syntax."""
    if isinstance(message, dict | list):
        return message or None
    if not isinstance(message, str) or len(message) > _EMBEDDED_LIMIT:
        return None
    start = _BEFORE_EMBEDDED.match(message)
    if start is None:
        return None
    text = message[start.end() :]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _read_python(text)
    # An object without a message would hide the text that it is part of.
    has_message = isinstance(value, dict | list) and not _flatten(value).keys().isdisjoint(_MESSAGE_NAMES)
    return value if has_message else None


def _read_python(text: str) -> object:
    """Return the value of a Python literal: some servers send the `repr` of an error."""
    import ast  # not at the top: few errors need it, and it takes longer to import than this module
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None


def _read_message(fields: Mapping[str, Any], codes: list[str]) -> str:
    for name in _MESSAGE_NAMES:
        message = _text(fields.get(name))
        if message:
            location = fields.get("loc")
            if name == "msg" and isinstance(location, list | tuple):
                message = f"{message} at {'.'.join(map(str, location[:_PATH_LIMIT]))}"
            message = message.encode("utf-8", "replace").decode()  # lone surrogates cannot be printed
            return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "…"
    if codes:
        return f'The gateway gave no message, only the code "{codes[0]}".'
    return "The gateway gave no reason."


def _text(value: object, limit: int | None = None) -> str | None:
    return value[:limit] if isinstance(value, str) and value.strip() else None


def _read_retry_delay(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait, from `Retry-After` (seconds or a date) or `Retry-After-Ms`."""
    for name, unit in (("retry-after-ms", 1000), *((name, 1) for name in _RETRY_AFTER)):
        value = headers.get(name, "").strip()
        if len(value) > _DELAY_LIMIT:
            continue
        seconds = float(value) / unit if _NUMBER.fullmatch(value) else _seconds_until(value, now)
        if seconds is not None and math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        # The oldest of the three date formats has no time zone; HTTP dates are in GMT.
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class ErrorResponseDecoder:
    """Decodes the body of one response with an error status to a `Failed` event."""

    is_finished = False
    unknown: Mapping[str, int] = {}
    billing = None

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self._headers = headers
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        if len(self._body) < ERROR_BODY_LIMIT:
            self._body += chunk[: ERROR_BODY_LIMIT - len(self._body)]
        return []

    def close(self) -> list[Event]:
        return [Failed(read_error_response(self._status, self._headers, bytes(self._body)))]
