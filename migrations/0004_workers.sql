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
    breaker     text        NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    open_until  timestamptz, -- when an open breaker lets probes through
    open_ms     integer     NOT NULL DEFAULT 0, -- how long it was opened for; doubles on repeated trips
    prober      uuid,        -- the one worker that probes while half open
    probe_until timestamptz, -- when another may take over probing
    changed_at  timestamptz NOT NULL,
    PRIMARY KEY (lane, origin)
);
