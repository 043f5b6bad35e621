"""Fingerprints of everything that reaches the wire: of a message, a tool set, an answer, a prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tollbridge.core.messages import ChatRequest, Part, TextPart, ToolCallPart

# Raise it when the same value starts to be sent in other words: what was measured of the old is forgotten.
VERSION = b"1"
SIZE = 16
# Options of a request, wherever they stand in it, that take away from what a model reads of the messages.
_EDITS = frozenset({"context_management", "contextManagement", "truncation"})

# Keys in order: an editor may give the arguments of a call back in another one.
_encoder = msgspec.msgpack.Encoder(enc_hook=repr, order="deterministic")


def fingerprint(*values: Any) -> bytes:
    """A digest of values, whole."""
    try:
        content = _encoder.encode(values)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError):
        # Lone surrogates, keys that are not strings, numbers of more than 64 bits, values that contain
        # themselves: all of it still counts.
        content = repr(values).encode("utf-8", "surrogatepass")
    return sha256(content).digest()[:SIZE]


def toolset_fingerprint(request: ChatRequest) -> bytes:
    """Of everything in a request but its model and messages: tools above all, and the settings."""
    return fingerprint(
        request.tools,
        request.tool_choice,
        request.parallel_tool_calls,
        request.reasoning_effort,
        request.output_format,
        request.extra,
    )


def answer_fingerprint(model: str, parts: Iterable[Part]) -> bytes:
    """Of what an answer says, so that it is known again as history.

    An editor may cut its text elsewhere, trim its ends, and drop the thinking.
    """
    said: list[str] = []
    calls: list[tuple[str, str, Any]] = []
    for part in parts:
        match part:
            case TextPart():
                said.append(part.text)
            case ToolCallPart():
                calls.append((part.call_id, part.name, part.input))
            case _:
                continue
    return fingerprint(b"answer", VERSION, model, "".join(said).strip(), calls)


def message_key(model: str, message: bytes) -> bytes:
    """Of a message as one model counts it."""
    return sha256(b"message" + VERSION + model.encode("utf-8", "surrogatepass") + message).digest()[:SIZE]


def editing_fingerprint(request: ChatRequest) -> bytes:
    """Of the options by which a model reads less than it is sent; empty where it reads everything."""
    found = list(_editing(request.extra))
    return fingerprint(found) if found else b""


def _editing(value: object) -> Iterator[tuple[str, Any]]:
    for name, each in value.items() if isinstance(value, Mapping) else ():
        if name in _EDITS:
            yield name, each
        else:
            yield from _editing(each)


def chain(model: str, messages: Sequence[bytes], editing: bytes = b"") -> list[bytes]:
    """One fingerprint for every prefix of the messages, the shortest first. What a prefix came to holds for
    one model, and for one way of `editing` it."""
    link = sha256(VERSION + model.encode("utf-8", "surrogatepass") + editing).digest()[:SIZE]
    links = []
    for message in messages:
        link = sha256(link + message).digest()[:SIZE]
        links.append(link)
    return links
