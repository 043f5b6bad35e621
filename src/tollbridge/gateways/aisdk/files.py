"""Files in a stream: the many ways in which the AI SDK's versions serialise the same bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from tollbridge.core.errors import StreamError
from tollbridge.core.events import File
from tollbridge.core.media import UNKNOWN
from tollbridge.gateways.aisdk import wire


def read_file(chunk: wire.Chunk) -> File:
    """The file in a chunk. A remote URL stays a URL: nobody fetches what a model names."""
    carrier = {**chunk, **wire.mapping(chunk.get("file"))}
    mime = wire.first_text(carrier, "mediaType", "mimeType") or ""
    name = wire.first_text(carrier, "filename", "name")
    url = wire.first_text(carrier, "url")
    data = carrier.get("data")
    if isinstance(data, Mapping) and data.get("type") in ("url", "data"):  # a model of version 4
        url = wire.first_text(data, "url") or url
        data = data.get("data")
    if url is None and isinstance(data, str) and _is_url(data):
        url, data = data, None
    if url is not None:
        return _at_url(url, mime, name)
    for given in (carrier.get("base64"), carrier.get("base64Data"), data):
        if isinstance(given, str):
            return File(mime or UNKNOWN, _from_base64(given), name=name)
    for given in (carrier.get("uint8Array"), carrier.get("uint8ArrayData"), data):
        if given is not None:
            return File(mime or UNKNOWN, _from_numbers(given), name=name)
    raise StreamError("The stream holds a file without any data.")


def _is_url(text: str) -> bool:
    return text.startswith(("data:", "http://", "https://"))


def _at_url(url: str, mime: str, name: str | None) -> File:
    if not url.startswith("data:"):
        return File(mime or UNKNOWN, url=url, name=name)
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise StreamError("The stream holds a file whose data URL has no data.")
    label, *parameters = head.split(";")
    raw = unquote_to_bytes(body.encode("utf-8", "surrogatepass"))
    if "base64" in (parameter.strip().lower() for parameter in parameters):
        raw = _from_base64(raw)
    return File(mime or label or "text/plain", raw, name=name)


def _from_base64(text: str | bytes) -> bytes:
    """Also the URL-safe alphabet, missing padding and line breaks, which JavaScript's decoders let pass."""
    try:
        raw = text.encode("ascii") if isinstance(text, str) else text
        raw = b"".join(raw.split()).rstrip(b"=").translate(_STANDARD)
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise StreamError("The stream holds a file whose base64 is broken.") from None


_STANDARD = bytes.maketrans(b"-_", b"+/")


def _from_numbers(given: Any) -> bytes:
    """Bytes as JSON sees them: a list of numbers, or an object `{"0": 137, "1": 80, …}` without gaps."""
    numbers = given
    if isinstance(given, Mapping):
        numbers = given.get("data") if given.get("type") == "Buffer" else _in_order(given)
    try:
        return bytes(numbers) if isinstance(numbers, list) else _broken()
    except (TypeError, ValueError):
        return _broken()


def _in_order(given: Mapping[str, Any]) -> list[Any] | None:
    try:
        return [given[str(index)] for index in range(len(given))]
    except KeyError:
        return None


def _broken() -> bytes:
    raise StreamError("The stream holds a file whose bytes are incomplete.")
