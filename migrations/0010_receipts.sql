-- What browsers say: receipts, counted; and who their users are, proven by keys of the site's backend.

-- Receipts of a message. Counting a million rows whenever somebody looks would cost too much, so the batch that writes
-- receipts counts what it really inserted. No row: none yet.
CREATE TABLE receipt_counts (
    message      uuid   PRIMARY KEY,
    acknowledged bigint NOT NULL DEFAULT 0, -- deliveries with at least one receipt
    displayed    bigint NOT NULL DEFAULT 0,
    clicked      bigint NOT NULL DEFAULT 0,
    closed       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
ALTER TABLE receipt_counts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Whether its pushes carry our envelope, and in it the token that receipts come with; known even after the content went.
ALTER TABLE messages ADD COLUMN enveloped boolean NOT NULL DEFAULT true;

-- What a site's backend signs user tokens with. Several at a time, so that they can be rotated.
CREATE TABLE identity_keys (
    id         uuid        PRIMARY KEY,
    app        uuid        NOT NULL REFERENCES apps,
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    algorithm  text        NOT NULL CHECK (algorithm IN ('HS256', 'ES256')),
    secret     bytea,      -- sealed; HS256 only
    public_key bytea       CHECK (length(public_key) = 65), -- an uncompressed point on P-256; ES256 only
    created_at timestamptz NOT NULL,
    CHECK ((algorithm = 'HS256') = (secret IS NOT NULL) AND (algorithm = 'ES256') = (public_key IS NOT NULL))
);
CREATE INDEX identity_keys_by_app ON identity_keys (app, id);

-- The app of the example page at /example/, which the server makes for itself. An app that merely has the slug `example`
-- is the operator's own and left alone.
ALTER TABLE apps ADD COLUMN is_example boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX apps_example ON apps (is_example) WHERE is_example;
