"""Images of answers: saved, embedded or linked in a text, and removed from texts that come back."""

from __future__ import annotations

import base64
import functools
import os
import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.frontends.vscode import images, wire
from tollbridge.frontends.vscode.images import ImageWriter, save_image, shrink_png
from tollbridge.frontends.vscode.limits import LIMITS, EditorLimits
from tollbridge.frontends.vscode.requests import decode_message
from tollbridge.types.media import draw_png
from tollbridge.types.messages import TextPart

PNG = draw_png()


@functools.cache
def noise(width: int, height: int) -> bytes:
    """An RGB image that cannot be compressed."""
    rng = random.Random(7)
    return write_png(width, 3, [rng.randbytes(3 * width) for _ in range(height)], [0])


def write_png(width: int, channels: int, rows: list[bytes], filters: list[int]) -> bytes:
    """Write a PNG image as https://www.w3.org/TR/png-3/#9Filters says, with these filters in turn."""
    above, lines = bytes(width * channels), b""
    for number, row in enumerate(rows):
        kind = filters[number % len(filters)]
        line = bytearray([kind]) if kind else bytearray([kind, *row])
        for n, value in enumerate(row if kind else ()):
            left = row[n - channels] if n >= channels else 0
            corner = above[n - channels] if n >= channels else 0
            up = above[n]
            nearest = min((left, up, corner), key=lambda near: abs(left + up - corner - near))
            predictions = (0, left, up, (left + up) // 2, nearest)
            line.append((value - predictions[kind]) % 256)
        lines, above = lines + line, row

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, len(rows), 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    data = zlib.compress(lines)
    parts = (b"IHDR", header), (b"IDAT", data[:9]), (b"IDAT", data[9:]), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def read_pixels(png: bytes) -> tuple[tuple[int, int], bytes]:
    """Read a PNG image with one IDAT chunk and the filter "Sub", which is what `shrink_png` writes."""
    width, height, depth, colour, *_ = struct.unpack_from(">IIBBBBB", png, 16)
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[colour]
    assert depth == 8
    start = png.index(b"IDAT")
    [length] = struct.unpack_from(">I", png, start - 4)
    data = zlib.decompress(png[start + 4 : start + 4 + length])
    rows = [data[n : n + 1 + width * channels] for n in range(0, len(data), 1 + width * channels)]
    pixels = bytearray()
    for kind, *row in rows:
        assert kind == 1
        for n in range(len(row)):
            row[n] = (row[n] + (row[n - channels] if n >= channels else 0)) % 256
        pixels += bytes(row)
    return (width, height), bytes(pixels)


@given(
    channels=st.sampled_from((1, 2, 3, 4)),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    filters=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    seed=st.integers(0, 1_000),
)
def test_every_filter_is_read(channels: int, size: tuple[int, int], filters: list[int], seed: int) -> None:
    width, height = size
    rng = random.Random(seed)
    rows = [rng.randbytes(width * channels) for _ in range(height)]
    preview = shrink_png(write_png(width, channels, rows, filters), 10_000)
    assert preview is not None
    assert read_pixels(preview) == (size, b"".join(rows))


def test_a_preview_has_the_average_colours() -> None:
    left, right = b"\x10\x20\x30", b"\x30\x40\x50"
    image = write_png(1024, 3, [left * 511 + right * 513] * 2, [4])
    preview = shrink_png(image, 10_000)
    assert preview is not None
    assert read_pixels(preview) == ((512, 1), left * 255 + b"\x20\x30\x40" + right * 256)


@pytest.mark.parametrize(
    ("limit", "size"), [(200_000, (300, 200)), (60_000, (150, 100)), (20_000, (100, 66)), (5_000, (60, 40))]
)
def test_a_preview_is_the_largest_that_fits(limit: int, size: tuple[int, int]) -> None:
    """Three bytes per pixel, because noise cannot be compressed, at a whole fraction of the size."""
    preview = shrink_png(noise(300, 200), limit)
    assert preview is not None
    assert len(preview) <= limit
    assert read_pixels(preview)[0] == size


def test_an_image_has_no_preview_if_none_fits() -> None:
    assert shrink_png(noise(300, 200), 1_000) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(PNG[:20], id="cut header"),
        pytest.param(PNG[:-24], id="cut data"),
        pytest.param(PNG[:24] + b"\x10" + PNG[25:], id="16 bits"),
        pytest.param(PNG[:25] + b"\x03" + PNG[26:], id="palette"),
        pytest.param(PNG[:28] + b"\x01" + PNG[29:], id="interlaced"),
        pytest.param(PNG[:16] + b"\xff\xff\xff\xff" + PNG[20:], id="too large"),
        pytest.param(write_png(2, 3, [bytes(6)], [0]).replace(b"\0\0\0\2", b"\0\0\0\3", 1), id="too few"),
        pytest.param(b"\xff\xd8\xff\xe0 a JPEG image", id="JPEG"),
    ],
)
def test_other_images_have_no_preview(data: bytes) -> None:
    assert shrink_png(data, 10_000) is None


def test_a_decompression_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    header = PNG[: PNG.index(b"IDAT") - 4]
    image = header + struct.pack(">I", len(bomb)) + b"IDAT" + bomb + bytes(4)
    assert shrink_png(image, 10) is None
    assert shrink_png(image, 10_000) is not None  # the rest is ignored


def test_an_image_is_shown_as_a_file_and_sent_back_without_its_folder(tmp_path: Path) -> None:
    text = ImageWriter(tmp_path / "a (b) c!", embed=False).write(PNG)
    [path] = (tmp_path / "a (b) c!").iterdir()
    assert text == f"\n\n![Image](file://{tmp_path}/a%20%28b%29%20c%21/{path.name})\n\n`{path}`\n\n"
    [part] = decode_message(wire.Message(2, [wire.Text(f"Look:{text}Nice.")])).parts
    assert part == TextPart(f"Look:\n\n![Image]({path.name})\n\n`{path}`\n\nNice.")


def test_a_small_image_is_embedded_and_not_sent_back(tmp_path: Path) -> None:
    text = ImageWriter(tmp_path, embed=True).write(PNG)
    [path] = tmp_path.iterdir()
    data = base64.b64encode(PNG).decode()
    assert text == f"\n\n![Image](data:image/png;base64,{data})\n\n`{path}`\n\n"
    [part] = decode_message(wire.Message(2, [wire.Text(f"Look:{text}Nice.")])).parts
    assert part == TextPart(f"Look:\n\n![Image]\n\n`{path}`\n\nNice.")


def test_embedded_images_leave_room_for_the_text_of_the_answer(tmp_path: Path) -> None:
    """VS Code cuts a text after 100,000 characters, so the images of an answer become smaller previews."""
    writer = ImageWriter(tmp_path, embed=True)
    texts = [writer.write(noise(110 + number, 100)) for number in range(8)]
    assert len("".join(re.findall(r"!\[Image\]\(data:\S*\)", "".join(texts)))) <= LIMITS.embedded_characters
    assert [text.count("data:image/png") for text in texts[:3]] == [1, 1, 1]
    assert all(re.search(r"`\S+\.png`", text) for text in texts)
    assert len(list(tmp_path.iterdir())) == 8


def test_a_large_image_without_a_preview_is_linked(tmp_path: Path) -> None:
    text = ImageWriter(tmp_path, embed=True).write(b"\xff\xd8\xff\xe0" + bytes(50_000))
    [path] = tmp_path.glob("*.jpg")
    assert text == f"\n\n`{path}`\n\n"


def test_only_images_of_a_limited_size_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    assert save_image(tmp_path, svg) is None
    assert ImageWriter(tmp_path, embed=True).write(svg) == ""
    monkeypatch.setattr(images, "LIMITS", EditorLimits(image_bytes=10))
    assert save_image(tmp_path, PNG) is None
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_images_are_deleted_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [PNG + bytes([number]) for number in range(3)]
    monkeypatch.setattr(images, "LIMITS", EditorLimits(image_folder_bytes=2 * len(data[0])))
    paths = []
    for number, image in enumerate(data):
        path = save_image(tmp_path, image)
        assert path is not None
        os.utime(path, (number, number))
        paths.append(path)
    assert sorted(tmp_path.iterdir()) == sorted(paths[1:])
    assert save_image(tmp_path, data[2]) == paths[2]
