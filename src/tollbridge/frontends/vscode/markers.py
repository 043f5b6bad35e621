"""Markers: how VS Code keeps the reasoning of an answer, and sends it back with the conversation.

A marker is the name of a model, a backslash, and data in base64url. VS Code splits it at backslashes and
reads two pieces, so neither the name nor the data can contain one.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from tollbridge.types.messages import read_reasoning_pack


def encode_marker(model: str, data: bytes) -> bytes:
    """Return a marker. Only VS Code uses the name: the data contains the origin of the reasoning."""
    return f"{model.replace(chr(92), '_')}\\".encode() + urlsafe_b64encode(data).rstrip(b"=")


def decode_marker(marker: bytes) -> bytes | None:
    """Return the data of a marker, or `None` for a marker of another provider in the same chat."""
    payload = marker.partition(b"\\")[2]
    try:
        data = urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if read_reasoning_pack(data) is not None else None
