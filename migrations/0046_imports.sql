-- Subscriptions that come in bulk, from another sender or another Bellwire.

-- A file on its way in, and how far it has come. It moves in the transactions that register what it counts: whoever broke off goes on
-- with the line after `lines`, and nothing is counted twice.
CREATE TABLE imports (
    id          uuid        PRIMARY KEY, -- UUIDv7
    app         uuid        NOT NULL REFERENCES apps,
    format      text        NOT NULL CHECK (format IN ('ndjson', 'csv', 'json')),
    dry_run     boolean     NOT NULL, -- everything is done and undone: nothing of it stays but this row
    lines       bigint      NOT NULL DEFAULT 0 CHECK (lines >= 0), -- lines of the file, or elements of its array, that are dealt with
    added       bigint      NOT NULL DEFAULT 0 CHECK (added >= 0), -- subscriptions that are new
    known       bigint      NOT NULL DEFAULT 0 CHECK (known >= 0), -- refreshed, or as they were
    left_out    bigint      NOT NULL DEFAULT 0 CHECK (left_out >= 0), -- ended, here or in the file, or no subscription at all
    refused     bigint      NOT NULL DEFAULT 0 CHECK (refused >= 0), -- wrong: `import_faults` has the first of them
    ignored     text[]      NOT NULL DEFAULT '{}', -- columns of the file that say nothing to us
    created_at  timestamptz NOT NULL,
    changed_at  timestamptz NOT NULL,
    finished_at timestamptz -- null: the file has not been seen to its end
);
CREATE INDEX imports_by_app ON imports (app, id);

-- What is wrong with a file's first wrong lines. Never a value: those may be secrets.
CREATE TABLE import_faults (
    import uuid     NOT NULL REFERENCES imports ON DELETE CASCADE,
    line   bigint   NOT NULL CHECK (line > 0),
    n      smallint NOT NULL, -- a line may have several
    field  text     NOT NULL CHECK (length(field) <= 200), -- empty: the line as a whole
    reason text     NOT NULL CHECK (length(reason) <= 500),
    PRIMARY KEY (import, line, n)
);
