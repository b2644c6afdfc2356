-- Whom there is to reach: subscriptions, the topics that they join, and the stops that keep the promise that nothing
-- is sent after an unsubscribe.

-- One browser's push endpoint. Endpoint and lane never change for an id: a browser whose endpoint changed gets a new
-- row that inherits `origin_id` (`replaces`); what was under way to the old one is handed on as queue rows.
CREATE TABLE subscriptions (
    shard        smallint    NOT NULL CHECK (shard BETWEEN 0 AND 63), -- SHA-256(app, endpoint) mod 64
    id           uuid        NOT NULL,                                -- UUIDv7 whose last 6 bits are the shard
    app          uuid        NOT NULL,
    lane         integer     NOT NULL,
    -- active; suspended: refused too often, kept but not sent to; gone: the gateway said so; unsubscribed: its browser or
    -- the site did; replaced: another row took over; expired: its own `expirationTime` passed.
    state        text        NOT NULL CHECK (state IN ('active', 'suspended', 'gone', 'unsubscribed', 'replaced', 'expired')),
    origin_id    uuid        NOT NULL, -- the first id of this browser; what a delivery's id is derived from
    since        timestamptz NOT NULL, -- messages accepted before this are not for it
    endpoint_mac bytea       NOT NULL CHECK (length(endpoint_mac) = 32), -- finds the row by (app, endpoint)
    address      bytea       NOT NULL, -- sealed: p256dh (65) | auth (16) | endpoint
    user_id      text        CHECK (length(user_id) BETWEEN 1 AND 255),
    tags         text[]      NOT NULL DEFAULT '{}',
    attributes   jsonb       NOT NULL DEFAULT '{}',
    locale       text,
    timezone     text,
    expires_at   timestamptz, -- the browser's `expirationTime`
    token_version smallint   NOT NULL DEFAULT 1, -- raising it revokes the browser's token
    last_seen    timestamptz NOT NULL, -- by day: written at most daily
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz CHECK ((state = 'active') = (ended_at IS NULL)),
    PRIMARY KEY (shard, id)
);
-- The same browser never stands twice in one app. (`shard` follows from the other two.)
CREATE UNIQUE INDEX subscriptions_by_endpoint ON subscriptions (app, endpoint_mac, shard);
-- What fan-out pages through.
CREATE INDEX subscriptions_by_lane ON subscriptions (lane, id) WHERE state = 'active';
CREATE INDEX subscriptions_by_user ON subscriptions (app, user_id) WHERE user_id IS NOT NULL; -- ended ones too: they are erased with the rest
CREATE INDEX subscriptions_by_app ON subscriptions (app, id);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL AND state = 'active';

-- A named audience. Rows are made by the first subscription that joins or the first message that names it.
CREATE TABLE topics (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app        uuid        NOT NULL REFERENCES apps,
    name       text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_.~%-]{1,128}$'),
    created_at timestamptz NOT NULL,
    UNIQUE (app, name)
);

CREATE TABLE topic_members (
    shard        smallint    NOT NULL,
    subscription uuid        NOT NULL,
    topic        integer     NOT NULL,
    lane         integer     NOT NULL, -- the subscription's, so that fan-out pages through one lane without a join
    joined_at    timestamptz NOT NULL, -- messages accepted before this are not for it
    PRIMARY KEY (shard, subscription, topic)
);
CREATE INDEX topic_members_by_lane ON topic_members (topic, lane, subscription);

-- What must not be sent any more. Written in the transaction that makes it so; every worker reads the last seconds of
-- it several times a second and checks its set before each POST. Kept for an hour, which is far longer than any
-- delivery stays in a worker's memory.
CREATE TABLE stops (
    id     uuid        PRIMARY KEY,
    at     timestamptz NOT NULL,
    kind   text        NOT NULL CHECK (kind IN ('unsubscribe', 'cancel', 'pause', 'resume')),
    target uuid        NOT NULL -- a subscription, or a message
);
CREATE INDEX stops_by_time ON stops (at);
