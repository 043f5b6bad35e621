"""The host's `stateful_marker`: a model's name, a backslash, and a payload of ours in base64url."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from tollbridge.core.reasoning import read_carried


def encode_marker(model: str, data: bytes) -> bytes:
    """`model` is for the host alone; whose reasoning it is, the payload says itself."""
    return f"{model.replace(chr(92), '_')}\\".encode() + urlsafe_b64encode(data).rstrip(b"=")


def decode_marker(marker: bytes) -> bytes | None:
    """The payload, or `None` for a marker that is not ours: other providers leave theirs in the same chat."""
    payload = marker.partition(b"\\")[2]
    try:
        data = urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if read_carried(data) is not None else None
