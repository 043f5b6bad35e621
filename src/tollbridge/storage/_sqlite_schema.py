"""The tables of the SQLite store, and the migration of the files that were written before there was one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

# A file's `user_version`. Files of a later version are used as they are.
VERSION = 9
# The version that can be migrated. Earlier ones were never released.
_MIGRATED_VERSION = 8

# In tables with an `id`, it orders the rows by age: `INSERT OR REPLACE` makes a row the newest.
_SCHEMA = """
-- One row per attempt, `running` from its start until its end. `session` is the lock of its process, and
-- `reserved` is what a budget counts until the cost is known. The other columns are the fields of `UsageRow`
-- and of its `Usage`. Costs are integers of 10^-12 US dollars, `prices` is JSON.
CREATE TABLE usage (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    key TEXT UNIQUE,
    turn TEXT,
    attempt INTEGER NOT NULL,
    started REAL NOT NULL,
    model TEXT NOT NULL,
    account TEXT NOT NULL,
    base_url TEXT NOT NULL,
    outcome TEXT NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    total_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER,
    cache_write_tokens INTEGER,
    long_cache_write_tokens INTEGER,
    images INTEGER,
    web_searches INTEGER,
    incomplete INTEGER NOT NULL,
    duration REAL,
    first REAL,
    finish_reason TEXT,
    error TEXT,
    response_id TEXT,
    initiator TEXT,
    conversation TEXT,
    provider TEXT,
    generation_id TEXT,
    prices TEXT,
    cost INTEGER,
    billed INTEGER,
    cost_source TEXT,
    reserved INTEGER
);
CREATE INDEX usage_running ON usage (session) WHERE outcome = 'running';
-- These contain all that a budget adds up.
CREATE INDEX usage_costs ON usage (started, account, base_url, billed, cost, reserved);
CREATE INDEX usage_by_conversation ON usage (conversation, started) WHERE conversation IS NOT NULL;
-- The attempts that are running and have a reservation in `usage.reserved`. The costs are those of the prompt
-- and of one output token, `seen` is when the process was last known to be alive.
CREATE TABLE reservation (
    key TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    seen REAL NOT NULL,
    prompt_cost INTEGER NOT NULL,
    token_cost INTEGER NOT NULL,
    tokens INTEGER NOT NULL
);
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
    reasoning INTEGER NOT NULL,
    deviation REAL NOT NULL
);
-- The largest `id` is the version of all weights.
CREATE TABLE learned (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL
);
CREATE TABLE toolset (
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
    actual INTEGER NOT NULL,
    refused TEXT NOT NULL
);
-- What was learned about servers from rejected requests. `value` and `evidence` are JSON.
CREATE TABLE lesson (
    id INTEGER PRIMARY KEY,
    base_url TEXT NOT NULL,
    model TEXT NOT NULL,
    conversation TEXT NOT NULL,
    feature TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    evidence TEXT NOT NULL,
    learned_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    confirmations INTEGER NOT NULL,
    UNIQUE (base_url, model, conversation, feature, subject)
);
-- The last prompts of conversations as digests, and what the prompt cache did for each turn. `prompt` is
-- MessagePack, `report` is JSON.
CREATE TABLE sent_prompt (
    id INTEGER PRIMARY KEY,
    turn TEXT NOT NULL UNIQUE,
    base_url TEXT NOT NULL,
    account TEXT NOT NULL,
    conversation TEXT,
    prompt BLOB NOT NULL
);
CREATE INDEX sent_prompt_by_conversation ON sent_prompt (base_url, account, conversation);
CREATE TABLE cache_report (
    id INTEGER PRIMARY KEY,
    turn TEXT NOT NULL UNIQUE,
    started REAL NOT NULL,
    missed INTEGER NOT NULL,
    report TEXT NOT NULL
);
"""

_TABLES = (
    *("usage", "reservation", "prefix", "measured", "learned", "toolset", "outcome"),
    *("lesson", "sent_prompt", "cache_report"),
)
# What is selected from the old tables, where it is not all columns in the same order. Rows of the first
# release have no attempt, and do not say whether their usage is incomplete: it is not if the gateway reported
# some, or refused the request before it answered.
_OLD_COLUMNS = {
    "usage": """
        id, session, key, turn, coalesce(attempt, 1), started, model, account, base_url, outcome, input,
        output, total, cached, reasoning, cache_write, long_cache_write, images, web_searches,
        coalesce(incomplete, NOT (
            coalesce(input, 0) + coalesce(output, 0) + coalesce(total, 0) > 0
            OR (outcome = 'failed' AND first IS NULL AND coalesce(error, '') IN (
                'authentication', 'permission', 'not_found', 'rate_limited', 'context_too_long',
                'invalid_request', 'overloaded', 'network'
            ))
        )),
        duration, first, finish_reason, error, response_id, initiator, conversation, provider, generation_id,
        CASE WHEN coalesce(input_price, output_price, cache_read_price, cache_write_price) IS NOT NULL
            THEN json_patch(coalesce(other_prices, '{}'), json_object(
                'input', input_price, 'output', output_price,
                'cache_read', cache_read_price, 'cache_write', cache_write_price
            ))
        END,
        computed_cost, billed_cost, cost_source, reserved_cost
    """,
    "measured": "id, key, tokens, reasoning, coalesce(deviation, tokens * 0.02)",
}


class OutdatedSchema(Exception):
    """Raised if a file is older than those that can be migrated. Its text is the version."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, and migrate those of an old one.

    Raises:
        OutdatedSchema: The file is too old.
    """
    if _read_version(connection) >= VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read the version again: another process may have created the tables before this one got the lock.
        version = _read_version(connection)
        if version < VERSION:
            _migrate(connection, version)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    has_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if has_tables and version != _MIGRATED_VERSION:
        raise OutdatedSchema(version)
    if has_tables:
        indices = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        for (name,) in connection.execute(indices).fetchall():
            connection.execute(f"DROP INDEX {name}")
        for table in _TABLES:
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    if has_tables:
        for table in _TABLES:
            columns = _OLD_COLUMNS.get(table, "*")
            connection.execute(f"INSERT INTO {table} SELECT {columns} FROM old_{table}")  # noqa: S608
            connection.execute(f"DROP TABLE old_{table}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
