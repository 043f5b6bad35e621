"""How gateways say no: any status, headers and body become one error with a kind and a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tollbridge.core.errors import (
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
from tollbridge.core.events import Event, Failed

# Long enough for any sentence, too short for a prompt that a server quotes back.
MESSAGE_LIMIT = 600
# What is read of a refusal; an error page may be as long as it likes.
BODY_LIMIT = 1024 * 1024

BY_CODE: dict[str, type[BridgeError]] = {
    "access_denied": NotPermitted,
    "api_error": ServerFailed,
    "authentication_error": NotAuthenticated,
    "bad_request": InvalidRequest,
    "billing_error": NotPermitted,
    "content_filter": ContentFiltered,
    "content_filtered": ContentFiltered,
    "content_policy_violation": ContentFiltered,
    "context_length_exceeded": ContextTooLong,
    "context_window_exceeded": ContextTooLong,
    "engine_overloaded": Overloaded,
    "exceed_context_size_error": ContextTooLong,
    "failed_dependency": ServerFailed,
    "forbidden": NotPermitted,
    "insufficient_quota": RateLimited,
    "internal_error": ServerFailed,
    "internal_server_error": ServerFailed,
    "invalid_api_key": NotAuthenticated,
    "invalid_authentication": NotAuthenticated,
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
    "server_error": ServerFailed,
    "server_overloaded": Overloaded,
    "service_unavailable": Overloaded,
    "slow_down": RateLimited,
    "throttling_error": RateLimited,
    "timeout": TimedOut,
    "timeout_error": TimedOut,
    "too_many_requests": RateLimited,
    "unauthorized": NotAuthenticated,
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

# Most servers have no code of their own for a prompt that does not fit. These are their sentences, and the
# numbers in them: what the prompt came to, and what the model takes.
_TOO_LONG: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"request \((?P<tokens>[\d,]+) tokens\) exceeds the available context size \((?P<limit>[\d,]+)",
        r"prompt is too long: (?P<tokens>[\d,]+) tokens > (?P<limit>[\d,]+)",
        r"maximum context length is (?P<limit>[\d,]+) tokens.*?(?:requested|resulted in|contains at least"
        r"|your (?:messages|prompt)[^\d]*) ?(?P<tokens>[\d,]+)",
        r"input token count \(?(?P<tokens>[\d,]+)\)? exceeds the maximum[^\d]*(?P<limit>[\d,]+)",
        r"(?P<tokens>[\d,]+) (?:input )?tokens?,? (?:but|which|and)[^\d]{0,60}(?:limit|maximum|window)"
        r"[^\d]{0,30}(?P<limit>[\d,]+)",
        r"(?:input|prompt) is too long",
        r"input length and `?max_tokens`? exceed context",
        r"exceeds? (?:the|this|its) (?:model'?s? )?(?:maximum )?(?:context|prompt) (?:length|window|size)",
        r"maximum context length",
        r"context (?:length|window) (?:was )?exceeded",
    )
)

# The type of the event around an error says nothing of the error.
_NOT_CODES = {"", "error", "response.failed"}

_REQUEST_ID = ("x-request-id", "request-id", "x-vercel-id", "x-litellm-call-id", "x-correlation-id")
_RETRY_AFTER = ("retry-after", "llm_provider-retry-after")
_TITLE = re.compile(rb"<title[^>]*>\s*([^<]{1,200}?)\s*</title>", re.IGNORECASE)


def read_refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None
) -> BridgeError:
    """The error that an HTTP answer with an error status, or with an error inside, stands for."""
    payload = _payload(body)
    if isinstance(payload, str):
        payload = {"message": payload or f"The gateway answered with HTTP {status} and nothing else."}
    error = error_from(payload, status=status)
    error.request_id = error.request_id or next((headers[h] for h in _REQUEST_ID if h in headers), None)
    error.retry_after = _wait(headers, now or datetime.now(UTC)) or error.retry_after
    return error


def error_from(payload: object, *, status: int | None = None) -> BridgeError:
    """The error that a JSON value stands for: nested, flat, a list, `detail`, or a plain string."""
    fields = _fields(payload)
    codes = [str(fields[name]).lower() for name in ("code", "type") if fields.get(name) is not None]
    codes = [code for code in codes if code not in _NOT_CODES]
    message = _sentence(fields, codes)
    if status is None:  # some servers give the status as the code
        status = next((int(code) for code in codes if code.isdigit() and 400 <= int(code) < 600), None)
    kind = _kind(codes, status, message)
    code = next((code for code in codes if not code.isdigit()), codes[0] if codes else None)
    request_id = _text(fields.get("request_id")) or _text(fields.get("generationId"))
    if kind is ContextTooLong:
        tokens, limit = _numbers(fields, message)
        return ContextTooLong(
            message, tokens=tokens, limit=limit, status=status, code=code, request_id=request_id
        )
    return kind(message, status=status, code=code, request_id=request_id)


def _kind(codes: list[str], status: int | None, message: str) -> type[BridgeError]:
    said = next((BY_CODE[code] for code in codes if code in BY_CODE), None)
    if said is not None and said not in _GENERAL:
        return said
    if status not in (401, 403, 404, 429) and any(pattern.search(message) for pattern in _TOO_LONG):
        return ContextTooLong
    if status in BY_STATUS:
        return BY_STATUS[status]
    if said is not None:
        return said
    if status is None:
        return GatewayError
    return InvalidRequest if 400 <= status < 500 else ServerFailed


def _numbers(fields: Mapping[str, Any], message: str) -> tuple[int | None, int | None]:
    tokens, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(tokens, int) and isinstance(limit, int):
        return tokens, limit
    for pattern in _TOO_LONG:
        found = pattern.search(message)
        if found and "tokens" in pattern.groupindex:
            return int(found["tokens"].replace(",", "")), int(found["limit"].replace(",", ""))
    return None, None


def _payload(body: bytes) -> object:
    """The JSON value of a body, also of one framed as an event stream; else its text in one line."""
    stripped = body.strip().removeprefix(b"\xef\xbb\xbf")
    for candidate in (stripped, *re.findall(rb"(?m)^data: ?(.*?)\r?$", stripped)):
        try:
            return json.loads(candidate.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
    if stripped[:1] == b"<":
        title = _TITLE.search(stripped)
        page = f"“{title[1].decode('utf-8', 'replace')}”" if title else "an HTML page"
        return f"The gateway answered with {page} instead of JSON."
    return " ".join(stripped.decode("utf-8", "replace").split())


def _fields(payload: object) -> dict[str, Any]:
    """The innermost object that says something: `{"error": {...}}`, a list of errors, FastAPI's `detail`."""
    fields: dict[str, Any] = {}
    for _ in range(8):  # deeper than any server nests
        if isinstance(payload, dict):
            inner = next((payload[key] for key in ("error", "errors", "detail") if payload.get(key)), None)
            fields = {**fields, **payload}
            if inner is None:
                return fields
            payload = inner
        elif isinstance(payload, list) and payload:
            payload = payload[0]
        else:
            break
    if isinstance(payload, str) and payload:
        fields["message"] = payload
    return fields


def _sentence(fields: Mapping[str, Any], codes: list[str]) -> str:
    for name in ("message", "msg", "error_description", "title"):
        message = _text(fields.get(name))
        if message:
            place = fields.get("loc")
            if name == "msg" and isinstance(place, list):
                message = f"{message} at {'.'.join(map(str, place))}"
            return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "…"
    return f"The gateway gave no message, only “{codes[0]}”." if codes else "The gateway gave no reason."


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait, from `Retry-After` as seconds or as a date, or from its milliseconds form."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = next((headers[name] for name in _RETRY_AFTER if name in headers), None)
        if value is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            return float(value)
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


class RefusalDecoder:
    """Reads the body of an answer with an error status. Belongs to one answer, as every decoder does."""

    over = False

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        if len(self._body) < BODY_LIMIT:
            self._body += chunk[: BODY_LIMIT - len(self._body)]
        return []

    def close(self) -> list[Event]:
        return [Failed(read_refusal(self._status, self._headers, bytes(self._body)))]
