-- Running the server: workers, backups and restores, exports, repeated requests, and facts about the database itself.

CREATE TABLE workers (
    id         uuid        PRIMARY KEY, -- chosen at random by the process
    started_at timestamptz NOT NULL, -- start of the worker
    beat_at    timestamptz NOT NULL, -- time of the last heartbeat; without one for 15 seconds the worker has no share
    version    text        NOT NULL, -- version of the program
    -- Heartbeats so far, one a second; a count that stands still for several reads means a dead worker.
    beats      bigint      NOT NULL,
    -- The `application_name` of its process's sessions, which end with the worker: locks of a frozen process are
    -- released. Null: the process has no name of its own.
    session    text
) WITH (fillfactor = 50); -- one update a second and no index on what changes: new versions stay on the page
COMMENT ON TABLE workers IS
    'Live workers. Each takes its share of every rate and concurrency limit. Times of two machines are never compared '
    'to find dead workers.';

CREATE TABLE backups (
    id           uuid        PRIMARY KEY, -- UUIDv7
    -- dump: `bellwire backup`; other: recorded by an operator.
    kind         text        NOT NULL CHECK (kind IN ('dump', 'other')),
    started_at   timestamptz NOT NULL, -- before its snapshot
    completed_at timestamptz, -- null: in progress or failed
    octets       bigint      CHECK (octets >= 0) -- size of the file in bytes; null: not known
);
COMMENT ON TABLE backups IS 'Backups of this database. Checks read the age of the newest one.';
CREATE INDEX backups_by_completion ON backups (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE restores (
    id           uuid        PRIMARY KEY, -- UUIDv7
    backup       uuid,       -- the backup; null: restored by other means
    backed_up_at timestamptz NOT NULL, -- changes after this time are lost
    restored_at  timestamptz NOT NULL, -- time of the restore
    held         boolean     NOT NULL -- pending messages and campaigns were paused
);
COMMENT ON TABLE restores IS 'Restores of this database from a backup.';

CREATE TABLE held_back (
    kind text NOT NULL CHECK (kind IN ('campaign', 'message')), -- what was paused
    id   uuid NOT NULL, -- the campaign or message
    app  uuid NOT NULL, -- owner
    PRIMARY KEY (kind, id)
);
COMMENT ON TABLE held_back IS
    'What a restore paused until an operator resumes or cancels it: the server that was replaced may have sent it '
    'after the backup.';
CREATE INDEX held_back_by_app ON held_back (app); -- read when an app is deleted

CREATE TABLE migrations_beside (
    version bigint PRIMARY KEY -- number of the migration
);
COMMENT ON TABLE migrations_beside IS
    'Applied migrations that servers of the previous version may run beside: a program that does not know them starts '
    'all the same.';

CREATE TABLE cluster_identity (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row), -- there is one row
    -- Of pg_control_system(): identifies a cluster and its physical copies; null: not recorded yet, or not readable.
    system_identifier bigint,
    -- Rises when a standby or a recovered cluster is promoted; null: not recorded yet, or not readable.
    timeline          integer,
    recorded_at       timestamptz -- time of the record; null: not recorded yet
);
COMMENT ON TABLE cluster_identity IS
    'The Postgres cluster on which servers last started, or a restore was settled. `bellwire backup` leaves the row '
    'out: a missing row means that a backup was restored by hand and not settled.';
INSERT INTO cluster_identity DEFAULT VALUES;

CREATE TABLE clock_marks (
    one boolean     PRIMARY KEY DEFAULT true CHECK (one), -- there is one row
    at  timestamptz NOT NULL -- latest time that a server has read from the database's clock
);
COMMENT ON TABLE clock_marks IS
    'Finds a clock that was set back, and by how much. Otherwise retries, holds and turns would wait for as long as it '
    'went back.';

CREATE TABLE log_level (
    -- There is one row, or none.
    is_only boolean     PRIMARY KEY DEFAULT true CONSTRAINT log_level_is_one_row CHECK (is_only),
    -- Levels of Bellwire's modules, in the form of BELLWIRE_LOG: debug, or bellwire::dispatch=debug,sqlx=info.
    filter  text        NOT NULL CONSTRAINT log_level_filter_length CHECK (length(filter) BETWEEN 1 AND 200),
    set_at  timestamptz NOT NULL, -- time of the change
    until   timestamptz NOT NULL  -- time at which each process returns to the level of its start
);
COMMENT ON TABLE log_level IS 'A temporary log level of all processes, which read it every other second.';

CREATE TABLE exports (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps, -- the exported app
    -- The whole app, or its subscriptions only.
    contents   text        NOT NULL CHECK (contents IN ('app', 'subscriptions')),
    format     text        NOT NULL CHECK (format IN ('ndjson', 'csv')), -- format of the file
    actor      text        NOT NULL, -- who asked: the id of an API key or a teammate, or `local` for the command line
    lines      bigint      NOT NULL DEFAULT 0 CHECK (lines >= 0), -- lines written to the response so far
    started_at timestamptz NOT NULL, -- start of the response
    changed_at timestamptz NOT NULL, -- last progress: an export without progress for minutes ended with its process
    ended_at   timestamptz, -- end of the response; null: in progress, or ended with its process
    complete   boolean     NOT NULL DEFAULT false, -- the last line was written
    CHECK (ended_at IS NOT NULL OR NOT complete)
);
COMMENT ON TABLE exports IS 'Exports of apps: who took the data, and whether the export is complete.';
CREATE INDEX exports_by_app ON exports (app, id);

CREATE TABLE idempotency_keys (
    app         uuid        NOT NULL, -- app that the path names, with which the row is deleted; all zeros: none
    id          uuid        NOT NULL, -- first half of an HMAC of caller, app, route and key
    -- HMAC of what a repeat has in common with the first request. Another request with the key is refused.
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    -- HTTP status of the response; 0: the transaction of the request is in progress.
    status      smallint    NOT NULL CHECK (status = 0 OR status BETWEEN 200 AND 299),
    response    bytea       NOT NULL, -- sealed: the body, which may contain a secret
    created_at  timestamptz NOT NULL, -- time of the first request
    PRIMARY KEY (app, id)
);
COMMENT ON TABLE idempotency_keys IS
    'Requests with an `Idempotency-Key` and their responses, kept for two days. A repeated request gets the same '
    'response and does nothing. A row commits with the work of its request. Callers do not share keys.';
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
