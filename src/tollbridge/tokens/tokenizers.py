"""Vocabularies: loaded on first use, safe with any text, counted in bounded time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tollbridge.core.texts import mended
from tollbridge.tokens import categories
from tollbridge.tokens.categories import Vector
from tollbridge.tokens.characters import character_vector

if TYPE_CHECKING:
    from splintr import AnyTokenizer

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
            return self._encode(mended(text))
        except BaseException as error:
            # An engine in Rust that panics raises a BaseException of a class that cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            _log.warning("the tokenizer %s gave up on a text of %d characters", self.name, len(text))
            return [0] * sum(count for _, count in character_vector(mended(text)))


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
