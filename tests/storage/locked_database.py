"""Lock a database, as another process that writes to it would."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path, lock: str = "IMMEDIATE") -> Iterator[None]:
    """As another window would hold the store."""
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute(f"BEGIN {lock}")
        yield
        holder.execute("ROLLBACK")
    finally:
        holder.close()
