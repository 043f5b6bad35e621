"""What was changed in a history, in sentences for a person and in numbers for a program."""

from __future__ import annotations

from collections import Counter

# A history can be wrong in a thousand places; the log gets the first of them, the counts have all.
SENTENCE_LIMIT = 50


class Changes:
    """Collects while one history is made legal. Sentences name tools and sizes, never what was said."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._sentences: dict[str, None] = {}

    def say(self, kind: str, sentence: str) -> None:
        self.counts[kind] += 1
        if len(self._sentences) < SENTENCE_LIMIT:
            self._sentences.setdefault(sentence)

    def count(self, kind: str) -> None:
        """Something that changes the form alone, and that nobody needs to be told of every turn."""
        self.counts[kind] += 1

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)
