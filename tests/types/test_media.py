"""Detecting the mime type of a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.media import detect_mime, draw_png, is_text, sniff
from tollbridge.types.messages import PACK_MIME

# The first bytes as the formats' specifications give them.
HEADS = {
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "image/gif": b"GIF89a\x01\x00\x01\x00\x80\x00\x00",
    "image/webp": b"RIFF\x24\x00\x00\x00WEBPVP8 ",
    "image/avif": b"\x00\x00\x00\x20ftypavif\x00\x00\x00\x00",
    "image/heic": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00",
    "image/bmp": b"BM\x3a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00",
    "image/tiff": b"II*\x00\x08\x00\x00\x00",
    "application/pdf": b"%PDF-1.7\n",
    "image/png": draw_png(),
}


@pytest.mark.parametrize("mime", HEADS)
def test_the_bytes_override_a_wrong_label(mime: str) -> None:
    assert detect_mime(HEADS[mime], "image/x-something") == mime


def test_big_endian_tiff_and_gif87a_are_recognised() -> None:
    assert sniff(b"MM\x00*\x00\x00\x00\x08") == "image/tiff"
    assert sniff(b"GIF87a\x01\x00\x01\x00") == "image/gif"


@pytest.mark.parametrize(
    "text",
    [b"BMW makes cars.", b"GIF89a is a format.", b"RIFFRAFFWEBP", b"Wordy: a WEBP", b"%PDF-1.7 begins so"],
)
def test_a_text_that_begins_like_an_image_stays_a_text(text: bytes) -> None:
    assert detect_mime(text, "text/plain") == "text/plain"


def test_a_partial_signature_is_not_enough() -> None:
    assert sniff(b"BMW makes cars.") is None
    assert sniff(b"01234567WEBP") is None


def test_an_image_labelled_as_text_is_recognised() -> None:
    assert detect_mime(draw_png(), "text/plain") == "image/png"


@pytest.mark.parametrize(
    ("label", "mime"),
    [
        ("application/json; charset=utf-8", "application/json"),
        (" Text/Plain ", "text/plain"),
        ("", "application/octet-stream"),
        (";charset=utf-8", "application/octet-stream"),
    ],
)
def test_a_label_is_lower_cased_and_its_parameters_are_removed(label: str, mime: str) -> None:
    assert detect_mime(b"{}", label) == mime


@given(st.binary(max_size=64), st.text(max_size=20))
def test_any_bytes_with_any_label_have_a_mime_type(data: bytes, label: str) -> None:
    assert detect_mime(data, label)


@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/x-json", True),
        ("application/json", True),
        ("application/yaml", True),
        ("application/javascript", True),
        ("application/geo+json", True),
        ("application/atom+xml", True),
        ("image/svg+xml", True),
        ("image/png", False),
        ("application/pdf", False),
        ("application/epub+zip", False),
        ("application/vnd.maker.part+json", False),
        (PACK_MIME, False),
    ],
)
def test_text_mime_types_are_recognised(mime: str, text: bool) -> None:
    assert is_text(mime) is text
