"""Tokenizers: exact, safe with any text, loaded on first use."""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from bench.tokens.chunks import chunks
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.samples import text_tokens
from tollbridge.tokens import tokenizers
from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.limits import LIMITS
from tollbridge.tokens.tokenizers import Tokenizer, tokenizer, warm

if TYPE_CHECKING:
    from splintr import AnyTokenizer

# Counted by other engines from other copies of the vocabularies: see bench/tokens/equality.py.
FIXTURE = json.loads(Path(__file__).with_name("counts.json").read_text())
CHUNKS = json.loads(Path(__file__).with_name("chunks.json").read_text())
BUNDLED = [
    *("o200k_base", "cl100k_base", "gemma2", "gemma4", "qwen3", "deepseek_v3", "llama2", "llama3"),
    *("mistral_v2", "mistral_v3", "kimi_k2", "glm4", "phi4"),
]
MEGABYTE = 1_000_000
HOSTILE: dict[str, Callable[[], str]] = {
    "one letter": lambda: "a" * MEGABYTE,
    "spaces": lambda: " " * MEGABYTE,
    "line ends": lambda: "\n" * MEGABYTE,
    "dashes": lambda: "-" * MEGABYTE,
    "base64": lambda: base64.b64encode(random.Random(1).randbytes(MEGABYTE * 3 // 4)).decode(),
    "letters in no order": lambda: "".join(
        random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=MEGABYTE)
    ),
    "one Chinese character": lambda: "中" * (MEGABYTE // 3),
    "lone surrogates": lambda: "\ud83d" * (MEGABYTE // 3),
    "special tokens": lambda: "<|endoftext|>" * (MEGABYTE // 13),
}


thousand_texts = functools.cache(chunks)


def loaded(name: str = "o200k_base") -> Tokenizer:
    engine = tokenizer(name)
    assert engine is not None
    return engine


@pytest.mark.parametrize("name", FIXTURE["counts"])
def test_counts_are_those_of_an_independent_tokenizer(name: str) -> None:
    ours = [loaded(name).count(text) for text in FIXTURE["texts"]]
    assert ours == FIXTURE["counts"][name]


@pytest.mark.series
@pytest.mark.parametrize("name", CHUNKS["counts"])
def test_a_thousand_texts_count_the_same_as_in_an_independent_tokenizer(name: str) -> None:
    ours = [loaded(name).count(text) for text in thousand_texts()]
    assert len(ours) >= 1_000
    assert ours == CHUNKS["counts"][name]


# One of each kind of engine: split by a pattern, not split at all, and with spaces inside the pieces.
@pytest.mark.series
@pytest.mark.parametrize("name", ["o200k_base", "gemma4", "llama2"])
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_megabyte_of_anything_is_counted_in_a_second(name: str, make: Callable[[], str]) -> None:
    engine, text = loaded(name), make()
    started = time.process_time()
    assert engine.count(text) > 0
    assert time.process_time() - started < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_every_vocabulary_counts_hostile_texts(name: str) -> None:
    engine = loaded(name)
    for text in (make() for make in HOSTILE.values()):
        assert engine.count(text[:100_000]) > 0


def test_a_lone_surrogate_is_counted_as_its_replacement_character() -> None:
    assert loaded().count("a\ud83db") == loaded().count("a\ufffdb")


def test_the_spelling_of_a_special_token_is_counted_as_text() -> None:
    assert loaded().count("<|endoftext|>") > 1


def test_a_very_long_text_is_counted_from_samples() -> None:
    line = "All work and no play makes the counter slow.\n"
    text = line * (LIMITS.piece * LIMITS.pieces * 3 // len(line))
    started = time.process_time()
    count = loaded().count(text)
    assert time.process_time() - started < 2.0
    exact = loaded().count(line * 100) / 100 * (len(text) / len(line))
    assert count == pytest.approx(exact, rel=0.01)


@given(st.text(st.characters(exclude_categories=())))
def test_any_string_can_be_counted(text: str) -> None:
    assert (loaded().count(text) > 0) == bool(text)
    assert len(loaded().ids(text)) == loaded().count(text)


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_count_of_a_text_is_close_to_the_sum_of_its_parts(first: str, second: str) -> None:
    engine = loaded()
    assert engine.count(first + second) <= engine.count(first) + engine.count(second) + 8


class PanicException(BaseException):
    """Like the exception of a panic in Rust: not an `Exception`, of a class that cannot be imported."""


def test_a_panic_of_the_engine_falls_back_to_an_estimate() -> None:
    def panic(_text: str) -> list[int]:
        raise PanicException

    engine = SimpleNamespace(encode_ordinary=panic, encode_flat=panic, special_tokens=dict)
    count = Tokenizer("broken", cast("AnyTokenizer", engine)).count("Hello there, friend.")
    assert 3 <= count <= 8


@pytest.mark.parametrize("model", ["openai/gpt-5", "anthropic/claude-sonnet-4.5"])
def test_without_a_tokenizer_counts_are_estimated_from_characters(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    text = Path(__file__).read_text()
    exact = text_tokens(Ledger(), model, text)
    monkeypatch.setattr(tokenizers, "_loaded", {})
    monkeypatch.setitem(sys.modules, "splintr", None)
    assert tokenizer("o200k_base") is None
    assert text_tokens(Ledger(), model, text) == pytest.approx(exact, rel=0.15)
    assert text_tokens(Ledger(), model, text * 1000 + "\ud83d") == pytest.approx(1000 * exact, rel=0.15)


@pytest.mark.io
def test_no_vocabulary_is_loaded_before_the_first_count() -> None:
    script = (
        "import sys, tollbridge, tollbridge.tokens, tollbridge.estimator\n"
        "estimator = tollbridge.estimator.HybridTokenEstimator()\n"
        "assert 'splintr' not in sys.modules\n"
        "estimator.estimate_text('openai/gpt-5', 'hello')\n"
        "assert 'splintr' in sys.modules\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=os.environ | path)


def test_warm_loads_vocabularies_in_the_background() -> None:
    thread = warm("o200k_base", "no such vocabulary")
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert tokenizer("o200k_base") is not None
    assert tokenizer("no such vocabulary") is None
