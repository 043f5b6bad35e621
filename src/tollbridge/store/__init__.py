"""What we remember: one SQLite file, shared safely by several windows."""

from tollbridge.store.database import Database, StoreBusy, StoreUnusable
from tollbridge.store.ledger import LedgerTables
from tollbridge.store.usage import UsageRow, UsageTable

__all__ = ["Database", "LedgerTables", "StoreBusy", "StoreUnusable", "UsageRow", "UsageTable"]
