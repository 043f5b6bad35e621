"""What kind of file some bytes are. Labels lie; the first bytes do not."""

from __future__ import annotations

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


def true_mime(data: bytes, label: str) -> str:
    """The mime type to believe: that of the bytes, or the label where the bytes are silent."""
    return sniff(data) or label
