"""What a message may hold: texts that are whole, and images and files the reader takes.

What cannot be sent is replaced by a note in its place, so that the model knows there was something.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2s

import msgspec

from tollbridge.types.media import UNKNOWN, detect_mime, fingerprint, is_text
from tollbridge.types.messages import DataPart, TextPart
from tollbridge.types.reasoning import Origin
from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, replace_surrogates, split_text

# SECTION What was changed in a history, in sentences for a person and in numbers for a program.

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


# SECTION What the model and the server at the other end take, as far as a history is concerned.


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are a server that takes everything the protocol has.

    `origin` is who will read the history: reasoning of anyone else is left out. Where it is `None`, reasoning
    that has a proof is taken to be the reader's own. `refused` are the proofs (by `digest`) and the files
    (by `fingerprint`) that this reader has turned down before, `spoken` the ids of calls that it takes as
    text alone.
    """

    images: bool = True
    files: bool = True
    # Whether the result of a tool may hold more than text, and whether calls may be sent at all.
    rich_results: bool = True
    calls: bool = True
    reasoning: bool = True
    # Whether there is any role for a system prompt.
    system: bool = True
    origin: Origin | None = None
    refused: frozenset[str] = frozenset()
    spoken: frozenset[str] = frozenset()


# SECTION Names and ids as every provider takes them, and the way back to what the editor calls them.

MAX_NAME = 64
VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST = 8


def is_valid_name(name: str) -> bool:
    return VALID_NAME.match(name) is not None


class Names:
    """The names of one request, one to one. A name that is legal stays what it is."""

    def __init__(self, names: Iterable[str]) -> None:
        given = dict.fromkeys(names)
        self._out = {name: name for name in given if is_valid_name(name)}
        taken = set(self._out)
        for name in given:
            if name not in self._out:
                self._out[name] = _free(name, taken)
                taken.add(self._out[name])
        self._back = {sent: name for name, sent in self._out.items()}

    def out(self, name: str) -> str:
        return self._out[name]

    def back(self, name: str) -> str:
        """What the editor calls it. A name that was never sent is the model's own invention, and stays."""
        return self._back.get(name, name)

    @property
    def changed(self) -> dict[str, str]:
        return {name: sent for name, sent in self._out.items() if name != sent}


class CallIds:
    """Ids of calls, each given out once: servers count from `call_0` in every turn."""

    def __init__(self, ids: Iterable[str]) -> None:
        # Reserved for their first owner, so that a longer history changes none of the ids before.
        self._reserved = {id_ for id_ in ids if is_valid_name(id_)}
        self._taken: set[str] = set()

    def give(self, id_: str) -> str:
        is_free = is_valid_name(id_) and id_ not in self._taken
        given = id_ if is_free else _free(id_, self._taken | self._reserved)
        self._taken.add(given)
        return given


def _free(name: str, taken: set[str]) -> str:
    """A legal name nobody has: what is legible of the old one, and a digest of all of it."""
    stem = _ILLEGAL.sub("_", name).strip("_")[: MAX_NAME - _DIGEST - 1] or "unnamed"
    for attempt in range(len(taken) + 1):
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        found = f"{stem}_{blake2s(seed).hexdigest()[:_DIGEST]}"
        if found not in taken:
            return found
    raise AssertionError("more names than taken ones cannot all be taken")


# SECTION What a message may hold: texts that are whole, and images and files the reader takes.
#
# What cannot be sent is replaced by a note in its place, so that the model knows there was something.

_MIME = re.compile(r"[a-z0-9][a-z0-9.+_-]*/[a-z0-9][a-z0-9.+_-]*\Z")


def valid_content(part: TextPart | DataPart, target: Receiver, changes: Changes) -> list[TextPart | DataPart]:
    """The part as the reader takes it: itself, several, a note, or nothing where there was nothing."""
    if isinstance(part, TextPart):
        return _text(part.text, changes)
    mime = _mime(part)
    if is_text(mime):
        try:
            return _text(part.data.decode(), changes)
        except UnicodeDecodeError:
            mime = UNKNOWN
    problem = _problem(part, mime, target)
    if problem is None:
        return [DataPart(part.data, mime, part.name and replace_surrogates(part.name))]
    what = "image" if mime.startswith("image/") else "file"
    size = f"{mime}, {len(part.data):,} bytes"
    changes.say(
        what,
        f"An {what} ({size}) was left out: {problem}."
        if what == "image"
        else f"A {what} ({size}) was left out: {problem}.",
    )
    return [TextPart(f"[{what}, {size}, left out: {problem}]")]


def _text(text: str, changes: Changes) -> list[TextPart | DataPart]:
    sent = replace_surrogates(text)
    if sent != text:
        changes.say("characters", "Broken characters in a text were replaced.")
    if not sent:
        return []
    found = split_text(sent)
    if len(found) > 1:
        changes.say("oversized", f"A text of {len(sent):,} characters was sent in {len(found)} pieces.")
    return [TextPart(piece) for piece in found]


def _mime(part: DataPart) -> str:
    mime = detect_mime(part.data, part.mime)
    return mime if _MIME.match(mime) else UNKNOWN


def _problem(part: DataPart, mime: str, target: Receiver) -> str | None:
    is_image = mime.startswith("image/")
    limit = MAX_IMAGE_URL if is_image else MAX_FILE_DATA
    if not part.data:
        return "it is empty"
    if is_image and not target.images:
        return "the model takes no images"
    if not is_image and not target.files:
        return "the model takes no files"
    if target.refused and fingerprint(part.data) in target.refused:
        return "the gateway refused it before"
    if len(f"data:{mime};base64,") + (len(part.data) + 2) // 3 * 4 > limit:
        return f"it is larger than the {limit // (1024 * 1024)} MiB that can be sent"
    return None
