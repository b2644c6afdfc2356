-- What workers tell of themselves and of their lanes with their heartbeat, for people who look. Nothing goes by it.

-- The version of the program; null: it does not tell yet.
ALTER TABLE workers ADD COLUMN version text;

-- How many POSTs a worker lets be in flight in a lane at present, all origins of it together. It follows how gateways answer.
CREATE TABLE lane_limits (
    worker      uuid    NOT NULL REFERENCES workers ON DELETE CASCADE,
    lane        integer NOT NULL REFERENCES lanes ON DELETE CASCADE,
    concurrency integer NOT NULL CHECK (concurrency > 0),
    PRIMARY KEY (worker, lane)
);

-- The last answer of each lane's gateway that was not what was hoped for; that a subscription is gone is none of these.
CREATE TABLE lane_words (
    lane   integer     PRIMARY KEY REFERENCES lanes ON DELETE CASCADE,
    at     timestamptz NOT NULL,
    status smallint,   -- HTTP; null: there was no answer
    detail text        CHECK (length(detail) <= 500) -- the gateway's own words, without endpoints and tokens
);
