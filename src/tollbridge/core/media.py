"""What kind of file some bytes are. Labels lie; the first bytes do not."""

from __future__ import annotations

import json
from hashlib import blake2s

# Signatures at their offsets, and what they mean together. Two letters alone (BM) open many a text.
_SIGNATURES: tuple[tuple[tuple[tuple[int, bytes], ...], str], ...] = (
    (((0, b"\x89PNG\r\n\x1a\n"),), "image/png"),
    (((0, b"\xff\xd8\xff"),), "image/jpeg"),
    (((0, b"GIF87a"),), "image/gif"),
    (((0, b"GIF89a"),), "image/gif"),
    (((0, b"RIFF"), (8, b"WEBP")), "image/webp"),
    (((4, b"ftypavif"),), "image/avif"),
    (((4, b"ftypheic"),), "image/heic"),
    (((0, b"BM"), (6, b"\0\0\0\0")), "image/bmp"),
    (((0, b"II*\x00"),), "image/tiff"),
    (((0, b"MM\x00*"),), "image/tiff"),
    (((0, b"%PDF-"),), "application/pdf"),
)
# Every image has a zero byte this early, no text has one at all.
_HEAD = 64
UNKNOWN = "application/octet-stream"
# Text under another name, and what is written in text whatever it is about: no gateway sees an SVG, every
# model reads one.
_TEXTS = frozenset({"application/javascript", "application/json", "application/xml", "application/yaml"})
_WRITTEN = ("+json", "+xml", "+yaml")
# What belongs to one vendor is for its own programs, our reasoning among it: no model is to read that.
_PRIVATE = "application/vnd."


def fingerprint(data: bytes) -> str:
    """A name for some bytes, short enough to remember thousands."""
    return blake2s(data, digest_size=12).hexdigest()


def sniff(data: bytes) -> str | None:
    """The mime type the bytes themselves show, or `None` where they show none."""
    for signatures, mime in _SIGNATURES:
        if all(data.startswith(signature, offset) for offset, signature in signatures):
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
    if found is not None or not (is_json or is_image or label in ("", UNKNOWN)):
        return found or label
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return label if is_image else UNKNOWN
    if not text.lstrip().startswith(("{", "[")) and not is_json:
        return "text/plain"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text/plain"
    return label if is_json else "application/json"


def is_text(mime: str) -> bool:
    """Whether a model reads it as text. The mime type is bare and in small letters, as `true_mime` has it."""
    written = mime.endswith(_WRITTEN) and not mime.startswith(_PRIVATE)
    return mime.startswith("text/") or mime in _TEXTS or written


def true_mime(data: bytes, label: str) -> str:
    """The mime type to believe, bare and in small letters: that of the bytes, or the label where they are
    silent. A text about pictures ("GIF89a is…") stays a text."""
    bare = label.partition(";")[0].strip().lower() or UNKNOWN
    if bare.startswith("text/") and b"\0" not in data[:_HEAD]:
        return bare
    return sniff(data) or bare
