"""Type and size of images are read from their bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.testing.conversation import describe_image
from tollbridge.types.media import draw_png, split_data_url

# The first bytes of files of each format, with a size.
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + b"\x00\x00\x00"
WEBP_LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a" + struct.pack(
    "<HH", 640, 480
)
WEBP_LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 639 | 479 << 14)
WEBP_EXTENDED = (
    b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"
    + (639).to_bytes(3, "little")
    + (479).to_bytes(3, "little")
)


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (draw_png(640, 480), "image/png"),
        (JPEG, "image/jpeg"),
        (JPEG.replace(b"\xff\xc0", b"\xff\xff\xff\xc0"), "image/jpeg"),  # padded, as the format allows
        (GIF, "image/gif"),
        (WEBP_LOSSY, "image/webp"),
        (WEBP_LOSSLESS, "image/webp"),
        (WEBP_EXTENDED, "image/webp"),
    ],
)
def test_an_image_is_measured(data: bytes, mime: str) -> None:
    assert describe_image("image/bmp", data) == f"{mime}, 640 × 480 pixels"


def test_other_bytes_are_not_an_image() -> None:
    for data in (b"%PDF-1.7", b"Hello"):
        assert describe_image("image/png", data).endswith("labelled image/png that are no image I know")


@given(st.sampled_from([draw_png(), JPEG, GIF, WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED]), st.data())
def test_a_truncated_or_corrupt_image_raises_nothing(image: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(image)))
    describe_image("image/png", image[:cut] + data.draw(st.binary(max_size=20)))


@pytest.mark.parametrize("url", ["", "data:", "data:image/png,abc", "data:image/png;base64,***", "http://x/"])
def test_other_urls_are_an_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"data URL|base64"):
        split_data_url(url)
