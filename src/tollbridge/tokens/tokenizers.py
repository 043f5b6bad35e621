"""Tokenizers: select the tokenizer of a model, load its vocabulary, and count text with it.

`family_of` maps a model id to its tokenizer family. `tokenizer` loads a bundled vocabulary on first use.
`TextFeatures` counts a text for a family, exactly or by cluster of o200k tokens, and caches the result.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from tollbridge.tokens.features import (
    Features,
    TokenTable,
    Vector,
    add_vectors,
    count_features,
    estimate_categories,
    shipped_table,
)
from tollbridge.tokens.limits import LIMITS
from tollbridge.types.models import ID_LIMIT
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:
    from splintr import AnyTokenizer


K = TypeVar("K")
V = TypeVar("V")


# --- Cache ---


class LruCache(Generic[K, V]):
    """A cache of approximately the most recently used values, about as fast as a dictionary. Thread-safe.

    It has two generations: when the newer one is full, the older one is dropped.

    Args:
        limit: The total weight of one generation.
        weigh: Returns the weight of a key and its value; 1 by default.

    Attributes:
        recent: The newer generation, to be read by callers to whom a call of `get` is too slow.
    """

    def __init__(self, limit: int, weigh: Callable[[K, V], int] | None = None) -> None:
        self._limit = limit
        self._weigh = weigh
        self._weight = 0
        self.recent: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        value = self.recent.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        weight = self._weigh(key, value) if self._weigh else 1
        with self._lock:
            self._weight += weight
            if self._weight > self._limit:
                self._old, self.recent = self.recent, {}
                self._weight = weight
            self.recent[key] = value

    def clear(self) -> None:
        with self._lock:
            self.recent, self._old, self._weight = {}, {}, 0


# --- Families ---


class Overheads(msgspec.Struct, frozen=True):
    """The tokens that a provider adds to the text, before learning: documented or measured by others.

    Attributes:
        base: Per prompt.
        message: Per message.
        tools_scale: Per token of the tools' compact JSON.
        tools_present: Per prompt with tools.
        tool: Per tool.
    """

    base: float = 3.0
    message: float = 4.0
    tools_scale: float = 1.0
    tools_present: float = 60.0
    tool: float = 8.0


class Family(msgspec.Struct, frozen=True):
    """Models with the same tokenizer.

    Attributes:
        name: The name under which the family's weights are stored.
        vocabulary: A bundled vocabulary, exact for these models. If `None`, text is counted in weighted
            clusters of o200k tokens, with the prior that the other fields describe.
        like: The known tokenizer it resembles (see `TokenTable.known`); the mean of all if `None`.
        scale: Factor for all weights.
        latin: Factor for the weights of Latin letters.
        doubt: Uncertainty of the weights, as a share of the spread of the known tokenizers.
        overheads: What the provider adds to the text.
    """

    name: str
    vocabulary: str | None = None
    like: str | None = None
    scale: float = 1.0
    latin: float = 1.0
    doubt: float = 1.0
    overheads: Overheads = Overheads()

    @property
    def is_known(self) -> bool:
        """Whether its tokenizer, or one like it, is known."""
        return self.vocabulary is not None or self.like is not None


# OpenAI renders tools as TypeScript: 0.85 tokens per token of their JSON, with everything around each tool.
_OPENAI = Overheads(base=3, message=4, tools_scale=0.85, tools_present=24, tool=0)
_ANTHROPIC = Overheads(base=6, message=3, tools_scale=1.05, tools_present=400, tool=10)
# Google counts the texts of the tools, 0.75 tokens per token of their JSON; newer models add something for
# each tool and property.
_GOOGLE = Overheads(base=1, message=2, tools_scale=0.85, tools_present=0, tool=2)
_CHATML = Overheads(base=3, message=4, tools_scale=1.0, tools_present=140, tool=20)
_MISTRAL = Overheads(base=1, message=2, tools_scale=1.0, tools_present=60, tool=20)
_GROK = Overheads(base=155, message=4, tools_scale=1.0, tools_present=60, tool=10)
_LLAMA_3 = Family("llama-3", "llama3", overheads=_CHATML)

# The first pattern found in the model id (lower case, without its creator) decides. If it is not known
# whether a creator's newest models use the vocabulary of the older ones, they start from it, and the learner
# corrects it.
_TABLE: tuple[tuple[str, Family], ...] = (
    (r"gpt-3\.5|gpt-4(?!o|\.)|text-embedding", Family("gpt-4", "cl100k_base", overheads=_OPENAI)),
    (r"gpt-|\bo[134]\b|codex|computer-use", Family("gpt", "o200k_base", overheads=_OPENAI)),
    # Claude 4.7 and later make about 1.3 times as many tokens of Latin letters, and as many of the rest.
    (
        r"claude.{0,40}(opus-(4[.-][7-9]|[5-9])|(sonnet|haiku)-[5-9])",
        Family("claude-4.7", like="claude2", scale=1.1, latin=1.3, doubt=0.3, overheads=_ANTHROPIC),
    ),
    (r"claude", Family("claude", like="claude2", scale=1.1, doubt=0.2, overheads=_ANTHROPIC)),
    (r"gemma-?2", Family("gemma-2", "gemma2", overheads=_GOOGLE)),
    (r"gemini|gemma", Family("gemini", "gemma4", overheads=_GOOGLE)),
    (
        r"qwen-?3\.[5-9]|qwen-?(3-)?[4-9](?!\d*b)",  # qwen3-8b has 8 billion parameters, it is not 3.8
        Family("qwen-3.5", like="qwen36", doubt=0.1, overheads=_CHATML),
    ),
    (r"qwen|qwq|qvq", Family("qwen", "qwen3", overheads=_CHATML)),
    (r"distill-llama", _LLAMA_3),
    (r"deepseek", Family("deepseek", "deepseek_v3", overheads=_CHATML)),
    (r"llama-?4", Family("llama-4", like="llama4", doubt=0.1, overheads=_CHATML)),
    (r"llama-?2|tinyllama|vicuna", Family("llama-2", "llama2", overheads=_CHATML)),
    (r"code-?llama", Family("codellama", "codellama", overheads=_CHATML)),
    (r"llama-?3|llama-guard|hermes-?[34]", _LLAMA_3),
    (r"mistral-7b|mixtral", Family("mistral-spm", "mistral_v2", overheads=_MISTRAL)),
    (r"\wstral", Family("mistral", "mistral_v3", overheads=_MISTRAL)),
    (r"kimi-?k3", Family("kimi-k3", "kimi_k3", overheads=_CHATML)),
    (r"kimi|moonshot", Family("kimi", "kimi_k2", overheads=_CHATML)),
    (r"glm-?[5-9]", Family("glm-5", like="glm4", doubt=0.3, overheads=_CHATML)),
    (r"glm", Family("glm", "glm4", overheads=_CHATML)),
    (r"phi-?4", Family("phi-4", "phi4", overheads=_CHATML)),
    (r"olmo", Family("olmo", "olmo2", overheads=_CHATML)),
    (r"command", Family("command", like="commandr", doubt=0.2, overheads=_CHATML)),
    (r"smollm", Family("smollm", like="smollm2", doubt=0.1, overheads=_CHATML)),
    (r"grok", Family("grok", overheads=_GROK)),
)

_COMPILED = tuple((re.compile(pattern), family) for pattern, family in _TABLE)


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """Return the tokenizer family of a model. An unknown model gets a family of its own, with its name."""
    lowered = model[:ID_LIMIT].lower()
    # The id without its creator, then all of it: `creator/family-x`, `creator:family`, a file path.
    for name in (lowered.replace(":", "/").rpartition("/")[2], lowered):
        for pattern, family in _COMPILED:
            if pattern.search(name):
                return family
    # A name from a command line can have lone surrogates, which cannot be stored.
    return Family(f"unknown:{replace_surrogates(model[:ID_LIMIT]).lower()}", overheads=_CHATML)


# --- Vocabularies ---

_log = logging.getLogger(__name__)

BASE = "o200k_base"

_lock = threading.Lock()
_loaded: dict[str, Tokenizer | None] = {}


# How the special tokens of most vocabularies begin. The search for one character is much faster than for two.
_SPECIAL, _SPECIAL_CHARACTER = "<|", "|"


class Tokenizer:
    """One vocabulary. Counts any string, and never raises."""

    def __init__(self, name: str, engine: AnyTokenizer) -> None:
        self.name = name
        self._encode = engine.encode_ordinary  # encodes the spelling of a special token as text
        # Returns four bytes per token, which is faster, but takes the spelling of a special token for it.
        self._encode_flat = engine.encode_flat
        self._has_marked_specials = all(name.startswith(_SPECIAL) for name in engine.special_tokens())

    def count(self, text: str) -> int:
        if len(text) <= LIMITS.piece:
            return self._count(text)
        parts, scale = pieces(text)
        return round(sum(map(self._count, parts)) * scale)

    def _count(self, text: str) -> int:
        if self._has_marked_specials and (_SPECIAL_CHARACTER not in text or _SPECIAL not in text):
            try:
                return len(self._encode_flat(text)) // 4
            except BaseException as error:
                if not (isinstance(error, UnicodeEncodeError) or _is_panic(error)):
                    raise
        return len(self.ids(text))

    def ids(self, text: str) -> list[int]:
        try:
            return self._encode(text)
        except UnicodeEncodeError:
            return self._encode(replace_surrogates(text))
        except BaseException as error:
            if not _is_panic(error):
                raise
            _log.warning(
                "tokenizer %s failed on a text of %d characters; using an estimate", self.name, len(text)
            )
            return [0] * sum(count for _, count in estimate_categories(replace_surrogates(text)))


def _is_panic(error: BaseException) -> bool:
    """Whether an exception is a panic in Rust: a `BaseException` of a class that cannot be imported."""
    return type(error).__name__ == "PanicException"


def sum_pieces(text: str, count: Callable[[str], Vector]) -> Vector:
    """Count the pieces of a text, and return the sum."""
    parts, scale = pieces(text)
    if len(parts) == 1:
        return count(text)
    totals = sorted(add_vectors(map(count, parts)))
    return tuple((kind, round(tokens * scale)) for kind, tokens in totals)


def pieces(text: str) -> tuple[list[str], float]:
    """Split a text into pieces.

    Returns:
        The pieces, or a sample of them if there are many, and the factor by which to multiply their sum.
    """
    if len(text) <= LIMITS.piece:
        return [text], 1.0
    parts = list(_split(text))
    if len(parts) <= LIMITS.pieces:
        return parts, 1.0
    sample = [parts[number * len(parts) // LIMITS.pieces] for number in range(LIMITS.pieces)]
    return sample, len(text) / sum(map(len, sample))


def _split(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > LIMITS.piece:
        end = text.rfind("\n", start + LIMITS.piece // 2, start + LIMITS.piece) + 1 or start + LIMITS.piece
        yield text[start:end]
        start = end
    yield text[start:]


def tokenizer(name: str = BASE) -> Tokenizer | None:
    """Return the tokenizer of a vocabulary, loaded on first use; `None` if it cannot be loaded."""
    if name not in _loaded:
        with _lock:
            if name not in _loaded:
                _loaded[name] = _load(name)
    return _loaded[name]


def _load(name: str) -> Tokenizer | None:
    try:
        import splintr

        return Tokenizer(name, splintr.Tokenizer.from_pretrained(name))
    except (ImportError, ValueError, OSError) as error:
        _log.warning("cannot load tokenizer %s (%s); token counts are estimated from characters", name, error)
        return None


# A text of many scripts, to make the engine compile its patterns, which takes a tenth of a second.
_SAMPLE = "Hello, world! 12345\n\tfor (let i = 0; i < 3; i++) { naïve('日本語', \"привет\") }  # 🎉\r\n" * 3


def warm(*names: str) -> threading.Thread:
    """Load these vocabularies on a background thread, so that the first count is quick; return the thread."""

    def load() -> None:
        for name in names or (BASE,):
            if loaded := tokenizer(name):
                loaded.count(_SAMPLE)
            if name == BASE:
                shipped_table()

    thread = threading.Thread(target=load, name="warm tokenizers", daemon=True)
    thread.start()
    return thread


# --- Features of texts ---

TextKey = str | tuple[int, int]


def text_key(text: str) -> TextKey:
    """Return a cache key for a text: of a long one, its hash and length, so that the cache does not keep it.

    Python computes the hash of a string once.
    """
    return text if len(text) <= LIMITS.text_key else (hash(text), len(text))


class TextFeatures:
    """Counts texts and caches the results. Thread-safe; threads can count at the same time.

    For a family with a bundled vocabulary, there is one feature: the exact number of tokens. For any other
    family, the features are the clusters of the o200k tokens.
    """

    def __init__(self, table: TokenTable | None = None) -> None:
        self._table = table
        self._caches: defaultdict[str | None, LruCache[TextKey, Features]]
        self._caches = defaultdict(
            lambda: LruCache(
                LIMITS.text_bytes, lambda key, features: len(key) + len(features) + LIMITS.entry_bytes
            )
        )

    def vector(self, family: Family, text: str) -> Vector:
        """Return the number of tokens by cluster."""
        return count_features(self.features(family, text))

    def features(self, family: Family, text: str) -> Features:
        if not text:
            return ()
        vocabulary, key = family.vocabulary, text_key(text)
        cache = self._caches[vocabulary]
        features = cache.get(key)
        if features is None:
            if vocabulary:
                loaded = tokenizer(vocabulary)
                estimate = () if loaded else sum_pieces(replace_surrogates(text), estimate_categories)
                features = ((0, loaded.count(text) if loaded else sum(count for _, count in estimate)),)
            else:
                features = _find_clusters(text, self._table or shipped_table())
            cache.put(key, features)
        return features


def _find_clusters(text: str, table: TokenTable) -> Features:
    loaded = tokenizer(BASE)
    if loaded is None:
        return sum_pieces(replace_surrogates(text), table.estimate)
    if len(text) <= LIMITS.piece:
        return table.find_clusters(loaded.ids(text))
    return sum_pieces(text, lambda piece: count_features(table.find_clusters(loaded.ids(piece))))
