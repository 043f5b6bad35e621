"""The features of a text: its exact count, or its o200k tokens by category. Each text is counted once."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from tollbridge.tokens import features as categories
from tollbridge.tokens.features import Vector, character_vector
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:
    from splintr import AnyTokenizer


# SECTION A cache that keeps what was asked lately and forgets the rest, at the price of a dictionary.

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Two generations: when the young one is full the old one is forgotten, and the young grows old.

    `most` is the weight of a generation; what is put says its own weight (1 unless told).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, *found)
        return found[0] if found else None

    def put(self, key: K, value: V, weight: int = 1) -> None:
        self._weight += weight
        if self._weight > self._most:
            self._old, self._young = self._young, {}
            self._weight = weight
        self._young[key] = value, weight

    def clear(self) -> None:
        self._young, self._old, self._weight = {}, {}, 0


# SECTION Which tokenizer a model speaks, and what its provider adds around the text: one table, by model id.


class Overheads(msgspec.Struct, frozen=True):
    """What a prompt costs beyond its text, before anything was learned: documented or measured by others."""

    base: float = 3.0
    message: float = 4.0
    tools_scale: float = 1.0  # rendered tools per token of their compact JSON
    tools_present: float = 60.0
    tool: float = 8.0


class Family(msgspec.Struct, frozen=True):
    """Models that split text alike.

    `vocabulary` is a bundled one, exact for these models. Where it is `None`, text is counted in weighted
    o200k categories: `like` names the tokenizers of the population the weights start from (empty: all of
    them), `scale` and `latin` what is known of the distance (`latin` applies to Latin letters alone), and
    `doubt` how far from there the truth may be, as a share of the population's own spread.
    """

    name: str
    vocabulary: str | None = None
    like: tuple[str, ...] = ()
    scale: float = 1.0
    latin: float = 1.0
    doubt: float = 1.0
    overheads: Overheads = Overheads()


_OPENAI = Overheads(base=3, message=4, tools_scale=0.85, tools_present=24, tool=4)
_ANTHROPIC = Overheads(base=6, message=3, tools_scale=1.05, tools_present=400, tool=10)
_GOOGLE = Overheads(base=1, message=2, tools_scale=0.8, tools_present=0, tool=2)
_CHATML = Overheads(base=3, message=4, tools_scale=1.0, tools_present=140, tool=20)
_MISTRAL = Overheads(base=1, message=2, tools_scale=1.0, tools_present=60, tool=20)
_GROK = Overheads(base=155, message=4, tools_scale=1.0, tools_present=60, tool=10)
_LLAMA_3 = Family("llama-3", "llama3", overheads=_CHATML)

# The first pattern found in the model's id (lower case, without its creator) decides. Where a creator's
# newest models are not known to keep the vocabulary of the older ones, they still start from it: the
# learner is free to move.
_TABLE: tuple[tuple[str, Family], ...] = (
    (r"gpt-3\.5|gpt-4(?!o|\.)|text-embedding", Family("gpt-4", "cl100k_base", overheads=_OPENAI)),
    (r"gpt-|\bo[134]\b|codex|computer-use", Family("gpt", "o200k_base", overheads=_OPENAI)),
    # Claude 4.7 and later cut Latin letters about 1.3 times as fine, everything else as before.
    (
        r"claude.*(opus-(4[.-][7-9]|[5-9])|(sonnet|haiku)-[5-9])",
        Family("claude-4.7", like=("claude2",), scale=1.1, latin=1.3, doubt=0.3, overheads=_ANTHROPIC),
    ),
    (r"claude", Family("claude", like=("claude2",), scale=1.1, doubt=0.2, overheads=_ANTHROPIC)),
    (r"gemma-?2", Family("gemma-2", "gemma2", overheads=_GOOGLE)),
    (r"gemini|gemma", Family("gemini", "gemma4", overheads=_GOOGLE)),
    (
        r"qwen-?3\.[5-9]|qwen-?(3-)?[4-9](?!\d*b)",  # qwen3-8b is eight billion, not version 3.8
        Family("qwen-3.5", like=("qwen36",), doubt=0.1, overheads=_CHATML),
    ),
    (r"qwen|qwq|qvq", Family("qwen", "qwen3", overheads=_CHATML)),
    (r"distill-llama", _LLAMA_3),
    (r"deepseek", Family("deepseek", "deepseek_v3", overheads=_CHATML)),
    (r"llama-?4", Family("llama-4", like=("llama4",), doubt=0.1, overheads=_CHATML)),
    (r"llama-?2|tinyllama|vicuna", Family("llama-2", "llama2", overheads=_CHATML)),
    (r"code-?llama", Family("codellama", "codellama", overheads=_CHATML)),
    (r"llama-?3|llama-guard|hermes-?[34]", _LLAMA_3),
    (r"mistral-7b|mixtral", Family("mistral-spm", "mistral_v2", overheads=_MISTRAL)),
    (r"\w+stral", Family("mistral", "mistral_v3", overheads=_MISTRAL)),
    (r"kimi-?k3", Family("kimi-k3", "kimi_k3", overheads=_CHATML)),
    (r"kimi|moonshot", Family("kimi", "kimi_k2", overheads=_CHATML)),
    (r"glm-?[5-9]", Family("glm-5", like=("glm4",), doubt=0.3, overheads=_CHATML)),
    (r"glm", Family("glm", "glm4", overheads=_CHATML)),
    (r"phi-?4", Family("phi-4", "phi4", overheads=_CHATML)),
    (r"olmo", Family("olmo", "olmo2", overheads=_CHATML)),
    (r"command", Family("command", like=("commandr",), doubt=0.2, overheads=_CHATML)),
    (r"smollm", Family("smollm", like=("smollm2",), doubt=0.1, overheads=_CHATML)),
    (r"grok", Family("grok", overheads=_GROK)),
)

_COMPILED = tuple((re.compile(pattern), family) for pattern, family in _TABLE)


def _names(model: str) -> Iterator[str]:
    """The id without its creator, then the whole: `creator/family-x`, `creator:family`, a path to a file."""
    lowered = model.lower()
    head, _, tail = lowered.replace(":", "/").rpartition("/")
    yield tail
    if head:
        yield lowered


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """The family of a model; one of its own, named after it, for a model nobody told us of."""
    for name in _names(model):
        for pattern, family in _COMPILED:
            if pattern.search(name):
                return family
    return Family(f"unknown:{model.lower()}", overheads=_CHATML)


def families() -> tuple[Family, ...]:
    """Every family of the table, once."""
    return tuple({family.name: family for _, family in _TABLE}.values())


# SECTION Vocabularies: loaded on first use, safe with any text, counted in bounded time.

_log = logging.getLogger(__name__)

BASE = "o200k_base"

# A longer text is cut into pieces of about this many characters, so that one call never holds the
# interpreter for long; the cuts are at line ends and cost at most a token each.
PIECE = 250_000
# A text of more pieces than this is counted by as many of them, evenly spread.
MOST_PIECES = 16

_lock = threading.Lock()
_loaded: dict[str, Tokenizer | None] = {}


class Tokenizer:
    """One vocabulary. Counts any string and never raises."""

    def __init__(self, name: str, engine: AnyTokenizer) -> None:
        self.name = name
        self._encode = engine.encode_ordinary  # never promotes the spelling of a special token to one

    def count(self, text: str) -> int:
        found, share = pieces(text)
        return round(sum(len(self.ids(piece)) for piece in found) * share)

    def vector(self, text: str) -> Vector:
        """How many tokens of each category. Categories are those of o200k: no other vocabulary has any."""
        return spread(text, lambda piece: categories.vector(self.ids(piece)))

    def ids(self, text: str) -> list[int]:
        try:
            return self._encode(text)
        except UnicodeEncodeError:
            return self._encode(replace_surrogates(text))
        except BaseException as error:
            # An engine in Rust that panics raises a BaseException of a class that cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            _log.warning("the tokenizer %s gave up on a text of %d characters", self.name, len(text))
            return [0] * sum(count for _, count in character_vector(replace_surrogates(text)))


def spread(text: str, read: Callable[[str], Vector]) -> Vector:
    """The sum of the vectors of a text's pieces."""
    found, share = pieces(text)
    if len(found) == 1:
        return read(text)
    totals: dict[int, int] = {}
    for piece in found:
        for kind, count in read(piece):
            totals[kind] = totals.get(kind, 0) + count
    return tuple((kind, round(count * share)) for kind, count in sorted(totals.items()))


def pieces(text: str) -> tuple[list[str], float]:
    """The text in pieces; or some of them, and the share of the whole that each stands for."""
    if len(text) <= PIECE:
        return [text], 1.0
    found = list(_cut(text))
    if len(found) <= MOST_PIECES:
        return found, 1.0
    chosen = [found[number * len(found) // MOST_PIECES] for number in range(MOST_PIECES)]
    return chosen, len(text) / sum(map(len, chosen))


def _cut(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE:
        end = text.rfind("\n", start + PIECE // 2, start + PIECE) + 1 or start + PIECE
        yield text[start:end]
        start = end
    yield text[start:]


def tokenizer(name: str = BASE) -> Tokenizer | None:
    """The tokenizer of this vocabulary, loaded at the first call; `None` where it cannot be loaded."""
    try:
        return _loaded[name]
    except KeyError:
        pass
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name)
        return _loaded[name]


def _load(name: str) -> Tokenizer | None:
    try:
        import splintr

        return Tokenizer(name, splintr.Tokenizer.from_pretrained(name))
    except (ImportError, ValueError, OSError) as error:
        _log.warning("no tokenizer %s (%s): counting by characters", name, error)
        return None


# Enough of everything for the engine to compile its patterns, which takes a tenth of a second.
_SAMPLE = "Hello, world! 12345\n\tfor (let i = 0; i < 3; i++) { naïve('日本語', \"привет\") }  # 🎉\r\n" * 3


def warm(*names: str) -> threading.Thread:
    """Load these vocabularies on a thread of their own, so that the first question finds them ready."""

    def load() -> None:
        for name in names or (BASE,):
            if loaded := tokenizer(name):
                (loaded.vector if name == BASE else loaded.count)(_SAMPLE)

    thread = threading.Thread(target=load, name="warm tokenizers", daemon=True)
    thread.start()
    return thread


# SECTION The features of a text: its exact count, or its o200k tokens by category. Each text is counted once.

# Texts up to this length are their own key; longer ones are known by their digest, and not held.
_KEPT = 2_000
# Characters of short texts that one generation of the cache may hold.
_MOST = 4_000_000


class TextFeatures:
    """Vectors of texts. A family with a bundled vocabulary has one feature, the count itself.

    Threads may share it, and count at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._recent: dict[str | None, LruCache[str | bytes, Vector]] = {}

    def vector(self, family: Family, text: str) -> Vector:
        if not text:
            return ()
        key = text if len(text) <= _KEPT else sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            recent = self._recent.setdefault(family.vocabulary, LruCache(_MOST))
            found = recent.get(key)
        if found is None:
            found = _exact(family.vocabulary, text) if family.vocabulary else _categories(text)
            with self._lock:
                recent.put(key, found, min(len(text), _KEPT) + 100)
        return found


def _exact(vocabulary: str, text: str) -> Vector:
    loaded = tokenizer(vocabulary)
    if loaded is None:
        return ((0, sum(count for _, count in _categories(text))),)
    return ((0, loaded.count(text)),)


def _categories(text: str) -> Vector:
    loaded = tokenizer(BASE)
    return loaded.vector(text) if loaded else spread(replace_surrogates(text), character_vector)
