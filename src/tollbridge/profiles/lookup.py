"""The profile for a base URL: the one that was measured there, else what is known of such a server."""

from __future__ import annotations

from pathlib import Path

from tollbridge.core.profile import Profile
from tollbridge.profiles.kept import kept_profile
from tollbridge.profiles.shipped import known_server


def find_profile(base_url: str, folder: Path | None = None) -> Profile | None:
    """`None` where nothing is known. Raises `UnreadableProfile` where a file is not what it should be."""
    kept = kept_profile(base_url, folder)
    if kept is not None:
        return kept
    known = known_server(base_url)
    return known.profile if known else None
