"""How gateways say no: any status, headers and body become one error with a kind and a sentence."""

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

# SECTION Prompts that do not fit, by the sentences of servers that have no code for it, and the numbers in them.

# What the prompt came to, and what the model takes.
_TOKENS, _LIMIT = r"(?P<tokens>\d[\d,]*)", r"(?P<limit>\d[\d,]*)"
_SENTENCES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"request \({_TOKENS} tokens\) exceeds the available context size \({_LIMIT}",
        rf"prompt is too long: {_TOKENS} tokens > {_LIMIT}",
        rf"`?max_tokens`? exceed context limit: {_TOKENS} \+ [\d,]+ > {_LIMIT}",
        rf"passed {_TOKENS} input tokens.*?context length is only {_LIMIT}",
        rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_LIMIT}",
        rf"prompt contains {_TOKENS} tokens.*?too large for model with {_LIMIT}",
        # What was `requested` is no number of the prompt: the answer's share is in it. Nor is an `at least`.
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
)
# "(6800 in the messages, 200 in the functions, and 8000 in the completion)": whose share each number is.
_SHARES = re.compile(r"\(([^()]*\b(?:completion|output)\b[^()]*)\)", re.IGNORECASE)
_SHARE = re.compile(r"(\d(?:[\d,]*\d)?) ([^\d,;]+)")
_ANSWER = re.compile(r"\b(?:completion|output)\b", re.IGNORECASE)
_WITH_ANSWER = re.compile(r"\b(?:requested|max_tokens|completion|output)\b", re.IGNORECASE)


def is_too_long(message: str) -> bool:
    return any(sentence.search(message) for sentence in _SENTENCES)


def read_numbers(fields: Mapping[str, Any], message: str) -> tuple[int | None, int | None]:
    """What the prompt came to, without what was kept for the answer, and what the model takes."""
    tokens, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(tokens, int) and isinstance(limit, int):
        return tokens, limit
    for sentence in _SENTENCES:
        found = sentence.search(message)
        if found and found.groupdict():
            said = found.groupdict()
            return _shares(message) or _number(said.get("tokens")), _number(said.get("limit"))
    return None, None


def is_shared(message: str) -> bool:
    """Whether the answer's share is, or may be, a part of what did not fit."""
    return _WITH_ANSWER.search(message) is not None


def _shares(message: str) -> int | None:
    listed = _SHARES.search(message)
    shares = _SHARE.findall(listed[1]) if listed else []
    return sum(_number(digits) or 0 for digits, of in shares if not _ANSWER.search(of)) or None


def _number(digits: str | None) -> int | None:
    return int(digits.replace(",", "")) if digits else None


# SECTION How gateways say no: any status, headers and body become one error with a kind and a sentence.

# Long enough for any sentence, too short for a prompt that a server quotes back.
MESSAGE_LIMIT = 600
# Codes are words; what is longer is something else.
CODE_LIMIT = 100
# What is read of a refusal; an error page may be as long as it likes.
ERROR_BODY_LIMIT = 1024 * 1024

BY_CODE: dict[str, type[BridgeError]] = {
    "access_denied": NotPermitted,
    "api_error": ServerFailed,
    "authentication_error": NotAuthenticated,
    "bad_request": InvalidRequest,
    "billing_error": NotPermitted,
    "bio_policy": ContentFiltered,
    "content_filter": ContentFiltered,
    "content_filtered": ContentFiltered,
    "content_policy_violation": ContentFiltered,
    "context_length_exceeded": ContextTooLong,
    "context_window_exceeded": ContextTooLong,
    "deadline_exceeded": TimedOut,
    "empty_image_file": InvalidRequest,
    "engine_overloaded": Overloaded,
    "exceed_context_size_error": ContextTooLong,
    "failed_dependency": ServerFailed,
    "failed_to_download_image": InvalidRequest,
    "forbidden": NotPermitted,
    "image_content_policy_violation": ContentFiltered,
    "image_file_not_found": InvalidRequest,
    "image_file_too_large": InvalidRequest,
    "image_parse_error": InvalidRequest,
    "image_too_large": InvalidRequest,
    "image_too_small": InvalidRequest,
    "insufficient_quota": RateLimited,
    "internal": ServerFailed,
    "internal_error": ServerFailed,
    "internal_server_error": ServerFailed,
    "invalid_api_key": NotAuthenticated,
    "invalid_argument": InvalidRequest,
    "invalid_authentication": NotAuthenticated,
    "invalid_base64_image": InvalidRequest,
    "invalid_image": InvalidRequest,
    "invalid_image_format": InvalidRequest,
    "invalid_image_mode": InvalidRequest,
    "invalid_image_url": InvalidRequest,
    "invalid_prompt": InvalidRequest,
    "invalid_request": InvalidRequest,
    "invalid_request_error": InvalidRequest,
    "model_error": ServerFailed,
    "model_not_found": NotFound,
    "moderation_blocked": ContentFiltered,
    "not_found": NotFound,
    "not_found_error": NotFound,
    "overloaded": Overloaded,
    "overloaded_error": Overloaded,
    "permission_denied": NotPermitted,
    "permission_error": NotPermitted,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "request_timeout": TimedOut,
    "resource_exhausted": RateLimited,
    "server_error": ServerFailed,
    "server_overloaded": Overloaded,
    "service_unavailable": Overloaded,
    "slow_down": RateLimited,
    "throttling_error": RateLimited,
    "timeout": TimedOut,
    "timeout_error": TimedOut,
    "too_many_requests": RateLimited,
    "unauthenticated": NotAuthenticated,
    "unauthorized": NotAuthenticated,
    "unavailable": Overloaded,
    "unsupported_image_media_type": InvalidRequest,
    "vector_store_timeout": TimedOut,
}

BY_STATUS: dict[int, type[BridgeError]] = {
    401: NotAuthenticated,
    402: NotPermitted,  # out of credits
    403: NotPermitted,
    404: NotFound,
    407: NotAuthenticated,  # the proxy's
    408: TimedOut,
    409: Overloaded,  # another request holds what this one needs; it may be sent again
    424: ServerFailed,
    429: RateLimited,
    503: Overloaded,
    504: TimedOut,
    529: Overloaded,
}

# A code so general that a status, or the numbers in the message, may know better.
_GENERAL = {InvalidRequest, ServerFailed}

# The type of the event around an error says nothing of the error.
_NOT_CODES = {"", "error", "response.failed"}

_REQUEST_ID = ("x-request-id", "request-id", "x-vercel-id", "x-litellm-call-id", "x-correlation-id")
_RETRY_AFTER = ("retry-after", "llm_provider-retry-after")
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_TITLE = re.compile(rb"<title[^>]*>\s*([^<]{1,200}?)\s*</title>", re.IGNORECASE)


def read_error_response(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None
) -> BridgeError:
    """The error that an HTTP answer with an error status, or with an error inside, stands for."""
    payload = _payload(body)
    if isinstance(payload, str):
        payload = {"message": payload or f"The gateway answered with HTTP {status} and nothing else."}
    error = error_from(payload, status=status, now=now)
    _complete(error, headers, now)
    return error


def error_from(payload: object, *, status: int | None = None, now: datetime | None = None) -> BridgeError:
    """The error that a JSON value stands for: nested, flat, a list, `detail`, or a plain string."""
    fields = _fields(payload)
    codes = _codes(fields)
    message = _sentence(fields, codes)
    if status is None:  # some servers give the status as the code
        status = next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    kind = _kind(codes, status, message)
    code = next((code for code in codes if not code.isdigit()), codes[0] if codes else None)
    error = kind(message, status=status, code=code, param=_text(fields.get("param")))
    if isinstance(error, ContextTooLong):
        error.tokens, error.limit = read_numbers(fields, message)
        error.shared = is_shared(message)
    error.request_id = _text(fields.get("request_id")) or _text(fields.get("generationId"))
    headers = fields.get("headers")  # of the provider behind the gateway
    if isinstance(headers, dict):
        _complete(error, {name: value for name, value in headers.items() if isinstance(value, str)}, now)
    return error


def _complete(error: BridgeError, headers: Mapping[str, str], now: datetime | None) -> None:
    """What the headers know and the body did not say."""
    known = {name.lower(): value for name, value in headers.items()}
    error.request_id = error.request_id or next((known[h] for h in _REQUEST_ID if known.get(h)), None)
    wait = _wait(known, now or datetime.now(UTC))
    error.retry_after = error.retry_after if wait is None else wait


def _codes(fields: Mapping[str, Any]) -> list[str]:
    """The words for machines, the surest first."""
    codes = [str(fields[name]) for name in ("code", "type") if isinstance(fields.get(name), (str, int))]
    found = [code[:CODE_LIMIT].lower() for code in codes if code.lower() not in _NOT_CODES]
    status = _text(fields.get("status"))  # Google's word; elsewhere it says how far an answer has come
    return [*found, status.lower()] if status and status.lower() in BY_CODE else found


def _kind(codes: list[str], status: int | None, message: str) -> type[BridgeError]:
    meant = [BY_CODE[code] for code in codes if code in BY_CODE]
    said = next((kind for kind in meant if kind not in _GENERAL), meant[0] if meant else None)
    if said is not None and said not in _GENERAL:
        return said
    if status not in (401, 403, 404, 429) and is_too_long(message):
        return ContextTooLong
    if status in BY_STATUS:
        return BY_STATUS[status]
    if said is not None:
        return said
    if status is None:
        return GatewayError
    return InvalidRequest if 400 <= status < 500 else ServerFailed


def _payload(body: bytes) -> object:
    """The JSON value of a body, also of one framed as an event stream; else its text in one line."""
    stripped = body.strip().removeprefix(b"\xef\xbb\xbf")
    found: list[object] = []
    for candidate in (stripped, *re.findall(rb"(?m)^data: ?(.*?)\r?$", stripped)):
        try:
            found.append(json.loads(candidate.decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            continue
    if found:  # of a stream's events, the one that says what went wrong
        return next((value for value in found if "message" in _fields(value)), found[0])
    if stripped[:1] == b"<":
        title = _TITLE.search(stripped)
        page = f"“{' '.join(title[1].decode('utf-8', 'replace').split())}”" if title else "an HTML page"
        return f"The gateway answered with {page} instead of JSON."
    return " ".join(stripped.decode("utf-8", "replace").split())


def _fields(payload: object) -> dict[str, Any]:
    """The innermost object that says something: `{"error": {...}}`, a list of errors, FastAPI's `detail`."""
    fields: dict[str, Any] = {}
    for _ in range(8):  # deeper than any server nests
        if isinstance(payload, dict):
            inner = next((payload[key] for key in ("error", "errors", "detail") if payload.get(key)), None)
            if inner is None and isinstance(payload.get("message"), (dict, list)):
                inner = payload["message"]
            fields = {**fields, **payload}
            if inner is None:
                return fields
            payload = inner
        elif isinstance(payload, list) and payload:
            payload = payload[0]
        else:
            break
    if isinstance(payload, str) and payload:
        if _text(fields.get("message")):  # beside a sentence, it is the name of the error
            fields.setdefault("code", payload)
        else:
            fields["message"] = payload
    return fields


def _sentence(fields: Mapping[str, Any], codes: list[str]) -> str:
    for name in ("message", "msg", "error_description", "title"):
        message = _text(fields.get(name))
        if message:
            place = fields.get("loc")
            if name == "msg" and isinstance(place, list):
                message = f"{message} at {'.'.join(map(str, place))}"
            message = message.encode("utf-8", "replace").decode()  # half a character cannot be printed
            return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "…"
    return f"The gateway gave no message, only “{codes[0]}”." if codes else "The gateway gave no reason."


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait, from `Retry-After` as seconds or as a date, or from its milliseconds form."""
    for name, unit in (("retry-after-ms", 1000), *((name, 1) for name in _RETRY_AFTER)):
        value = headers.get(name, "").strip()
        seconds = float(value) / unit if _NUMBER.fullmatch(value) else _until(value, now)
        if seconds is not None and math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        # The oldest of the three forms names no zone; HTTP's dates are in GMT.
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class ErrorResponseDecoder:
    """Reads the body of an answer with an error status. Belongs to one answer, as every decoder does."""

    over = False
    unknown: Mapping[str, int] = {}

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
