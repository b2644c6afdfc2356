-- What was taken out of an app, to be brought into another server: who did it, and whether all of it was had.

CREATE TABLE exports (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps,
    contents   text        NOT NULL CHECK (contents IN ('app', 'subscriptions')), -- all of the app, or its subscriptions alone
    format     text        NOT NULL CHECK (format IN ('ndjson', 'csv')),
    actor      text        NOT NULL, -- who asked: the id of an API key or a teammate; `local` for the command line
    lines      bigint      NOT NULL DEFAULT 0 CHECK (lines >= 0), -- that were handed over to be sent
    started_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL, -- when it last came on: what has not for minutes went down with its process
    ended_at   timestamptz, -- null: it is under way, or went down with its process
    complete   boolean     NOT NULL DEFAULT false, -- whether the last line was handed over
    CHECK (ended_at IS NOT NULL OR NOT complete)
);
CREATE INDEX exports_by_app ON exports (app, id);
