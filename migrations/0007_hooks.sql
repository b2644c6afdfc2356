-- Webhooks: apps receive events over HTTP. What happens is recorded in the transaction that causes it. One transaction
-- packs records into deliveries. Deliveries are sent, with retries, until the receiver accepts them.

CREATE TABLE webhooks (
    id            uuid        PRIMARY KEY, -- UUIDv7
    app           uuid        NOT NULL REFERENCES apps, -- owner
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200), -- name for people
    url           bytea       NOT NULL, -- sealed: the path may be a secret
    events        text[]      NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 100), -- model::hook::EventType
    -- Kinds of webhook_notes that it receives, one bit each, and bit 28: subscription.created, .changed or .ended.
    heard         integer     NOT NULL,
    max_events    integer     NOT NULL CHECK (max_events BETWEEN 1 AND 500), -- maximum of events in one request
    policy        jsonb,      -- retry policy, as written; null: the server's
    state         text        NOT NULL CHECK (state IN ('active', 'disabled')), -- disabled: receives nothing
    -- By request, after a response 410, or after failing for too long.
    disabled_why  text        CHECK (disabled_why IN ('asked', 'gone', 'failing')),
    heard_from    timestamptz NOT NULL, -- earlier events are not sent: time at which it was created or enabled
    secret        bytea       NOT NULL, -- sealed: key of signatures
    former_secret bytea,      -- sealed: the key before, which also signs until former_until
    former_until  timestamptz, -- end of that time
    -- Circuit breaker, as in lane_states.
    breaker       text        NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    open_until    timestamptz, -- as in lane_states
    open_ms       integer     NOT NULL DEFAULT 0, -- as in lane_states
    breaker_at    timestamptz NOT NULL, -- last change of the circuit breaker
    -- First failure since the last success; null: the last request succeeded, or none was sent.
    failing_since timestamptz,
    dropped       bigint      NOT NULL DEFAULT 0, -- events that were dropped because too many were pending
    created_at    timestamptz NOT NULL, -- time of creation
    changed_at    timestamptz NOT NULL, -- last change
    -- Who created it: the id of an API key or a teammate, or `local` for the command line, as in the audit log.
    -- Webhooks outlive their keys: those that a stolen key created must be found.
    created_by    text        NOT NULL,
    changed_by    text,       -- who last changed it or its secret; null: never changed
    CHECK ((state = 'disabled') = (disabled_why IS NOT NULL)),
    CHECK ((former_secret IS NULL) = (former_until IS NULL))
);
COMMENT ON TABLE webhooks IS 'Webhooks of apps.';
CREATE INDEX webhooks_by_app ON webhooks (app, id);

CREATE TABLE webhook_notes (
    message      uuid        NOT NULL, -- the message
    subscription uuid        NOT NULL, -- the recipient
    kind         smallint    NOT NULL, -- attempts.ending, or 20 + receipts.kind
    at           timestamptz NOT NULL  -- time of the outcome or receipt
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE webhook_notes IS
    'Outcomes and receipts for webhooks, until they are packed within a second. Rows are only inserted and deleted, so '
    'that no transaction waits for another.';

CREATE TABLE webhook_cursor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), -- there is one row
    xid xid8    NOT NULL, -- key of the last packed row of stream_events
    seq bigint  NOT NULL  -- key of the last packed row of stream_events
);
COMMENT ON TABLE webhook_cursor IS 'Progress of packing stream_events, from which webhooks receive all other events.';
INSERT INTO webhook_cursor (xid, seq) SELECT pg_snapshot_xmin(pg_current_snapshot()), 0;

CREATE TABLE webhook_deliveries (
    id            uuid        PRIMARY KEY, -- UUIDv7: the `webhook-id` of every attempt, by which receivers drop repeats
    webhook       uuid        NOT NULL REFERENCES webhooks ON DELETE CASCADE, -- the webhook
    -- pending: sent when due. failed: the policy allows no further retry, and it may be replayed.
    state         text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    events        integer     NOT NULL CHECK (events > 0), -- number of events in the body
    body          bytea,      -- sealed JSON; null: delivered
    -- Subscriptions that the body names with their users, for erasures; empty: delivered.
    subscriptions uuid[]      NOT NULL,
    attempts      integer     NOT NULL DEFAULT 0, -- requests so far
    retries       integer     NOT NULL DEFAULT 0, -- requests since it was created or replayed
    due_at        timestamptz NOT NULL, -- time from which it may be claimed, or end of its lease
    lease         uuid,       -- new for every claim; null: not claimed
    created_at    timestamptz NOT NULL, -- time of creation
    ended_at      timestamptz, -- time at which it was delivered or failed
    CHECK ((state = 'delivered') = (body IS NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL))
);
ALTER TABLE webhook_deliveries
    ALTER COLUMN body SET STORAGE EXTERNAL, -- sealed values do not compress
    ALTER COLUMN subscriptions SET STORAGE EXTERNAL; -- ids do not compress
COMMENT ON TABLE webhook_deliveries IS 'Requests to webhooks.';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook, due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook, id);
CREATE INDEX webhook_deliveries_kept ON webhook_deliveries (webhook, id) WHERE state <> 'delivered';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (state, ended_at) WHERE state <> 'pending'; -- retention

CREATE TABLE webhook_attempts (
    delivery uuid        NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE, -- the delivery
    number   integer     NOT NULL, -- 0: the first request
    at       timestamptz NOT NULL, -- time of the response
    status   smallint,   -- HTTP status; null: no response
    took_ms  integer     NOT NULL, -- milliseconds from the start of the request to the response
    -- Why it failed: start of the response, or the error; null: it succeeded.
    reason   text        CHECK (length(reason) <= 300),
    PRIMARY KEY (delivery, number)
);
COMMENT ON TABLE webhook_attempts IS 'Attempts of webhook deliveries.';

-- Events about subscriptions, for apps with a webhook that receives them. They name no user: the transaction that packs
-- them adds the user of that time, so that an erasure has nothing to delete here.
CREATE FUNCTION subscriptions_tell_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    SELECT c.since, c.app, 'subscription.created',
           jsonb_build_object('subscription', 'sub_' || c.id,
                              'cause', CASE WHEN c.origin_id = c.id THEN 'registered' ELSE 'replacement' END)
    FROM changed c JOIN apps a ON a.id = c.app WHERE c.state = 'active' AND a.heard & (1 << 28) <> 0;
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptions_told_new AFTER INSERT ON subscriptions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION subscriptions_tell_new();

CREATE FUNCTION subscriptions_tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The usual end: no webhook receives it. Cheaper than an INSERT of no row.
    IF coalesce((SELECT heard FROM apps WHERE id = NEW.app), 0) & (1 << 28) = 0 THEN
        RETURN NULL;
    END IF;
    INSERT INTO stream_events (at, app, kind, data) VALUES (
           -- Postgres's clock may be behind the server's.
           CASE WHEN OLD.state = NEW.state THEN greatest(clock_timestamp(), NEW.since, NEW.last_seen)
                WHEN NEW.state = 'active' THEN NEW.since ELSE NEW.ended_at END,
           NEW.app,
           CASE WHEN OLD.state = NEW.state THEN 'subscription.changed' WHEN NEW.state = 'active' THEN 'subscription.created'
                ELSE 'subscription.ended' END,
           jsonb_build_object('subscription', 'sub_' || NEW.id) ||
           CASE WHEN OLD.state = NEW.state THEN jsonb_build_object('changed', array_remove(ARRAY[
                    CASE WHEN NEW.user_id IS DISTINCT FROM OLD.user_id THEN 'user_id' END,
                    CASE WHEN NEW.tags <> OLD.tags THEN 'tags' END,
                    CASE WHEN NEW.attributes <> OLD.attributes THEN 'attributes' END,
                    CASE WHEN NEW.locale IS DISTINCT FROM OLD.locale THEN 'locale' END,
                    CASE WHEN NEW.timezone IS DISTINCT FROM OLD.timezone THEN 'timezone' END,
                    CASE WHEN (NEW.consent_at, NEW.consent_source) IS DISTINCT FROM (OLD.consent_at, OLD.consent_source)
                         THEN 'consent' END], NULL))
                WHEN NEW.state = 'active' THEN jsonb_build_object('cause', 'restored')
                ELSE jsonb_build_object('cause', NEW.state, 'replaced_by', 'sub_' || NEW.replaced_by) END);
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptions_told_change
    AFTER UPDATE OF state, user_id, tags, attributes, locale, timezone, consent_at, consent_source ON subscriptions
    FOR EACH ROW WHEN ((OLD.state = 'active') <> (NEW.state = 'active') OR NEW.state = 'active' AND
        (OLD.user_id, OLD.tags, OLD.attributes, OLD.locale, OLD.timezone, OLD.consent_at, OLD.consent_source) IS DISTINCT FROM
        (NEW.user_id, NEW.tags, NEW.attributes, NEW.locale, NEW.timezone, NEW.consent_at, NEW.consent_source))
    EXECUTE FUNCTION subscriptions_tell_change();
