"""Make the texts, images and files of a history valid, and record the changes.

Content that cannot be sent is replaced by a note at its position, so that the model knows that it existed.
"""

from __future__ import annotations

import re
from collections import Counter

from tollbridge.types.media import UNKNOWN, detect_mime, fingerprint, is_text
from tollbridge.types.messages import DataPart, TextPart
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, replace_surrogates, split_text

# The sentences stored for one history. The counts include all changes.
SENTENCE_LIMIT = 50
_MIME = re.compile(r"[a-z0-9][a-z0-9.+_-]*/[a-z0-9][a-z0-9.+_-]*\Z")


class Changes:
    """The changes made to one history: sentences for people, counts by kind for programs.

    The sentences contain tool names and sizes, never the text of messages.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._sentences: dict[str, None] = {}

    def add(self, kind: str, sentence: str) -> None:
        """Count a change and store its description."""
        self.counts[kind] += 1
        if len(self._sentences) < SENTENCE_LIMIT:
            self._sentences.setdefault(sentence)

    def count(self, kind: str) -> None:
        """Count a change of form only, which needs no description."""
        self.counts[kind] += 1

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)


def valid_content(
    part: TextPart | DataPart, learned: LearnedQuirks, changes: Changes
) -> list[TextPart | DataPart]:
    """Convert a part to content that the server accepts.

    Returns:
        The part itself, its pieces if it is too long, a note if it cannot be sent, or nothing if it is empty.
    """
    if isinstance(part, TextPart):
        return _valid_text(part.text, changes)
    mime = detect_mime(part.data, part.mime)
    if not _MIME.match(mime):
        mime = UNKNOWN
    if is_text(mime):
        try:
            return _valid_text(part.data.decode(), changes)
        except UnicodeDecodeError:
            mime = UNKNOWN
    problem = _find_problem(part, mime, learned)
    if problem is None:
        return [DataPart(part.data, mime, part.name and replace_surrogates(part.name))]
    kind, article = ("image", "an") if mime.startswith("image/") else ("file", "a")
    size = f"{mime}, {len(part.data):,} bytes"
    changes.add(kind, f"Removed {article} {kind} ({size}): {problem}.")
    return [TextPart(f"[{kind}, {size}, removed: {problem}]")]


def _valid_text(text: str, changes: Changes) -> list[TextPart | DataPart]:
    valid = replace_surrogates(text)
    if valid != text:
        changes.add("characters", "Replaced invalid characters in a text.")
    if not valid:
        return []
    pieces = split_text(valid)
    if len(pieces) > 1:
        changes.add("oversized", f"Split a text of {len(valid):,} characters into {len(pieces)} parts.")
    return [TextPart(piece) for piece in pieces]


def _find_problem(part: DataPart, mime: str, learned: LearnedQuirks) -> str | None:
    """Return why an image or a file cannot be sent, or `None`."""
    is_image = mime.startswith("image/")
    limit = MAX_IMAGE_URL if is_image else MAX_FILE_DATA
    if not part.data:
        return "it is empty"
    if is_image and not learned.quirks.images:
        return "the model does not accept images"
    if not is_image and not learned.quirks.files:
        return "the model does not accept files"
    if learned.refused and fingerprint(part.data) in learned.refused:
        return "the gateway refused it before"
    if len(f"data:{mime};base64,") + (len(part.data) + 2) // 3 * 4 > limit:
        return f"it is larger than the limit of {limit // (1024 * 1024)} MiB"
    return None
