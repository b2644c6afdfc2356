-- What became of deliveries: attempts, receipts, dead letters, counts and metrics over time, and what people are told
-- of it.

CREATE TABLE attempts (
    message      uuid        NOT NULL, -- the message
    subscription uuid        NOT NULL, -- the recipient
    attempt      integer     NOT NULL, -- 0: the first request
    shard        smallint    NOT NULL, -- the subscription's
    at           timestamptz NOT NULL, -- time of the response
    ending       smallint    NOT NULL, -- model::delivery::Ending
    status       smallint,   -- HTTP status; null: no response, or no request
    took_ms      integer,    -- milliseconds from the start of the request to the response
    -- Why it ended so; null: accepted. The type limits the length, since a CHECK would cost every row 0.3 µs.
    reason       varchar(500),
    PRIMARY KEY (message, subscription, attempt, shard)
) PARTITION BY RANGE (message);
COMMENT ON TABLE attempts IS
    'Outcomes of all attempts, and of deliveries that ended without a request. Written by COPY and never changed. '
    'Maintenance creates one partition for each day ahead of time, and a default partition; retention drops whole '
    'days. Distributed by Citus.';

-- Outcomes are numbers of model::delivery::Ending: 1 accepted, 5 dead, 6 cancelled.
CREATE VIEW possible_arrivals AS
    SELECT message, subscription, shard FROM attempts
    WHERE ending = 1 OR took_ms IS NOT NULL AND (status IS NULL OR status >= 500)
       OR ending = 6 AND reason = 'stopped' OR ending = 5 AND reason = 'lease_exhausted';
COMMENT ON VIEW possible_arrivals IS
    'Attempts whose push may have come to the browser: accepted, without a response, failed after the request, or of a worker '
    'that was stopped or crashed. Withdrawals reach these browsers.';

CREATE TABLE receipts (
    message      uuid        NOT NULL, -- the message
    subscription uuid        NOT NULL, -- the recipient
    -- 1: displayed, 2: clicked, 3: closed. Of withdrawals: 4: removed, 5: prevented, 6: missed.
    kind         smallint    NOT NULL CHECK (kind BETWEEN 1 AND 6),
    shard        smallint    NOT NULL, -- the subscription's
    at           timestamptz NOT NULL, -- time of the report
    action       text        CHECK (length(action) <= 200), -- the notification's button; null: none
    PRIMARY KEY (message, subscription, kind, shard)
) PARTITION BY RANGE (message);
COMMENT ON TABLE receipts IS
    'Reports of service workers. The first report of a kind counts. Partitioned like `attempts`. Distributed by Citus.';

CREATE INDEX receipts_by_subscription ON receipts (subscription, at) WHERE kind IN (1, 2); -- attribution of conversions

CREATE TABLE message_counts (
    message   uuid    NOT NULL, -- the message
    lane      integer NOT NULL, -- the lane
    targeted  bigint  NOT NULL DEFAULT 0, -- deliveries
    accepted  bigint  NOT NULL DEFAULT 0, -- accepted by the push service
    gone      bigint  NOT NULL DEFAULT 0, -- the push service reported the subscription as gone
    expired   bigint  NOT NULL DEFAULT 0, -- the time to live ended first
    dead      bigint  NOT NULL DEFAULT 0, -- failed: dead letters
    cancelled bigint  NOT NULL DEFAULT 0, -- stopped before the request
    capped    bigint  NOT NULL DEFAULT 0, -- held back by a frequency cap
    sunset    bigint  NOT NULL DEFAULT 0, -- left out by the sunset rule; not in `targeted`
    PRIMARY KEY (message, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
-- No query filters by counts: ANALYZE does not sample them.
ALTER TABLE message_counts
    ALTER COLUMN targeted SET STATISTICS 0,
    ALTER COLUMN accepted SET STATISTICS 0,
    ALTER COLUMN gone SET STATISTICS 0,
    ALTER COLUMN expired SET STATISTICS 0,
    ALTER COLUMN dead SET STATISTICS 0,
    ALTER COLUMN cancelled SET STATISTICS 0,
    ALTER COLUMN capped SET STATISTICS 0,
    ALTER COLUMN sunset SET STATISTICS 0;
COMMENT ON TABLE message_counts IS
    'Ended deliveries of messages, by lane, so that lanes that settle at the same time do not wait for each other. '
    'Written by the transactions that end deliveries.';

CREATE TABLE receipt_counts (
    message      uuid   PRIMARY KEY, -- the message
    acknowledged bigint NOT NULL DEFAULT 0, -- deliveries with at least one receipt
    displayed    bigint NOT NULL DEFAULT 0, -- receipts of this kind
    clicked      bigint NOT NULL DEFAULT 0, -- receipts of this kind
    closed       bigint NOT NULL DEFAULT 0, -- receipts of this kind
    removed      bigint NOT NULL DEFAULT 0, -- receipts of this kind
    prevented    bigint NOT NULL DEFAULT 0, -- receipts of this kind
    missed       bigint NOT NULL DEFAULT 0  -- receipts of this kind
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE receipt_counts IS
    'Receipts of messages, counted by the transactions that insert them. No row: no receipts.';

CREATE TABLE dead_letters (
    shard        smallint    NOT NULL, -- the subscription's
    id           uuid        NOT NULL, -- UUIDv7 of `at`
    app          uuid        NOT NULL, -- owner
    message      uuid        NOT NULL, -- the message, whose content is kept for open dead letters
    subscription uuid        NOT NULL, -- the recipient
    lane         integer     NOT NULL, -- the lane
    tier         smallint    NOT NULL, -- the message's
    reason       text        NOT NULL, -- classify::DeadReason, or `gone` or `expired`
    status       smallint,   -- last HTTP status; null: no response
    detail       text        CHECK (length(detail) <= 500), -- text of the push service, without endpoints
    retries      integer     NOT NULL, -- attempts that were followed by a retry
    policy       jsonb,      -- delivery policy at the end
    -- open: may be replayed or discarded. closed: gone or expired, kept for the record without content. Both others are
    -- decisions of people.
    state        text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'discarded', 'closed')),
    at           timestamptz NOT NULL, -- end of the delivery
    -- Time at which it was replayed or discarded.
    settled_at   timestamptz CHECK ((settled_at IS NULL) = (state IN ('open', 'closed'))),
    replay       uuid        CHECK ((replay IS NULL) = (state <> 'replayed')), -- the message that replayed it
    CHECK ((state = 'closed') = (reason IN ('gone', 'expired'))),
    PRIMARY KEY (app, id, shard)
);
COMMENT ON TABLE dead_letters IS
    'Dead letters: deliveries that ended in failure. A campaign may leave a million closed ones, which pay for two '
    'indexes only.';
CREATE INDEX dead_letters_by_message ON dead_letters (message, id);
CREATE INDEX dead_letters_open ON dead_letters (app, id) WHERE state = 'open';
CREATE INDEX dead_letters_open_by_message ON dead_letters (app, message, id) WHERE state = 'open';
-- Erasures. Without the app: a plan that was made while the table is empty must not look for a message's dead letters
-- here.
CREATE INDEX dead_letters_open_by_subscription ON dead_letters (subscription) WHERE state = 'open';

CREATE TABLE dead_letter_actions (
    app       uuid        NOT NULL, -- owner
    operation uuid        NOT NULL, -- UUIDv7 of its start
    -- Number of the transaction in its operation, so that an interrupted operation is recorded as far as it came.
    part      integer     NOT NULL,
    action    text        NOT NULL CHECK (action IN ('replay', 'discard', 'export')), -- what was done
    actor     text        NOT NULL, -- who asked: the API key's id, or `local` for the command line
    filter    jsonb       NOT NULL, -- filter of the request
    n         bigint      NOT NULL CHECK (n >= 0), -- number of dead letters
    at        timestamptz NOT NULL, -- time of the transaction
    PRIMARY KEY (app, operation, part)
);
COMMENT ON TABLE dead_letter_actions IS 'History of what people did with dead letters. Rows never change.';

-- Only retention and the deletion of an app delete rows, and set a parameter of their transaction: an accidental DELETE
-- fails.
CREATE FUNCTION dead_letter_actions_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' OR current_setting('bellwire.dead_letter_retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'dead_letter_actions is append-only';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letter_actions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dead_letter_actions
    FOR EACH STATEMENT EXECUTE FUNCTION dead_letter_actions_is_append_only();

CREATE TABLE reliability_counts (
    minute timestamptz NOT NULL, -- start of the minute
    lane   integer     NOT NULL, -- the lane
    tier   smallint    NOT NULL, -- the tier
    metric smallint    NOT NULL, -- policy::reliability
    n      bigint      NOT NULL, -- count
    PRIMARY KEY (minute, lane, tier, metric)
) WITH (fillfactor = 50);
COMMENT ON TABLE reliability_counts IS
    'Reliability metrics of retries. Workers count in memory and add every few seconds: a worker that dies loses the '
    'last ones. The account of messages loses nothing.';

CREATE TABLE rollup_notes (
    minute  timestamptz NOT NULL, -- start of the minute
    lane    integer     NOT NULL, -- the lane
    tier    smallint    NOT NULL, -- the tier; 0: none, as for subscriptions
    message uuid,       -- a message with metrics of its own; null: any other message
    fact    smallint    NOT NULL, -- what is counted: model::fact
    n       bigint      NOT NULL  -- count
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE rollup_notes IS
    'Counts that are not in `rollups` yet, written in the transaction that causes them. Transactions only insert, so '
    'that none waits for another. Maintenance deletes rows and adds them to their minute, hour and day in one '
    'transaction: each counts once.';
-- Event streams and charts, even when maintenance is behind.
CREATE INDEX rollup_notes_by_minute ON rollup_notes (minute);
-- Subscriptions won and lost.
CREATE INDEX rollup_notes_of_subscriptions ON rollup_notes (lane) WHERE fact BETWEEN 40 AND 46;

CREATE TABLE rollups (
    step    smallint    NOT NULL CHECK (step BETWEEN 1 AND 3), -- 1: a minute, 2: an hour, 3: a day in UTC
    message uuid        NOT NULL, -- all zeros: every message of the lane
    lane    integer     NOT NULL, -- 0: every lane of the push service, so that all apps are read as fast as one lane
    start   timestamptz NOT NULL, -- start of the minute, hour or day
    tier    smallint    NOT NULL, -- as in rollup_notes
    gateway text        NOT NULL, -- the push service: lanes.gateway
    facts   smallint[]  NOT NULL, -- what was counted: model::fact
    ns      bigint[]    NOT NULL CHECK (cardinality(ns) = cardinality(facts)), -- the counts, in the order of `facts`
    PRIMARY KEY (step, message, lane, start, tier, gateway)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE rollups IS 'Metrics over time of deliveries, receipts and subscriptions.';
CREATE INDEX rollups_by_age ON rollups (step, start); -- retention

CREATE TABLE alerts (
    id          uuid        PRIMARY KEY, -- UUIDv7
    app         uuid,       -- owner; null: the server
    kind        text        NOT NULL, -- cause: store::outcomes::alerts::Kind
    subject     text        NOT NULL, -- what it is about: a key's id, a lane and tier; never a secret
    detail      text        NOT NULL, -- message for people
    n           bigint      NOT NULL DEFAULT 1, -- number of occurrences
    first_at    timestamptz NOT NULL, -- first occurrence
    last_at     timestamptz NOT NULL, -- last occurrence
    resolved_at timestamptz -- time of the resolution; null: open
);
COMMENT ON TABLE alerts IS 'What an operator has to look at. Repeated occurrences count in the open alert.';
CREATE UNIQUE INDEX alerts_open ON alerts (kind, subject) WHERE resolved_at IS NULL;

CREATE FUNCTION alerts_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (coalesce(NEW.resolved_at, NEW.first_at), NEW.app,
            CASE WHEN NEW.resolved_at IS NULL THEN 'alert.raised' ELSE 'alert.resolved' END,
            jsonb_build_object('alert', 'al_' || NEW.id, 'kind', NEW.kind, 'subject', NEW.subject, 'detail', NEW.detail));
    RETURN NULL;
END $$;
CREATE TRIGGER alerts_raised AFTER INSERT ON alerts FOR EACH ROW EXECUTE FUNCTION alerts_tell();
CREATE TRIGGER alerts_resolved AFTER UPDATE OF resolved_at ON alerts FOR EACH ROW
    WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at IS NOT NULL) EXECUTE FUNCTION alerts_tell();

CREATE TABLE events (
    id      uuid        PRIMARY KEY, -- UUIDv7 of `at`
    app     uuid        NOT NULL, -- owner
    kind    text        NOT NULL, -- such as dead_letter.created, subscription.gone or sla.missed
    subject text        NOT NULL, -- what it is about: a reason, a lane, a tier
    minute  timestamptz NOT NULL, -- start of the minute
    n       bigint      NOT NULL CHECK (n > 0), -- occurrences in the minute
    body    jsonb       NOT NULL, -- store::outcomes::events::Body
    at      timestamptz NOT NULL, -- first occurrence
    seq     bigint, -- position in the stream for warehouses; null: not in it yet
    pending boolean     NOT NULL DEFAULT true, -- to be added to the stream: new, or `n` has changed since
    UNIQUE (app, kind, subject, minute)
);
COMMENT ON TABLE events IS
    'Events, written in the transaction that causes them. Equal events of one minute are one row.';
CREATE INDEX events_by_app ON events (app, id);
CREATE INDEX events_by_seq ON events (app, seq);
CREATE INDEX events_pending ON events (app, id) WHERE pending;

-- Event streams get the first event of each minute; the list of events has the counts.
CREATE FUNCTION events_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (NEW.at, NEW.app, NEW.kind, NEW.body -> 'data' || jsonb_build_object('event', 'evt_' || NEW.id));
    RETURN NULL;
END $$;
CREATE TRIGGER events_told AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION events_tell();

CREATE TABLE stream_events (
    xid  xid8        NOT NULL DEFAULT pg_current_xact_id(), -- writing transaction
    seq  bigint      GENERATED ALWAYS AS IDENTITY, -- order within the transaction
    at   timestamptz NOT NULL, -- time of the event
    app  uuid,       -- owner; null: the server
    kind text        NOT NULL, -- live::event::Kind
    data jsonb       NOT NULL, -- body of the event; never a secret, nor an operator's note
    PRIMARY KEY (xid, seq)
);
COMMENT ON TABLE stream_events IS
    'Events for event streams and webhooks, kept for a day. Transactions do not commit in the order in which they '
    'begin: readers stay below the oldest transaction in progress, in the order of the key, and so miss and repeat '
    'nothing.';
CREATE INDEX stream_events_by_time ON stream_events (at); -- retention
CREATE INDEX stream_events_by_app ON stream_events (app, xid, seq); -- the stream of an app

CREATE TABLE stream_floor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), -- there is one row
    xid xid8    NOT NULL, -- key of the last event that retention deleted
    seq bigint  NOT NULL  -- key of the last event that retention deleted
);
COMMENT ON TABLE stream_floor IS 'A reader that resumes from here or later misses nothing.';
INSERT INTO stream_floor (xid, seq) SELECT pg_snapshot_xmin(pg_current_snapshot()), 0;
