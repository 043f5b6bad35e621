BEGIN TRANSACTION;
CREATE TABLE cache_report (
        id INTEGER PRIMARY KEY,
        turn TEXT NOT NULL UNIQUE,
        started REAL NOT NULL,
        missed INTEGER NOT NULL,
        report TEXT NOT NULL
    );
CREATE TABLE learned (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
    );
INSERT INTO "learned" VALUES(1,'text claude',X'0102');
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
INSERT INTO "lesson" VALUES(1,'https://w.example/v1','m','','without','top_p','null','{"basis":"code","message":"Unsupported.","status":400}',1760000000.0,9760000000.0,1);
CREATE TABLE measured (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        tokens INTEGER NOT NULL,
        reasoning INTEGER NOT NULL
    , deviation REAL);
INSERT INTO "measured" VALUES(1,X'01',1000,7,NULL);
CREATE TABLE outcome (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL DEFAULT (unixepoch()),
        model TEXT NOT NULL,
        method TEXT NOT NULL,
        plain INTEGER NOT NULL,
        estimate INTEGER NOT NULL,
        actual INTEGER NOT NULL
    , refused TEXT NOT NULL DEFAULT '');
CREATE TABLE prefix (
        id INTEGER PRIMARY KEY,
        chain BLOB NOT NULL,
        toolset BLOB NOT NULL,
        tokens INTEGER NOT NULL,
        loop INTEGER NOT NULL,
        UNIQUE (chain, toolset)
    );
CREATE TABLE reservation (
        key TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        seen REAL NOT NULL,
        prompt_cost INTEGER NOT NULL,
        token_cost INTEGER NOT NULL,
        tokens INTEGER NOT NULL
    );
CREATE TABLE sent_prompt (
        id INTEGER PRIMARY KEY,
        turn TEXT NOT NULL UNIQUE,
        base_url TEXT NOT NULL,
        account TEXT NOT NULL,
        conversation TEXT,
        prompt BLOB NOT NULL
    );
CREATE TABLE toolset (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        data BLOB NOT NULL
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
    , key TEXT, turn TEXT, attempt INTEGER, incomplete INTEGER, cache_write INTEGER, response_id TEXT, generation_id TEXT, provider TEXT, conversation TEXT, initiator TEXT, input_price TEXT, output_price TEXT, cache_read_price TEXT, cache_write_price TEXT, computed_cost INTEGER, billed_cost INTEGER, cost_source TEXT, reserved_cost INTEGER, long_cache_write INTEGER, images INTEGER, web_searches INTEGER, other_prices TEXT);
INSERT INTO "usage" VALUES(1,'635e8f0092934d3891672845c4caedd4',1760000000.5,'openai/gpt-5.4','work','https://w.example/v1','completed',1200,34,1234,1000,12,2.5,0.4,'stop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(2,'635e8f0092934d3891672845c4caedd4',1760000010.5,'openai/gpt-5.4','work','https://w.example/v1','failed',NULL,NULL,NULL,NULL,NULL,0.5,NULL,NULL,'rate_limited',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(3,'635e8f0092934d3891672845c4caedd4',1760000020.5,'anthropic/claude','editor','https://w.example/v1','running',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(4,'c437a941000847769817757e5bfc9937',1760000030.5,'openai/gpt-5.4','work','https://w.example/v1','completed',5,3,8,2,1,1.5,0.5,'stop',NULL,'k-2','k',2,0,4,'resp_1','gen','azure','chat','codex','0.000003','0.000015','3E-7','0.00000375',7500,250000000000,'gateway',7,1,2,3,'{"web_search":"0.01","source":"genai-prices"}');
CREATE INDEX usage_by_time ON usage (started);
CREATE INDEX usage_running ON usage (session) WHERE outcome = 'running';
CREATE UNIQUE INDEX usage_by_key ON usage (key);
CREATE INDEX sent_prompt_by_conversation ON sent_prompt (base_url, account, conversation);
CREATE INDEX usage_costs
        ON usage (started, account, base_url, billed_cost, computed_cost, reserved_cost);
CREATE INDEX usage_by_conversation ON usage (conversation, started) WHERE conversation IS NOT NULL;
PRAGMA user_version = 8;
COMMIT;
