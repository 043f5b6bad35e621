"""What kind of file some bytes are. Labels lie; the first bytes do not."""

from __future__ import annotations

import json

# The signature at an offset, and what it means.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
)


def sniff(data: bytes) -> str | None:
    """The mime type the bytes themselves show, or `None` where they show none."""
    for offset, signature, mime in _SIGNATURES:
        if data.startswith(signature, offset):
            return mime
    return None


def shown_mime(data: bytes, label: str) -> str:
    """The mime type to show a file as: an image, JSON, text, or what it is called where it is none of them.

    The label is believed where the bytes bear it out: text that is called a picture is shown as text.
    """
    label = label.partition(";")[0].strip().lower()
    is_json = label == "application/json" or label.endswith("+json")
    is_image = label.startswith("image/") and label != "image/svg+xml"
    found = sniff(data)
    if found is not None or not (is_json or is_image or label in ("", "application/octet-stream")):
        return found or label
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return label if is_image else "application/octet-stream"
    if not text.lstrip().startswith(("{", "[")) and not is_json:
        return "text/plain"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text/plain"
    return label if is_json else "application/json"


def true_mime(data: bytes, label: str) -> str:
    """The mime type to believe: that of the bytes, or the label where the bytes are silent."""
    return sniff(data) or label
