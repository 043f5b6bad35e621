"""The quirks of a server: what was measured there, laid over what is known of servers like it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tollbridge.core.quirks import Quirks
from tollbridge.profiles.kept import kept_profile
from tollbridge.profiles.shipped import known_server


def find_quirks(
    base_url: str, model: str, folder: Path | None = None, *, owners: Collection[str] = ()
) -> Quirks | None:
    """`None` where nothing is known. `owners` are those that the server's list of models names.

    Raises `UnreadableProfile` where a file is not what it should be.
    """
    known = known_server(base_url, owners=owners)
    quirks = known.quirks if known else None
    kept = kept_profile(base_url, folder)
    return quirks if kept is None else kept.of(model, quirks)
