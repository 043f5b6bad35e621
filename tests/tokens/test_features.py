"""The clusters and categories of tokens, counted with a tokenizer and estimated from characters."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import splintr
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.samples import PROSE
from tollbridge.tokens.features import (
    CATEGORIES,
    SIZE,
    TABLE_PATH,
    ClusterWeights,
    TokenTable,
    categorize,
    count_features,
    estimate_categories,
    shipped_table,
    unpack_floats,
)
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


def test_every_token_is_in_a_cluster_of_its_category() -> None:
    engine = splintr.Tokenizer.from_pretrained("o200k_base")
    table = shipped_table()
    assert len(table.clusters) == engine.vocab_size
    for token, cluster in enumerate(table.clusters):
        try:
            category = categorize(engine.decode_token_bytes(token))
        except ValueError:  # a gap in the vocabulary
            continue
        assert table.categories[cluster] == category, token


def test_every_list_of_weights_has_one_per_cluster_and_category() -> None:
    table = shipped_table()
    assert max(table.clusters) < table.size - SIZE
    assert table.categories[-SIZE:] == bytes(range(SIZE))
    for row in (table.mean, *table.directions, *table.known.values()):
        assert len(unpack_floats(row)) == table.size


def test_the_table_names_its_sources_and_is_small() -> None:
    assert "claude2" in shipped_table().sources
    assert TABLE_PATH.stat().st_size < 300_000


def test_a_packed_table_is_unpacked_without_loss() -> None:
    assert TokenTable.unpack(shipped_table().pack()) == shipped_table()


def test_the_counts_of_a_text_add_up_to_its_o200k_tokens() -> None:
    engine = tokenizer()
    assert engine is not None
    for text in ("", "a", "def f(x):\n    return x\n", PROSE * 50):
        ids = engine.ids(text)
        clusters = shipped_table().find_clusters(ids)
        assert list(clusters) == [shipped_table().clusters[token] for token in ids]
        vector = count_features(clusters)
        assert sum(count for _, count in vector) == len(ids)
        assert len({kind for kind, _ in vector}) == len(vector)


# Lengths around those at which another way of adding is used, and at the blocks of a sum.
@pytest.mark.parametrize("length", [0, 1, 74, 75, 256, 1_039, 1_040, 1_041, 5_000])
def test_the_price_of_a_text_is_the_sum_over_its_tokens(length: int) -> None:
    rng = random.Random(length)
    values = [rng.uniform(-1.5, 12.0) for _ in range(270)]
    clusters = bytes(rng.choices(range(256), k=length))
    expected = math.fsum(values[cluster] for cluster in clusters)
    assert ClusterWeights(values).total(clusters) == pytest.approx(expected, abs=1e-6 * length)
    assert ClusterWeights(values).total(count_features(clusters)) == pytest.approx(
        expected, abs=1e-6 * length
    )
    assert ClusterWeights(()).total(clusters) == ClusterWeights(()).total(count_features(clusters)) == length


@pytest.mark.parametrize("values", [[1.25] * 240, [0.0] * 255 + [40.0]], ids=["equal", "largest last"])
def test_extreme_weights_are_added_without_loss(values: list[float]) -> None:
    clusters = bytes(range(240)) * 4 + b"\xef" * 40_000
    assert ClusterWeights(values).total(clusters) == pytest.approx(
        sum(values[cluster] for cluster in clusters)
    )
    assert ClusterWeights([0.0] * 255 + [40.0]).total(b"\xff" * 40_000) == pytest.approx(1_600_000)


def test_an_estimate_from_characters_uses_the_weights_of_the_categories() -> None:
    table = shipped_table()
    vector = table.estimate("return 12345")
    assert {CATEGORIES[table.categories[kind]] for kind, _ in vector} >= {"w5_7", "dig3"}
    assert min(kind for kind, _ in vector) >= table.size - SIZE


@given(st.text())
def test_any_text_can_be_estimated_from_its_characters(text: str) -> None:
    total = sum(count for _, count in estimate_categories(text))
    assert total >= bool(text)
