"""Token categories, counted with a tokenizer and estimated from characters."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
import splintr
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.tokens import features as categories
from tollbridge.tokens.features import CATEGORIES, build_table, categorize, estimate_categories
from tollbridge.tokens.tokenizers import tokenizer

KINDS = {
    b"a": "w1",
    b"ab": "w2",
    b"tion": "w3_4",
    b"return": "w5_7",
    b"function": "w8p",
    b" the": "sw1_4",
    b" return": "sw5_7",
    b" function": "sw8p",
    b" The": "cap",
    b"HTTP": "camel",
    b"utf8": "camel",
    b"123": "dig3",
    b"\r\n\n": "ws_nl",
    b"  ": "ws_sp",
    b"        ": "ws_long",
    b"(": "p1",
    b"()": "p2",
    b"());": "p3p",
    b" =": "sp_p",
    "世界".encode(): "han",
    "です".encode(): "kana",
    "하세".encode(): "hangul",
    " мост".encode(): "cyr",
    "مرح".encode(): "arab",
    " péage".encode(): "latinx",
    "γέ".encode(): "otherscript",
    "→".encode(): "emoji_sym",
    b"\xf0\x9f": "partial",
}


@pytest.mark.parametrize(("token", "kind"), KINDS.items())
def test_each_token_has_the_expected_category(token: bytes, kind: str) -> None:
    assert CATEGORIES[categorize(token)] == kind


def test_every_category_has_an_example_in_this_file() -> None:
    assert set(CATEGORIES) - set(KINDS.values()) == {"dig1", "dig2"}


def test_the_estimate_from_characters_is_close_to_the_tokenizer() -> None:
    texts = json.loads(Path(__file__).with_name("counts.json").read_text())["texts"]
    sources = [
        Path(__file__).read_text(),
        *(text for text in texts if text.isascii() and " " in text.strip()),
    ]
    engine = tokenizer()
    assert engine is not None
    estimate = sum(count for text in sources for _, count in estimate_categories(text))
    assert estimate == pytest.approx(sum(engine.count(text) for text in sources), rel=0.15)


def test_the_packed_table_equals_a_newly_built_one() -> None:
    engine = splintr.Tokenizer.from_pretrained("o200k_base")
    packed = Path(categories.__file__).with_name("o200k.categories")
    assert zlib.decompress(packed.read_bytes()) == build_table(engine.vocab_size, engine.decode_token_bytes)


@given(st.text())
def test_any_text_can_be_estimated_from_its_characters(text: str) -> None:
    total = sum(count for _, count in estimate_categories(text))
    assert total >= bool(text)
