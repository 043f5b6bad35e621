"""A lock on the database, as another process holds it while it writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, lock: str = "IMMEDIATE") -> Iterator[None]:
    """Hold a lock on the database file through another connection."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"BEGIN {lock}")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()
