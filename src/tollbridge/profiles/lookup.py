"""The quirks of a server: what was measured there, else what is known of servers like it."""

from __future__ import annotations

from pathlib import Path

from tollbridge.core.quirks import Quirks
from tollbridge.profiles.kept import kept_profile
from tollbridge.profiles.shipped import known_server


def find_quirks(base_url: str, model: str, folder: Path | None = None) -> Quirks | None:
    """`None` where nothing is known. Raises `UnreadableProfile` where a file is not what it should be."""
    kept = kept_profile(base_url, folder)
    if kept is not None:
        return kept.of(model)
    known = known_server(base_url)
    return known.quirks if known else None
