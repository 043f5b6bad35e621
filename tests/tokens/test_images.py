"""Image sizes read from the first bytes, and the token counts that providers document."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.tokens.media import media_tokens, price_of
from tollbridge.types.media import image_size
from tollbridge.types.messages import DataPart

# All of them are 37 pixels wide and 23 high, written by Pillow.
IMAGES = sorted((Path(__file__).parent / "images").iterdir())

# Worked examples from the providers' documentation, and edges of the formulas.
PRICES = [
    ("openai/gpt-4o", (1024, 1024), 765),
    ("openai/gpt-4o", (2048, 4096), 1105),
    ("openai/gpt-4o", (400, 300), 255),
    ("openai/gpt-5", (1024, 1024), 630),
    ("openai/o3", (1024, 1024), 675),
    ("openai/gpt-4o-mini", (1024, 1024), 2833 + 4 * 5667),
    ("openai/gpt-4.1-mini", (1024, 1024), 1659),
    ("openai/o4-mini", (1800, 2400), 2498),
    ("openai/gpt-5.4", (1024, 1024), 1229),
    ("anthropic/claude-sonnet-4.5", (200, 200), 64),
    ("anthropic/claude-sonnet-4.5", (1000, 1000), 1296),
    ("anthropic/claude-sonnet-4.5", (3840, 2160), 1568),
    ("anthropic/claude-opus-4.7", (3840, 2160), 4784),
    ("google/gemini-2.5-pro", (384, 384), 258),
    ("google/gemini-2.5-pro", (1536, 768), 516),
    ("google/gemini-3-flash", (1536, 768), 1120),
    ("hidden/model", (1024, 1024), 765),
]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_the_size_is_read_from_the_bytes(path: Path) -> None:
    assert image_size(path.read_bytes()) == (37, 23)


def test_there_is_an_image_of_every_format() -> None:
    assert len(IMAGES) == 8


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_a_truncated_image_has_no_size_but_a_token_count(path: Path) -> None:
    for length in range(30):
        assert image_size(path.read_bytes()[:length]) in (None, (37, 23))
    assert media_tokens("openai/gpt-4o", DataPart(path.read_bytes()[:9], "image/png")) == 1105


@pytest.mark.parametrize(("model", "size", "tokens"), PRICES)
def test_an_image_has_the_documented_number_of_tokens(model: str, size: tuple[int, int], tokens: int) -> None:
    assert price_of(model)(*size) == tokens


@given(st.binary(max_size=200), st.sampled_from([path.read_bytes()[:16] for path in IMAGES]))
def test_any_bytes_have_a_token_count(data: bytes, start: bytes) -> None:
    for image in (data, start + data):
        size = image_size(image)
        assert size is None or min(size) > 0
        assert media_tokens("anthropic/claude-sonnet-4.5", DataPart(image, "image/png")) > 0
