"""What we remember: one SQLite file, shared safely by several windows."""

from tollbridge.store.database import Database, StoreUnusable
from tollbridge.store.ledger import LedgerTables

__all__ = ["Database", "LedgerTables", "StoreUnusable"]
