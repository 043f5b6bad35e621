"""What can be sent in place of an answer: refusals in every shape that servers give them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any

import msgspec

from tollbridge.gateway.refusals import Refused

RETRY_AFTER = 1  # seconds


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}


MakeReply = Callable[[], Reply]


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> MakeReply:
    body = msgspec.json.encode(Refused(status, code, message).body)
    return lambda: Reply(status=status, body=body, headers=headers or {})


def shaped(status: int, body: Any) -> MakeReply:
    """Any JSON as an error body."""
    return lambda: Reply(status=status, body=msgspec.json.encode(body))


def page(status: int, body: str, content_type: str) -> MakeReply:
    return lambda: Reply(status=status, body=body.encode(), content_type=content_type)


def rate_limit_by_date() -> Reply:
    # A date has whole seconds: one more, so that it is never already past.
    when = formatdate(time.time() + RETRY_AFTER + 1, usegmt=True)
    return refusal(
        429, "rate_limit_exceeded", "Too many requests; wait until Retry-After.", {"Retry-After": when}
    )()


HTML = (
    "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr><center>proxy</center></body></html>"
)
SSE_ERROR = (
    'event: error\ndata: {"type":"error","sequence_number":0,"error":{"type":"server_error",'
    '"code":"server_error","message":"The upstream failed before it said anything.","param":""}}\n\n'
)
