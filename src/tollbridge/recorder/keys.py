"""Hide keys in texts and streams.

Keys are also recognized where JSON escapes some of their characters. A key of fewer than `SHORT_KEY`
characters is hidden only as a whole word: some servers accept any text as a key, and a recording in which
every "a" is an asterisk is useless. Within a longer word, nobody can tell such a key from other text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tollbridge.types.errors import SHORT_KEY

# The escapes of JSON that can stand for a character of a key, other than a quote or a backslash.
_ESCAPES = (b"\\u00", b"\\/")
# The most bytes of one escaped character: up to 16 backslashes, in JSON that is nested, and `u002d`.
_ESCAPED_SIZE = 21
# A word starts after a character that is no letter or digit, or after an escape.
_WORD_START = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
_CONTEXT = 16  # enough for these, and for the backslashes of an escape

# The start and the end of a key.
Span = tuple[int, int]


def hide_keys(data: bytes, keys: Iterable[str]) -> bytes:
    """Replace every key by asterisks."""
    return _replace(data, _find_keys(data, frozenset(keys)))


def contains_key(data: bytes, keys: Iterable[str]) -> bool:
    """Return whether `hide_keys` would change the data."""
    return bool(_find_keys(data, frozenset(keys)))


def _find_keys(data: bytes, keys: frozenset[str], start: int = 0) -> list[Span]:
    """Return the places of the keys in the data from `start` on."""
    if not keys or not (_needs_pattern(data, keys) or any(key.encode() in data for key in keys)):
        return []
    return [match.span() for match in _key_pattern(keys).finditer(data, start)]


def _needs_pattern(data: bytes, keys: frozenset[str]) -> bool:
    """Return whether the keys can occur in another form than their own."""
    return any(escape in data for escape in _ESCAPES) or any('"' in key or "\\" in key for key in keys)


def _replace(data: bytes, spans: Iterable[Span]) -> bytes:
    redacted = bytearray(data)
    for start, end in spans:
        redacted[start:end] = b"*" * (end - start)
    return bytes(redacted)


@lru_cache(maxsize=64)
def _key_pattern(keys: frozenset[str]) -> re.Pattern[bytes]:
    """Return a pattern for keys in plain text and in JSON, which can be nested in strings of JSON."""
    patterns = []
    for key in sorted(keys, key=len, reverse=True):  # a key can be a part of another one
        # All backslashes before the first character belong to its escape.
        pattern = rb"(?:(?<!\\)|(?!\\))" + b"".join(map(_character_pattern, key))
        if len(key) < SHORT_KEY:
            pattern = _WORD_START + pattern + rb"(?![A-Za-z0-9])"
        patterns.append(pattern)
    return re.compile(b"|".join(patterns))


def _character_pattern(character: str) -> bytes:
    literal = re.escape(character.encode())
    forms = [rb"\\{1,16}u00(?i:%02x)" % ord(character), literal]
    if character in '/"\\':
        forms.insert(0, rb"\\{1,16}" + literal)
    return b"(?:" + b"|".join(forms) + b")"


class KeyRedactor:
    """Hides keys in a stream of bytes. Belongs to one response.

    Bytes that may be the start of a key are held back until the next call.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self._longest = max((len(key.encode()) for key in self._keys), default=0)
        self._before = b""  # the last bytes that were returned: they decide whether a word starts after them
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        if not self._keys:
            return data
        data, start = self._before + self._rest + data, len(self._before)
        spans = _find_keys(data, self._keys, start)
        end = len(data)
        if not last:
            end = max(start, end - self._held_back(data))
            spans = [span for span in spans if span[0] < end]
            end = max([end, *(span[1] for span in spans)])
        self._before, self._rest = data[max(0, end - _CONTEXT) : end], data[end:]
        return _replace(data, spans)[start:end]

    def _held_back(self, data: bytes) -> int:
        """Return how many bytes at the end can be the start of a key."""
        longest = self._longest * _ESCAPED_SIZE
        has_escapes = _needs_pattern(data[-longest:], self._keys) or b"\\" in data[-_ESCAPED_SIZE:]
        return longest if has_escapes else self._longest
