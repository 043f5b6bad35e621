"""The tables, as steps: a file of any age is brought up to date by the steps it has not had."""

from __future__ import annotations

# A step is never changed once released; a new table or column is a new step at the end. The number of
# steps a file has had is its `user_version`.
STEPS: tuple[str, ...] = (
    # The rowid is the age in all of these: what is put again becomes the youngest.
    """
    CREATE TABLE prefix (
        id INTEGER PRIMARY KEY,
        chain BLOB NOT NULL,
        toolset BLOB NOT NULL,
        tokens INTEGER NOT NULL,
        loop INTEGER NOT NULL,
        UNIQUE (chain, toolset)
    );
    CREATE TABLE measured (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        tokens INTEGER NOT NULL,
        reasoning INTEGER NOT NULL
    );
    CREATE TABLE learned (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
    );
    CREATE TABLE outcome (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL DEFAULT (unixepoch()),
        model TEXT NOT NULL,
        method TEXT NOT NULL,
        plain INTEGER NOT NULL,
        estimate INTEGER NOT NULL,
        actual INTEGER NOT NULL
    );
    """,
    # Every request. A row is written when it starts, as `running`, and completed when it ends.
    """
    CREATE TABLE usage (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        started REAL NOT NULL,
        model TEXT NOT NULL,
        account TEXT NOT NULL,
        base_url TEXT NOT NULL,
        outcome TEXT NOT NULL,
        input INTEGER,
        output INTEGER,
        total INTEGER,
        cached INTEGER,
        reasoning INTEGER,
        duration REAL,
        first REAL,
        finish_reason TEXT,
        error TEXT
    );
    CREATE INDEX usage_by_time ON usage (started);
    CREATE INDEX usage_running ON usage (session) WHERE outcome = 'running';
    """,
)
