BEGIN TRANSACTION;
CREATE TABLE learned (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
    );
CREATE TABLE measured (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        tokens INTEGER NOT NULL,
        reasoning INTEGER NOT NULL
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
CREATE TABLE prefix (
        id INTEGER PRIMARY KEY,
        chain BLOB NOT NULL,
        toolset BLOB NOT NULL,
        tokens INTEGER NOT NULL,
        loop INTEGER NOT NULL,
        UNIQUE (chain, toolset)
    );
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
INSERT INTO "usage" VALUES(1,'635e8f0092934d3891672845c4caedd4',1760000000.5,'openai/gpt-5.4','work','https://w.example/v1','completed',1200,34,1234,1000,12,2.5,0.4,'stop',NULL);
INSERT INTO "usage" VALUES(2,'635e8f0092934d3891672845c4caedd4',1760000010.5,'openai/gpt-5.4','work','https://w.example/v1','failed',NULL,NULL,NULL,NULL,NULL,0.5,NULL,NULL,'rate_limited');
INSERT INTO "usage" VALUES(3,'635e8f0092934d3891672845c4caedd4',1760000020.5,'anthropic/claude','editor','https://w.example/v1','running',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX usage_by_time ON usage (started);
CREATE INDEX usage_running ON usage (session) WHERE outcome = 'running';
PRAGMA user_version = 2;
COMMIT;
