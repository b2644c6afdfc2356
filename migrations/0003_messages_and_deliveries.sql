-- What is sent, and where each delivery stands.
--
-- A delivery is (message, subscription). A large audience is never expanded into rows: a cursor per lane remembers how
-- far the fan-out is, workers cut pages of up to 500 recipients off it, and a page settles once and whole. Only what
-- has to wait alone (a single send, a small audience, a retry) is a row of `queue`.
--
-- The account of a message holds in every snapshot:
--   targeted = queued + dispatching + retrying + accepted + gone + expired + dead + cancelled + capped
-- where queued, dispatching and retrying are counted from `queue` and `pages`, and everything else, `targeted`
-- included, is counted in `message_counts` by the transactions that make it so.

CREATE TABLE messages (
    id                uuid        PRIMARY KEY, -- UUIDv7; `attempts` and `receipts` are partitioned by it
    app               uuid        NOT NULL REFERENCES apps,
    tier              smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3),
    -- sending: whatever is due goes out. Whether it is done follows from cursors, pages and queue rows: none left.
    state             text        NOT NULL CHECK (state IN ('scheduled', 'sending', 'paused', 'cancelled')),
    audience          jsonb       NOT NULL, -- `to`, as it was given
    content           bytea       NOT NULL, -- sealed: the JSON of message::Content
    ttl_s             integer     NOT NULL CHECK (ttl_s >= 0),
    urgency           smallint    NOT NULL CHECK (urgency BETWEEN 0 AND 3),
    topic_header      text        CHECK (length(topic_header) = 32), -- hash of (app, collapse key)
    policy            jsonb,      -- the message's own delivery policy, in the form it was written
    audience_estimate bigint      NOT NULL CHECK (audience_estimate >= 0),
    accepted_at       timestamptz NOT NULL, -- when the API took it, or `send_at`: the clock of the TTL starts here
    expires_at        timestamptz NOT NULL,
    -- When it was resumed, until maintenance has seen every queue row that the pause parked become due again.
    resumed_at        timestamptz
);
CREATE INDEX messages_by_app ON messages (app, id);
CREATE INDEX messages_in_motion ON messages (state) WHERE state IN ('paused', 'cancelled') OR resumed_at IS NOT NULL;

-- One row for each message and lane, so that lanes that settle at the same time do not wait for each other.
CREATE TABLE message_counts (
    message   uuid    NOT NULL,
    lane      integer NOT NULL,
    targeted  bigint  NOT NULL DEFAULT 0,
    accepted  bigint  NOT NULL DEFAULT 0,
    gone      bigint  NOT NULL DEFAULT 0,
    expired   bigint  NOT NULL DEFAULT 0,
    dead      bigint  NOT NULL DEFAULT 0,
    cancelled bigint  NOT NULL DEFAULT 0,
    capped    bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (message, lane)
) WITH (fillfactor = 50);

-- How far a message has been fanned out in a lane. A worker locks the row (SKIP LOCKED), reads the next recipients by
-- id, advances `after`, and inserts a page, all in one transaction; the row goes away with the last recipient.
CREATE TABLE cursors (
    message uuid        NOT NULL,
    lane    integer     NOT NULL,
    tier    smallint    NOT NULL,
    topic   integer,    -- null: every active subscription of the lane
    after   uuid        NOT NULL,
    due_at  timestamptz NOT NULL, -- set to now by every cut, so that messages of one lane and tier take turns
    PRIMARY KEY (message, lane)
) WITH (fillfactor = 50);
CREATE INDEX cursors_due ON cursors (lane, tier, due_at);

-- One cut of a cursor, held by one worker. Deleting the row under its `lease` is the fence of the settling
-- transaction: whoever deleted it, and nobody else, writes what became of its recipients. `due_at` is when the lease
-- runs out. A page leased for the third time is split into queue rows without sending.
CREATE TABLE pages (
    id         uuid        PRIMARY KEY,
    message    uuid        NOT NULL,
    lane       integer     NOT NULL,
    tier       smallint    NOT NULL,
    recipients uuid[]      NOT NULL, -- subscription ids in order: exactly whom the account counts as dispatching
    lease      uuid        NOT NULL,
    due_at     timestamptz NOT NULL,
    leases     smallint    NOT NULL DEFAULT 1
);
ALTER TABLE pages ALTER COLUMN recipients SET STORAGE EXTERNAL; -- ids do not compress: don't try
CREATE INDEX pages_due ON pages (lane, tier, due_at);
CREATE INDEX pages_by_message ON pages (message);

-- Deliveries that wait alone.
CREATE TABLE queue (
    shard        smallint    NOT NULL,
    subscription uuid        NOT NULL,
    message      uuid        NOT NULL,
    lane         integer     NOT NULL,
    tier         smallint    NOT NULL,
    retries      integer     NOT NULL DEFAULT 0 CHECK (retries >= 0), -- attempts that a retry followed; 0: none yet
    due_at       timestamptz NOT NULL, -- visibility: when it may be claimed, or when its lease runs out; infinity: paused
    scheduled_at timestamptz NOT NULL, -- when the policy wanted it; never moved by leases
    lease        uuid,                 -- fresh for every claim; null: nobody holds it
    leases       smallint    NOT NULL DEFAULT 0, -- claims so far; the fifth ends it as dead `lease_exhausted`
    PRIMARY KEY (shard, subscription, message)
);
CREATE INDEX queue_due ON queue (lane, tier, due_at);
CREATE INDEX queue_by_message ON queue (message);

-- What became of every attempt, and every ending without a POST (status null): append-only, written by COPY.
-- `ending` and `reason` are explained in src/delivery.rs and src/classify.rs. Partitions cover one day each and are
-- made ahead by maintenance; retention drops whole partitions.
CREATE TABLE attempts (
    message      uuid        NOT NULL,
    subscription uuid        NOT NULL,
    attempt      integer     NOT NULL, -- 0: the first POST
    shard        smallint    NOT NULL,
    at           timestamptz NOT NULL, -- when the answer was known
    ending       smallint    NOT NULL,
    status       smallint,             -- HTTP status; null: no answer, or no POST
    took_ms      integer,              -- from the start of the POST to the answer
    reason       varchar(500),         -- the type checks the length; a CHECK would cost 0.3 CPU-µs a row, also where it is null
    PRIMARY KEY (message, subscription, attempt, shard)
) PARTITION BY RANGE (message);

-- What service workers reported. The first report of a kind counts.
CREATE TABLE receipts (
    message      uuid        NOT NULL,
    subscription uuid        NOT NULL,
    kind         smallint    NOT NULL CHECK (kind BETWEEN 1 AND 3), -- displayed, clicked, closed
    shard        smallint    NOT NULL,
    at           timestamptz NOT NULL,
    action       text        CHECK (length(action) <= 200),
    PRIMARY KEY (message, subscription, kind, shard)
) PARTITION BY RANGE (message);

-- Deliveries that ended in failure. The payload stays with the message, which outlives its dead letters.
CREATE TABLE dead_letters (
    shard        smallint    NOT NULL,
    id           uuid        NOT NULL,
    app          uuid        NOT NULL,
    message      uuid        NOT NULL,
    subscription uuid        NOT NULL,
    lane         integer     NOT NULL,
    tier         smallint    NOT NULL,
    reason       text        NOT NULL,
    status       smallint,
    detail       text        CHECK (length(detail) <= 500), -- the gateway's words, endpoints redacted
    retries      integer     NOT NULL,
    policy       jsonb,      -- in force when it died
    state        text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'discarded')),
    at           timestamptz NOT NULL,
    PRIMARY KEY (shard, id)
);
CREATE INDEX dead_letters_by_app ON dead_letters (app, id);
CREATE INDEX dead_letters_by_message ON dead_letters (message);

-- Outcomes by minute, for figures that must not cost a scan of `attempts`.
CREATE TABLE rollups (
    minute timestamptz NOT NULL,
    lane   integer     NOT NULL,
    tier   smallint    NOT NULL,
    ending smallint    NOT NULL,
    n      bigint      NOT NULL,
    PRIMARY KEY (minute, lane, tier, ending)
) WITH (fillfactor = 50);

-- The hot tables turn over completely every few seconds: vacuum them by absolute numbers, not by share.
ALTER TABLE queue SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
ALTER TABLE pages SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE cursors SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE message_counts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
