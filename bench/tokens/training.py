"""Make the token table: clusters of o200k tokens, and what real tokenizers make of each cluster.

    python -m bench.tokens.training

Every o200k token is encoded alone by all reference tokenizers. Tokens of the same category from which they
make similar numbers of tokens form a cluster. The weights of a tokenizer, which are the tokens it makes per
token of a cluster, start from these numbers, and are fitted to its counts of the corpus's training half.

The population of tokenizers then gives the prior of an unknown one: the mean of the weights, and the
directions in which they differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.tokens.corpus import DATASETS, DECLARATIONS, EXAMPLES, TRAINING, corpus
from bench.tokens.references import FOLDER, REFERENCES, reference
from tollbridge.tokens.features import CATEGORIES, SIZE, TABLE_PATH, TokenTable, categorize
from tollbridge.tokens.tokenizers import tokenizer

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

# Clusters, directions of the population that are kept, and corpus seeds that the chunks are taken from.
CLUSTERS, DIRECTIONS, SEEDS = 256, 20, (0, 1, 2)
# The length of the directions of `IMAGINARY`.
IMAGINARY_LENGTH = 0.3
# The tokenizers of model families without a bundled vocabulary (see `tollbridge.tokens.tokenizers`).
KNOWN = ("claude2", "qwen36", "llama4", "glm4", "commandr", "smollm2")
# Tokenizers that share most of a vocabulary, or have the same one. They are hidden together.
RELATED = (
    {"gemma2", "gemma4"},
    {"llama2", "mistral_spm", "yi"},
    {"cl100k", "llama3", "qwen3", "glm4", "olmo2"},
    {"kimi_k2", "kimi_k3"},
    {"gpt2", "whisper"},
    {"o200k", "llama4"},
    {"modernbert", "smollm2"},
)


def related(name: str) -> frozenset[str]:
    """Return a tokenizer and those that share most of its vocabulary."""
    return frozenset({name}.union(*(group for group in RELATED if name in group)))


# --- Counts ---


def _cached(name: str, compute: Callable[[], Floats]) -> Floats:
    """Return an array from a file in the download folder, computed if it is not there."""
    path = FOLDER / "training" / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, compute())
    return np.asarray(np.load(path))


@cache
def training_texts() -> list[str]:
    texts: dict[str, None] = {}
    for seed in SEEDS:
        for chunks in corpus(seed, TRAINING, downloads=True).values():
            texts.update(dict.fromkeys(chunks))
    return list(texts)


@cache
def _texts_key() -> str:
    return hashlib.sha256("\0".join(training_texts()).encode("utf-8", "replace")).hexdigest()[:12]


@cache
def corpus_counts(name: str) -> Floats:
    """Return the tokens that a tokenizer makes of each training text."""

    def count_all() -> Floats:
        count = reference(name)
        return np.array([count(text) for text in training_texts()], float)

    return _cached(f"{_texts_key()}-{name}", count_all)


@cache
def corpus_ids() -> list[Integers]:
    loaded = tokenizer()
    assert loaded is not None
    return [np.array(loaded.ids(text), np.int64) for text in training_texts()]


@cache
def vocabulary() -> tuple[bytes, ...]:
    """Return the bytes of every o200k token; empty for a gap in the vocabulary."""
    import splintr

    engine = splintr.Tokenizer.from_pretrained("o200k_base")

    def token_bytes(token: int) -> bytes:
        try:
            return engine.decode_token_bytes(token)
        except ValueError:
            return b""

    return tuple(map(token_bytes, range(engine.vocab_size)))


@cache
def single_counts(name: str) -> Floats:
    """Return the tokens that a tokenizer makes of each o200k token, after a line end."""

    def count_all() -> Floats:
        count = reference(name)
        base = count("\n")

        def count_token(token: bytes) -> float:
            try:
                return max(0, count("\n" + token.decode()) - base)
            except UnicodeDecodeError:
                return min(len(token), 2)  # a part of a character

        return np.array([count_token(token) for token in vocabulary()], float)

    return _cached(f"single-{name}", count_all)


def _count_spaces(token: bytes) -> float:
    return 1.0 if token.strip() else float(len(token))


def _count_bytes(token: bytes) -> float:
    return 1.0 if token.isascii() else float(len(token))


# Tokenizers that are not among the references, so that one like them can be learned: every space is a token,
# every byte of a script other than Latin is a token.
IMAGINARY: dict[str, Callable[[bytes], float]] = {"spaces": _count_spaces, "bytes": _count_bytes}


@cache
def imaginary_counts(name: str) -> Floats:
    return np.array([max(1.0, IMAGINARY[name](token)) for token in vocabulary()])


# --- Clusters ---


# Stands for a gap in the vocabulary, which counts as mixed letters.
_GAP = b"aB"


@cache
def frequencies() -> Floats:
    totals = np.zeros(len(vocabulary()))
    for ids in corpus_ids():
        np.add.at(totals, ids, 1)
    return totals


def find_clusters(members: Sequence[str]) -> tuple[Integers, Integers]:
    """Cluster the tokens of each category by the numbers of tokens that the members make of them.

    Returns:
        The cluster of every token, and the category of every cluster.
    """
    categories = np.frombuffer(bytes(categorize(token or _GAP) for token in vocabulary()), np.uint8)
    counts = [*map(single_counts, members), *map(imaginary_counts, IMAGINARY)]
    points = np.log1p(np.stack(counts, 1))
    importance = np.sqrt(frequencies() + 0.2)
    spreads = np.zeros(SIZE)
    for category in range(SIZE):
        chosen = categories == category
        if chosen.any():
            centre = np.average(points[chosen], axis=0, weights=importance[chosen])
            spreads[category] = (importance[chosen, None] * (points[chosen] - centre) ** 2).sum() ** 0.5
    numbers = 1 + np.floor(spreads / spreads.sum() * (CLUSTERS - SIZE)).astype(int)
    clusters = np.zeros(len(categories), np.int64)
    cluster_categories: list[int] = []
    rng = np.random.default_rng(0)
    for category, number in enumerate(numbers):
        chosen = np.flatnonzero(categories == category)
        first = len(cluster_categories)
        cluster_categories += [category] * min(number, max(1, len(chosen)))
        if len(chosen):
            count = len(cluster_categories) - first
            clusters[chosen] = first + _k_means(points[chosen], importance[chosen], count, rng)
    return clusters, np.array(cluster_categories)


def _k_means(points: Floats, importance: Floats, number: int, rng: np.random.Generator) -> Integers:
    share = importance / importance.sum()
    centres = points[rng.choice(len(points), number, replace=False, p=share)]
    labels = np.zeros(len(points), np.int64)
    for _ in range(12):
        distances = -2 * points @ centres.T + (centres**2).sum(1)
        labels = distances.argmin(1)
        for label in range(number):
            if (chosen := labels == label).any():
                centres[label] = np.average(points[chosen], axis=0, weights=importance[chosen])
    return labels


# --- Weights ---


def _histograms(clusters: Integers, size: int) -> Floats:
    return np.stack([np.bincount(clusters[ids], minlength=size) for ids in corpus_ids()]).astype(float)


def fit(histograms: Floats, counts: Floats, start: Floats, strength: float = 3.0) -> Floats:
    """Return the weights that explain the counts, by ridge regression of relative errors around `start`."""
    scale = 1 / np.maximum(counts, 20)
    rows, differences = histograms * scale[:, None], (counts - histograms @ start) * scale
    sizes = np.sqrt((rows**2).mean(0)) + 1e-9
    rows = rows / sizes
    matrix = rows.T @ rows + strength * np.eye(rows.shape[1])
    return np.asarray(start + np.linalg.solve(matrix, rows.T @ differences) / sizes)


def build_table(hidden: Iterable[str] = ()) -> TokenTable:
    """Return the table without any information from the hidden tokenizers."""
    members = [name for name in REFERENCES if name not in set(hidden)]
    clusters, categories = find_clusters(members)
    size = len(categories)
    histograms = _histograms(clusters, size)
    importance = np.bincount(clusters, weights=frequencies() + 0.05, minlength=size)

    def average(counts: Floats) -> Floats:
        totals = np.bincount(clusters, weights=(frequencies() + 0.05) * counts, minlength=size)
        return np.asarray(totals / np.maximum(importance, 1e-9))

    weights = {name: fit(histograms, corpus_counts(name), average(single_counts(name))) for name in members}
    # For texts whose tokens are only estimated: the mean weight of each category.
    averages = np.zeros((SIZE, size))
    averages[categories, np.arange(size)] = importance
    averages /= np.maximum(averages.sum(1, keepdims=True), 1e-9)

    def extend(row: Floats) -> Floats:
        return np.concatenate([row, averages @ row])

    extended = {name: extend(row) for name, row in weights.items()}
    population = np.stack(list(extended.values()))
    mean = population.mean(0)
    deviations = (population - mean) / np.sqrt(len(population))
    # Directions that matter for frequent tokens come first.
    share = np.sqrt(np.concatenate([importance / importance.sum(), np.full(SIZE, 1e-6)]))
    left, _, _ = np.linalg.svd(deviations * share, full_matrices=False)
    directions = [
        *(left.T[:DIRECTIONS] @ deviations),
        *(IMAGINARY_LENGTH * extend(average(imaginary_counts(name)) - 1) for name in IMAGINARY),
    ]
    return TokenTable(
        sources=f"{', '.join(members)}; Django, {EXAMPLES}, {DECLARATIONS}, {DATASETS}",
        clusters=clusters.astype(np.uint8).tobytes(),
        categories=np.concatenate([categories, np.arange(SIZE)]).astype(np.uint8).tobytes(),
        mean=_pack(mean),
        directions=tuple(map(_pack, directions)),
        known={name: _pack(extended[name]) for name in KNOWN if name in extended},
    )


def _pack(values: Floats) -> bytes:
    packed: bytes = values.astype("<f4").tobytes()
    return packed


def main() -> None:
    """Write the table that is shipped."""
    table = build_table()
    TABLE_PATH.write_bytes(table.pack())
    print(f"{Path(TABLE_PATH).name}: {TABLE_PATH.stat().st_size:,} bytes, {len(CATEGORIES)} categories")


if __name__ == "__main__":
    main()
