-- Steering lanes: by operators, by the flow control that an app or an operator sets, and among replicas.

-- The origin `*` stands for all origins of a lane, those met later included.
ALTER TABLE lane_states
    ADD COLUMN held_at     timestamptz, -- when the present hold was set
    ADD COLUMN released_at timestamptz, -- when an operator last ended a hold: what was set before does not count
    ADD COLUMN reason      text,        -- why it is held, if not by an answer: `operator`, `key_refused`
    ADD COLUMN note        text,        -- the operator's own words
    ADD COLUMN prober      uuid,        -- the worker whose probes test a half-open breaker
    ADD COLUMN probe_until timestamptz, -- until when it has that right
    ADD COLUMN payload_max integer CHECK (payload_max > 0), -- plaintext octets that the gateway is believed to take
    ADD COLUMN payload_at  timestamptz; -- when that was learned or, with no payload_max, disproved

-- How often breakers opened by themselves.
CREATE TABLE breaker_trips (
    minute timestamptz NOT NULL,
    lane   integer     NOT NULL,
    n      bigint      NOT NULL,
    PRIMARY KEY (minute, lane)
);

-- Flow control: at most `rate` deliveries in each `period_ms`, at most `parallelism` at a time. What exceeds it waits.
CREATE TABLE flows (
    id          uuid        PRIMARY KEY,
    app         uuid        NOT NULL REFERENCES apps,
    lane        integer     REFERENCES lanes, -- null: all lanes of the app together
    rate        integer     CHECK (rate >= 1),
    period_ms   integer     CHECK (period_ms BETWEEN 1 AND 86400000),
    parallelism integer     CHECK (parallelism >= 1),
    paused      boolean     NOT NULL DEFAULT false,
    reset_at    timestamptz NOT NULL, -- what was used before does not count
    changed_at  timestamptz NOT NULL, -- what the poll goes by
    CHECK ((rate IS NULL) = (period_ms IS NULL)),
    UNIQUE NULLS NOT DISTINCT (app, lane)
);

-- What somebody has to look at. One open alert for each (kind, subject): what recurs is counted.
CREATE TABLE alerts (
    id          uuid        PRIMARY KEY,
    app         uuid,       -- null: the server as a whole
    kind        text        NOT NULL, -- key_refused, tampered, replayed, figure
    subject     text        NOT NULL, -- what it is about: a key's id, a lane and tier; never a secret
    detail      text        NOT NULL,
    n           bigint      NOT NULL DEFAULT 1,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    resolved_at timestamptz
);
CREATE UNIQUE INDEX alerts_open ON alerts (kind, subject) WHERE resolved_at IS NULL;
