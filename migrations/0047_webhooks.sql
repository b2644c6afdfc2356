-- Webhooks: apps are told over HTTP of what happens. What happens is noted in the transaction that makes it so; notes are taken out and
-- packed into deliveries in one transaction; deliveries are sent, again and again if need be, until their receiver takes them.

CREATE TABLE webhooks (
    id            uuid        PRIMARY KEY, -- UUIDv7
    app           uuid        NOT NULL REFERENCES apps,
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    url           bytea       NOT NULL, -- sealed: its path may be a secret
    events        text[]      NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 100), -- model::hook::EventType
    heard         integer     NOT NULL, -- which notes it is told of: a bit for each `webhook_notes.kind`
    max_events    integer     NOT NULL CHECK (max_events BETWEEN 1 AND 500), -- in one request
    policy        jsonb,      -- when it is tried again, in the form it was written; null: as the server does by itself
    state         text        NOT NULL CHECK (state IN ('active', 'disabled')),
    -- Why it is disabled: somebody wanted it so, it answered 410, or it has failed for too long.
    disabled_why  text        CHECK (disabled_why IN ('asked', 'gone', 'failing')),
    heard_from    timestamptz NOT NULL, -- what happened before is not told: when it was made or enabled
    secret        bytea       NOT NULL, -- sealed
    former_secret bytea,      -- sealed: signs beside the other for a while
    former_until  timestamptz, -- until then
    -- The circuit breaker, as in `lane_states`.
    breaker       text        NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    open_until    timestamptz,
    open_ms       integer     NOT NULL DEFAULT 0,
    breaker_at    timestamptz NOT NULL,
    failing_since timestamptz, -- when the first attempt failed that no successful one followed; null: none
    dropped       bigint      NOT NULL DEFAULT 0, -- events that were not kept, since too much waited
    created_at    timestamptz NOT NULL,
    changed_at    timestamptz NOT NULL,
    CHECK ((state = 'disabled') = (disabled_why IS NOT NULL)),
    CHECK ((former_secret IS NULL) = (former_until IS NULL))
);
CREATE INDEX webhooks_by_app ON webhooks (app, id);

-- Which notes the app's active webhooks are told of, together: 0, and nothing is noted, nor anything done for it.
ALTER TABLE apps ADD COLUMN heard integer NOT NULL DEFAULT 0;

-- What became of deliveries of apps that are told of it, until it is packed: within a second. Rows are only inserted and deleted, so
-- nobody waits for anybody.
CREATE TABLE webhook_notes (
    message      uuid        NOT NULL,
    subscription uuid        NOT NULL,
    kind         smallint    NOT NULL, -- `attempts.ending`, or 20 + `receipts.kind`
    at           timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- How far `stream_events` are packed, from which webhooks are told of everything that is not a note. One row.
CREATE TABLE webhook_cursor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    xid xid8    NOT NULL,
    seq bigint  NOT NULL
);
INSERT INTO webhook_cursor (xid, seq) SELECT pg_snapshot_xmin(pg_current_snapshot()), 0;

-- Requests to make. The id is the `webhook-id` of every try, by which a receiver drops repeats.
CREATE TABLE webhook_deliveries (
    id            uuid        PRIMARY KEY, -- UUIDv7
    webhook       uuid        NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    -- pending: it is sent when it is due. failed: its policy has no further retry; it waits to be replayed.
    state         text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    events        integer     NOT NULL CHECK (events > 0), -- how many it tells of
    body          bytea,      -- sealed JSON; null: it was delivered
    subscriptions uuid[]      NOT NULL, -- which it names with their users, in no order; none once it was delivered
    attempts      integer     NOT NULL DEFAULT 0, -- requests that were made and answered, or failed
    retries       integer     NOT NULL DEFAULT 0, -- of these, since it was made or replayed
    due_at        timestamptz NOT NULL, -- when it may be claimed, or when its lease runs out
    lease         uuid,       -- fresh for every claim; null: nobody holds it
    created_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    CHECK ((state = 'delivered') = (body IS NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL))
);
ALTER TABLE webhook_deliveries ALTER COLUMN body SET STORAGE EXTERNAL; -- what is sealed does not compress: don't try
ALTER TABLE webhook_deliveries ALTER COLUMN subscriptions SET STORAGE EXTERNAL;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook, due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook, id);
CREATE INDEX webhook_deliveries_kept ON webhook_deliveries (webhook, id) WHERE state <> 'delivered';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (state, ended_at) WHERE state <> 'pending';

-- What each request came to.
CREATE TABLE webhook_attempts (
    delivery uuid        NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    number   integer     NOT NULL, -- 0: the first
    at       timestamptz NOT NULL, -- when the answer was known
    status   smallint,             -- HTTP status; null: no answer
    took_ms  integer     NOT NULL, -- from the start of the request to the answer
    reason   text        CHECK (length(reason) <= 300), -- why it failed: the answer's first words, or why there is none
    PRIMARY KEY (delivery, number)
);

-- Campaigns tell where they stand, as alerts do. The table is small.
CREATE FUNCTION campaigns_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (NEW.changed_at, NEW.app, 'campaign.state',
            jsonb_build_object('campaign', 'cmp_' || NEW.id, 'slug', NEW.slug, 'state', NEW.state));
    RETURN NULL;
END $$;
CREATE TRIGGER campaigns_told AFTER UPDATE OF state ON campaigns FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION campaigns_tell();
