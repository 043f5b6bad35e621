"""Tool names and call ids that every provider accepts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2s
from itertools import count

MAX_NAME = 64
VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_LENGTH = 8


def is_valid_name(name: str) -> bool:
    """Return whether every provider accepts a tool name or a call id."""
    return VALID_NAME.match(name) is not None


class Names:
    """A one-to-one mapping of the tool names of one request to valid names. Valid names do not change."""

    def __init__(self, names: Iterable[str]) -> None:
        distinct = dict.fromkeys(names)
        self._sent = {name: name for name in distinct if is_valid_name(name)}
        used = set(self._sent)
        for name in distinct:
            if name not in self._sent:
                self._sent[name], _ = _unused_name(name, used)
                used.add(self._sent[name])
        self._original = {sent: name for name, sent in self._sent.items()}

    def out(self, name: str) -> str:
        """Return the name to send for a name of the caller."""
        return self._sent[name]

    def back(self, name: str) -> str:
        """Return the caller's name for a sent name. A name that the model made up is returned unchanged."""
        return self._original.get(name, name)

    @property
    def changed(self) -> dict[str, str]:
        """The sent names by the caller's names, for those that differ."""
        return {name: sent for name, sent in self._sent.items() if name != sent}


class CallIds:
    """Assigns unique, valid call ids. Some servers count from `call_0` in every answer."""

    def __init__(self, ids: Iterable[str]) -> None:
        # Reserved for their first call, so that a longer history does not change earlier ids.
        self._reserved = {id_ for id_ in ids if is_valid_name(id_)}
        self._used: set[str] = set()
        self._attempts: Counter[str] = Counter()  # by id, to find the next unused name at once

    def assign(self, id_: str) -> str:
        """Return the id itself if it is valid and unused, else a new one."""
        new_id = id_
        if not is_valid_name(id_) or id_ in self._used:
            new_id, self._attempts[id_] = _unused_name(
                id_, self._used, self._reserved, first=self._attempts[id_]
            )
        self._used.add(new_id)
        return new_id


def _unused_name(
    name: str, used: AbstractSet[str], reserved: AbstractSet[str] = frozenset(), *, first: int = 0
) -> tuple[str, int]:
    """Return an unused valid name: the valid characters of the name, and a digest of all of it.

    The second value is the number of the attempt to continue with, as `first`, for another name.
    """
    stem = _INVALID_CHARACTERS.sub("_", name).strip("_")[: MAX_NAME - _DIGEST_LENGTH - 1] or "unnamed"
    for attempt in count(first):
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        candidate = f"{stem}_{blake2s(seed).hexdigest()[:_DIGEST_LENGTH]}"
        if candidate not in used and candidate not in reserved:
            return candidate, attempt + 1
    raise AssertionError("the attempts are unlimited")
