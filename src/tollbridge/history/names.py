"""Names and ids as every provider takes them, and the way back to what the editor calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2s

MAX_NAME = 64
LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST = 8


def is_legal(name: str) -> bool:
    return LEGAL.match(name) is not None


class Names:
    """The names of one request, one to one. A name that is legal stays what it is."""

    def __init__(self, names: Iterable[str]) -> None:
        given = dict.fromkeys(names)
        self._out = {name: name for name in given if is_legal(name)}
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
        self._reserved = {id_ for id_ in ids if is_legal(id_)}
        self._taken: set[str] = set()

    def give(self, id_: str) -> str:
        is_free = is_legal(id_) and id_ not in self._taken
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
