-- What replicas tell each other. They meet only here.

-- Live workers, by heartbeat: each takes its share of every rate and concurrency limit.
CREATE TABLE workers (
    id         uuid        PRIMARY KEY,
    started_at timestamptz NOT NULL,
    beat_at    timestamptz NOT NULL
);

-- Holds and breakers, shared: what one worker learned of a gateway binds the others within a short poll.
CREATE TABLE lane_states (
    lane        integer     NOT NULL,
    origin      text        NOT NULL, -- `https://host[:port]`: lanes of recognised gateways may span hosts
    held_until  timestamptz, -- no POST before: a Retry-After, or a doubling hold after a 429 without one
    breaker     text        CHECK (breaker IN ('closed', 'open', 'half_open')), -- null: it never tripped
    open_until  timestamptz CHECK (open_until IS NOT NULL OR breaker <> 'open'), -- when an open breaker lets probes through
    open_ms     integer,     -- how long its last opening was; doubles on repeated trips
    breaker_changed_at timestamptz, -- the later of two breakers stands
    changed_at  timestamptz NOT NULL, -- what the poll goes by
    PRIMARY KEY (lane, origin)
);
