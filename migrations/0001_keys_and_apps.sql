-- Who there is: apps (tenants), their VAPID keys, the API keys that act for them, and the keys that seal what we store.
--
-- These tables are small and read often. On Citus they are reference tables; everything large is distributed by
-- `shard` (0 to 63), which is therefore part of every large table's primary key.
--
-- SQL never asks for the time: every timestamp is handed in by the server's clock, which follows the database's.

-- The data keys, each wrapped (AES-256-GCM) by the master key, which is not in the database. Rotating the master key
-- re-wraps these rows and touches nothing else. A `seal` key seals values; the newest seals, all of them open. The one
-- `lookup` key is permanent: look-ups by HMAC depend on it. Opening any row proves that the master key is the right one.
CREATE TABLE data_keys (
    number     smallint    PRIMARY KEY CHECK (number >= 0),
    purpose    text        NOT NULL CHECK (purpose IN ('seal', 'lookup')),
    wrapped    bytea       NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX data_keys_one_lookup ON data_keys (purpose) WHERE purpose = 'lookup';

-- A tenant: one site.
CREATE TABLE apps (
    id         uuid        PRIMARY KEY,
    slug       text        NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    -- Origins that browsers may call the public routes from (CORS): `https://example.com`.
    origins    text[]      NOT NULL DEFAULT '{}',
    -- Whether endpoints on hosts we do not recognise (UnifiedPush, a private autopush) are let in.
    allow_other_gateways boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL
);

-- VAPID key pairs (RFC 8292). A subscription is bound to the key it was made with, so retired keys keep signing for
-- theirs; exactly one key of an app is active and handed to new subscribers.
CREATE TABLE vapid_keys (
    id          uuid        PRIMARY KEY,
    app         uuid        NOT NULL REFERENCES apps,
    public_key  bytea       NOT NULL CHECK (length(public_key) = 65),
    private_key bytea       NOT NULL, -- sealed: 32 octets, big endian
    subject     text        NOT NULL, -- the `sub` claim: mailto: or https:
    state       text        NOT NULL CHECK (state IN ('active', 'retired')),
    created_at  timestamptz NOT NULL,
    retired_at  timestamptz CHECK ((state = 'retired') = (retired_at IS NOT NULL)),
    UNIQUE (app, public_key)
);
CREATE UNIQUE INDEX vapid_keys_one_active ON vapid_keys (app) WHERE state = 'active';

-- API keys. The secret is shown once and kept only as an HMAC. `app` is null for an operator's key, good for all apps.
CREATE TABLE api_keys (
    id         uuid        PRIMARY KEY,
    app        uuid        REFERENCES apps,
    secret_mac bytea       NOT NULL UNIQUE CHECK (length(secret_mac) = 32),
    hint       text        NOT NULL, -- the first characters of the secret, to recognise it by
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    scopes     text[]      NOT NULL CHECK (scopes <@ ARRAY['send', 'read', 'manage', 'operator']),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    CHECK ((app IS NULL) = ('operator' = ANY (scopes)))
);
CREATE INDEX api_keys_by_app ON api_keys (app, id);

-- A lane is the deliveries to one (gateway, VAPID key): the unit that has its own concurrency, throttle, hold and
-- breaker. Gateways limit by site and by host, so neither alone would do. All unrecognised hosts of one key share the
-- lane `other` here; in memory it splits by origin. Rows are never deleted.
CREATE TABLE lanes (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app       uuid    NOT NULL REFERENCES apps,
    vapid_key uuid    NOT NULL REFERENCES vapid_keys,
    gateway   text    NOT NULL CHECK (gateway IN ('fcm', 'mozilla', 'wns', 'apple', 'other')),
    UNIQUE (vapid_key, gateway)
);

-- The stored first answer to a request with an `Idempotency-Key`, kept for a day or longer. It is written in the
-- transaction that does the work, so a crash between the two cannot happen.
CREATE TABLE idempotency_keys (
    app        uuid        NOT NULL,
    route      text        NOT NULL,
    key        text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    body_hash  bytea       NOT NULL, -- SHA-256: the same key with another body is refused
    status     smallint    NOT NULL,
    response   jsonb       NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (app, route, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
