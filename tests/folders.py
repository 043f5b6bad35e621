"""Tell in which folder of `tests` a test file is."""

from __future__ import annotations

import functools
from pathlib import Path

_TESTS = Path(__file__).parent


@functools.cache
def is_in(path: Path, folders: tuple[str, ...]) -> bool:
    """Tell whether a test file is in one of these folders, given relative to `tests`."""
    return any(_TESTS / folder in path.parents for folder in folders)
