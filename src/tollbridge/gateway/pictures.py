"""What can be said of an image from its first bytes."""

from __future__ import annotations

import base64
import binascii

import msgspec

from tollbridge.core.media import sniff
from tollbridge.core.pictures import size_of


class Picture(msgspec.Struct, frozen=True):
    """`size` is width and height in pixels, where the bytes tell."""

    mime: str
    size: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.mime} of unknown size"
        return f"{self.mime}, {self.size[0]} × {self.size[1]} pixels"


def split_data_url(url: str) -> tuple[str, bytes]:
    """The label and the bytes of a base64 `data:` URL; raises `ValueError` where it is not one."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ValueError("not a base64 data URL")
    try:
        return head[5:-7] or "text/plain", base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise ValueError("its base64 is broken") from error


def read_picture(data: bytes) -> Picture | None:
    """What the bytes show, or `None` where they are no image we know."""
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        return None
    return Picture(mime, size_of(data))
