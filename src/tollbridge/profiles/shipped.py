"""The servers Tollbridge knows: how each is recognised, and its quirks. The data is in `data/`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec

from tollbridge.core.addresses import is_here
from tollbridge.core.quirks import Quirks


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server is recognised by; one that fits is enough.

    `ports` count on this very machine alone. `headers` are those of any reply, with the beginning of their
    value; `owners` are what the list of models names as `owned_by`.
    """

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    headers: Mapping[str, str] = {}
    owners: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    marks: Marks
    quirks: Quirks = Quirks()


@cache
def known_servers() -> tuple[Known, ...]:
    folder = files("tollbridge.profiles") / "data"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(msgspec.toml.decode((folder / name).read_bytes(), type=Known) for name in names)


def known_quirks(name: str) -> Quirks:
    """The quirks of a server that needs no recognising: whoever asks has started it."""
    return next(known.quirks for known in known_servers() if known.name == name)


def known_server(
    base_url: str, headers: Mapping[str, str] | None = None, owners: Collection[str] = ()
) -> Known | None:
    """The server at a base URL. What it says of itself counts for more than where it is."""
    said = [known for known in known_servers() if _says_so(known.marks, headers or {}, owners)]
    placed = [known for known in known_servers() if _is_at(known.marks, base_url)]
    return next(iter([*said, *placed]), None)


def _says_so(marks: Marks, headers: Mapping[str, str], owners: Collection[str]) -> bool:
    if any(owner in owners for owner in marks.owners):
        return True
    return any(
        name in headers and headers[name].startswith(beginning) for name, beginning in marks.headers.items()
    )


def _is_at(marks: Marks, base_url: str) -> bool:
    try:
        place = urlsplit(base_url)
        port = place.port
    except ValueError:
        return False
    host = place.hostname or ""
    return host in marks.hosts or (port in marks.ports and is_here(host))
