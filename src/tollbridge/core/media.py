"""What kind of file some bytes are. Labels lie; the first bytes do not."""

from __future__ import annotations

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


def sniff(data: bytes) -> str | None:
    """The mime type the bytes themselves show, or `None` where they show none."""
    for signatures, mime in _SIGNATURES:
        if all(data.startswith(signature, offset) for offset, signature in signatures):
            return mime
    return None


def true_mime(data: bytes, label: str) -> str:
    """The mime type to believe, bare and in small letters: that of the bytes, or the label where they are
    silent. A text about pictures ("GIF89a is…") stays a text."""
    bare = label.partition(";")[0].strip().lower() or UNKNOWN
    if bare.startswith("text/") and b"\0" not in data[:_HEAD]:
        return bare
    return sniff(data) or bare
