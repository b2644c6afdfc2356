-- What is sent, and what is still to be sent: lanes, messages, cursors, batches and queue rows, and what delays or
-- stops them.
--
-- A delivery is (message, subscription). A large audience is never expanded into rows: a cursor for each lane records
-- the progress of the fan-out, workers take batches of up to 500 recipients from it, and a batch settles once and as a
-- whole. Only what waits alone (a single send, a small audience, a retry) is a row of `queue`.

CREATE TABLE lanes (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- short, since many rows contain it
    app       uuid    NOT NULL REFERENCES apps, -- owner of the key
    vapid_key uuid    NOT NULL REFERENCES vapid_keys, -- the key that signs
    -- The push service; other: any unknown host.
    gateway   text    NOT NULL CHECK (gateway IN ('fcm', 'mozilla', 'wns', 'apple', 'other')),
    UNIQUE (vapid_key, gateway)
);
COMMENT ON TABLE lanes IS
    'Lanes: deliveries with one VAPID key to one push service, with their own concurrency, throttle, hold and circuit '
    'breaker, since push services limit by site and by host. In memory, `other` is divided by origin. Rows are never '
    'deleted while their app exists.';

CREATE TABLE lane_states (
    lane               integer     NOT NULL, -- the lane
    origin             text        NOT NULL, -- `https://host[:port]`; `*`: all origins of the lane, later ones included
    -- No request before: a Retry-After, a growing hold after 429 without one, or an operator's hold.
    held_until         timestamptz,
    -- Circuit breaker; null: it never opened.
    breaker            text        CHECK (breaker IN ('closed', 'open', 'half_open')),
    -- Time at which an open breaker lets probes through.
    open_until         timestamptz CHECK (open_until IS NOT NULL OR breaker <> 'open'),
    open_ms            integer,     -- duration of the last opening, in milliseconds; it doubles with each further one
    breaker_changed_at timestamptz, -- of two states of a breaker, the later one is valid
    changed_at         timestamptz NOT NULL, -- last change: workers read changes since their last read
    held_at            timestamptz, -- time at which the present hold was set
    released_at        timestamptz, -- last release by an operator: earlier holds are void
    reason             text,        -- cause of the hold: `operator`, `mass_gone`; null: a response of the push service
    note               text,        -- an operator's note
    prober             uuid,        -- the worker whose probes test a half-open breaker
    probe_until        timestamptz, -- end of that right
    -- Largest plaintext in bytes that the push service is expected to accept; null: no limit found.
    payload_max        integer     CHECK (payload_max > 0),
    payload_at         timestamptz, -- time at which that limit was found or, without payload_max, disproved
    -- Start of the hold of a refused VAPID key, which lets probes through; origin `*` only.
    key_held_at        timestamptz,
    key_held_until     timestamptz, -- end of that hold
    key_released_at    timestamptz, -- last time that a probe ended such a hold: earlier ones are void
    -- The only worker that cannot reach the origin, by its network or its clock, and that the breaker is for; null: all
    -- workers.
    breaker_of         uuid,
    PRIMARY KEY (lane, origin)
);
COMMENT ON TABLE lane_states IS
    'Holds and circuit breakers. What one worker learns from a push service binds the others within one poll.';

-- Tells event streams. Triggers, since a dozen statements change these small tables, and one that forgot would not be
-- noticed.
CREATE FUNCTION lanes_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    held_until timestamptz := greatest(NEW.held_until, NEW.key_held_until);
BEGIN
    IF held_until IS DISTINCT FROM greatest(OLD.held_until, OLD.key_held_until) THEN
        INSERT INTO stream_events (at, app, kind, data)
        SELECT NEW.changed_at, l.app, CASE WHEN held_until > NEW.changed_at THEN 'lane.held' ELSE 'lane.released' END,
               jsonb_build_object('lane', l.id, 'gateway', l.gateway, 'origin', NEW.origin, 'held_until', held_until, 'reason',
                   CASE WHEN held_until IS NULL THEN NULL WHEN held_until = NEW.key_held_until THEN 'key_refused'
                        ELSE coalesce(NEW.reason, 'throttled') END)
        FROM lanes l WHERE l.id = NEW.lane;
    END IF;
    IF (NEW.breaker, NEW.open_until, NEW.breaker_of) IS DISTINCT FROM (OLD.breaker, OLD.open_until, OLD.breaker_of) THEN
        INSERT INTO stream_events (at, app, kind, data)
        SELECT NEW.changed_at, l.app, 'lane.breaker',
               jsonb_build_object('lane', l.id, 'gateway', l.gateway, 'origin', NEW.origin, 'breaker',
                   coalesce(NEW.breaker, 'closed'), 'open_until', NEW.open_until, 'of_one_replica', NEW.breaker_of IS NOT NULL)
        FROM lanes l WHERE l.id = NEW.lane;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lane_states_told AFTER INSERT OR UPDATE ON lane_states FOR EACH ROW EXECUTE FUNCTION lanes_tell();

CREATE TABLE lane_limits (
    worker      uuid    NOT NULL REFERENCES workers ON DELETE CASCADE, -- the worker
    lane        integer NOT NULL REFERENCES lanes ON DELETE CASCADE, -- the lane, all origins together
    concurrency integer NOT NULL CHECK (concurrency > 0), -- requests that the worker allows at the same time
    PRIMARY KEY (worker, lane)
);
COMMENT ON TABLE lane_limits IS
    'Present concurrency of lanes, which follows the responses of push services. Reported with heartbeats, for people '
    'only.';

CREATE TABLE lane_words (
    lane   integer     PRIMARY KEY REFERENCES lanes ON DELETE CASCADE, -- the lane
    at     timestamptz NOT NULL, -- time of the response
    status smallint,   -- HTTP status; null: no response
    detail text        CHECK (length(detail) <= 500) -- text of the push service, without endpoints and tokens
);
COMMENT ON TABLE lane_words IS
    'Last error of each lane, for people only. Responses that report a subscription as gone are no errors.';

CREATE TABLE breaker_trips (
    minute timestamptz NOT NULL, -- start of the minute
    lane   integer     NOT NULL, -- the lane
    n      bigint      NOT NULL, -- number of openings
    PRIMARY KEY (minute, lane)
);
COMMENT ON TABLE breaker_trips IS 'Counts how often circuit breakers opened by themselves.';

CREATE TABLE gone_watches (
    lane            integer          PRIMARY KEY, -- the lane
    -- 1 for each subscription reported as gone, less 0.25 for each acceptance, never below 0.
    score           double precision NOT NULL,
    scored_at       timestamptz      NOT NULL, -- last subscription reported as gone; the score is void 10 minutes later
    -- Time at which the score last left 0: an alarm restores what was pruned since.
    rising_since    timestamptz      NOT NULL,
    suspected_at    timestamptz,     -- start of the present or last suspicion; null: there was none
    -- End of the suspicion: until then the first such response prunes no subscription of the lane.
    suspected_until timestamptz,
    held_until      timestamptz,     -- end of the last hold of the lane that the suspicion set
    reopened        boolean          NOT NULL, -- a push was accepted since that hold
    recovered_at    timestamptz      -- last acceptance of a push to a suspect: earlier responses confirm nothing
);
COMMENT ON TABLE gone_watches IS
    'Finds push services that suddenly report many working subscriptions as gone. One row for each lane with such a '
    'response; all workers count in it.';

CREATE TABLE gone_suspects (
    subscription uuid        PRIMARY KEY, -- the subscription
    lane         integer     NOT NULL, -- its lane
    first_at     timestamptz NOT NULL -- first response that reported it as gone
);
COMMENT ON TABLE gone_suspects IS
    'Subscriptions that were reported as gone during a suspicion. A second such response, 15 minutes later, prunes '
    'them.';
CREATE INDEX gone_suspects_by_time ON gone_suspects (first_at);

CREATE TABLE flows (
    id          uuid        PRIMARY KEY, -- UUIDv7
    app         uuid        NOT NULL REFERENCES apps, -- owner
    lane        integer     REFERENCES lanes, -- null: all lanes of the app together
    rate        integer     CHECK (rate >= 1), -- maximum of deliveries in each period; null: no limit
    period_ms   integer     CHECK (period_ms BETWEEN 1 AND 86400000), -- the period
    parallelism integer     CHECK (parallelism >= 1), -- maximum of requests at the same time; null: no limit
    paused      boolean     NOT NULL DEFAULT false, -- nothing is sent
    reset_at    timestamptz NOT NULL, -- earlier use does not count
    changed_at  timestamptz NOT NULL, -- last change: workers read changes since their last read
    -- Tiers that the runaway guard holds until an operator releases them; only in rows of whole apps.
    held_tiers  smallint[]  NOT NULL DEFAULT '{}' CHECK (held_tiers <@ ARRAY[1, 2, 3]::smallint[]),
    held_at     timestamptz, -- start of that hold
    CHECK ((rate IS NULL) = (period_ms IS NULL)),
    UNIQUE NULLS NOT DISTINCT (app, lane),
    CHECK ((cardinality(held_tiers) = 0) = (held_at IS NULL)),
    CHECK (lane IS NULL OR held_at IS NULL)
);
COMMENT ON TABLE flows IS 'Flow control of apps and lanes. Deliveries above a limit wait.';

CREATE TABLE guards (
    app         uuid        PRIMARY KEY REFERENCES apps, -- the app
    -- An app that sends more than `factor` times its active subscriptions, plus `floor`, within 15 minutes is a
    -- runaway.
    factor      integer     CHECK (factor BETWEEN 0 AND 1000), -- null: the server's setting; 0: no guard
    floor       bigint      CHECK (floor BETWEEN 0 AND 1000000000), -- null: the server's setting
    released_at timestamptz -- last release by an operator: earlier messages do not count; null: never
);
COMMENT ON TABLE guards IS
    'Settings of the runaway guard, which holds an app that sends far more than its size explains. Only apps with a '
    'setting or a former hold have a row.';

CREATE TABLE tier_settings (
    app         uuid        NOT NULL REFERENCES apps, -- the app
    tier        smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3), -- 1: transactional, 2: promotional, 3: engagement
    policy      jsonb,      -- delivery policy, as written; null: the tier's default
    off_peak    jsonb,      -- policy::calendar, engagement only: hours for sending, in the app's zone; null: any hour
    -- A later acceptance is an event; null: no such limit.
    sla_seconds integer     CHECK (sla_seconds BETWEEN 1 AND 2592000),
    changed_at  timestamptz NOT NULL, -- last change
    PRIMARY KEY (app, tier)
);
COMMENT ON TABLE tier_settings IS
    'What an app sets for a tier. No row: the defaults. Of the policies that apply to a delivery, each member comes '
    'from the first that has it: message, subscription, topic, tier, default.';

CREATE TABLE templates (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps, -- owner
    name       text        NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,63}$'), -- name in requests
    content    bytea       NOT NULL, -- sealed: the JSON of model::template::Template
    created_at timestamptz NOT NULL, -- time of creation
    changed_at timestamptz NOT NULL, -- last change
    UNIQUE (app, name)
);
COMMENT ON TABLE templates IS
    'Message templates. A message contains a copy: changing a template changes no message that was accepted.';
CREATE INDEX templates_by_app ON templates (app, id);

CREATE TABLE messages (
    -- UUIDv7; a scheduled message has the id of its `send_at`. `attempts` and `receipts` are partitioned by it.
    id                uuid        PRIMARY KEY,
    app               uuid        NOT NULL REFERENCES apps, -- owner
    -- 1: transactional, 2: promotional, 3: engagement.
    tier              smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3),
    -- sending: what is due is sent. A message is done when it has no cursors, batches and queue rows.
    state             text        NOT NULL CHECK (state IN ('scheduled', 'sending', 'paused', 'cancelled')),
    audience          jsonb       NOT NULL, -- `to` of the request; once `content` is null, ids of users are null, too
    -- sealed: the JSON of model::message::Content; null: every delivery ended, and no open dead letter needs it.
    content           bytea,
    ttl_s             integer     NOT NULL CHECK (ttl_s >= 0), -- time to live in seconds, from accepted_at on
    urgency           smallint    NOT NULL CHECK (urgency BETWEEN 0 AND 3), -- RFC 8030: very-low to high
    -- Hash of (app, collapse key); null: no collapse key.
    topic_header      text        CHECK (length(topic_header) = 32),
    policy            jsonb,      -- the message's own delivery policy, as written; null: none
    audience_estimate bigint      NOT NULL CHECK (audience_estimate >= 0), -- recipients at acceptance
    accepted_at       timestamptz NOT NULL, -- time of acceptance, or `send_at`
    expires_at        timestamptz NOT NULL, -- end of the time to live
    -- Time of the last resume; null: maintenance has made every paused queue row due again.
    resumed_at        timestamptz,
    topic             integer,    -- the topic that it was addressed to, whose policy applies; null: none
    replay_of         uuid,       -- the message that was sent first, also for a replay of a replay; null: not a replay
    ended_by          timestamptz, -- time at which maintenance first found every delivery ended
    -- Time at which maintenance checks again, give or take its grace; null: not checked yet.
    look_at           timestamptz,
    enveloped         boolean     NOT NULL DEFAULT true, -- its pushes contain our envelope with the token of receipts
    traceparent       text,       -- span of the request (W3C Trace Context); null: the request was not traced
    -- model::filter::Filter, evaluated for each subscription during the fan-out; null: no filter.
    filter            jsonb,
    -- What delivery ids derive from: all messages of one run of a campaign share it, so that a person in two of them
    -- sees one. Null: replay_of or the message's own id.
    root              uuid,
    campaign          uuid,       -- the campaign; null: none
    -- Variant of the campaign; 0: the first.
    variant           smallint    CHECK ((variant IS NULL) = (campaign IS NULL)),
    never_began       boolean     NOT NULL DEFAULT false, -- cancelled before it was due, with nothing left to clean up
    -- The API key or teammate that sent it; null: a campaign, the example page or a diagnosis.
    sent_by           uuid,
    -- Time as of which person and time zone decide for whom it is: that of the campaign's run; null: the present.
    assigned_at       timestamptz,
    received_at       timestamptz, -- time of acceptance of a scheduled message; null: accepted_at
    clear_on_click    boolean     NOT NULL DEFAULT false, -- a click in one browser removes it from the person's others
    -- The message that this one removes from browsers; its own id: it closes notifications by tag; null: an ordinary message.
    withdraws         uuid,
    is_update         boolean     NOT NULL DEFAULT false, -- it shows new content instead of removing the message
    -- What the delivery ids of that message derive from, since retention may delete it earlier.
    withdraws_root    uuid        CHECK ((withdraws_root IS NULL) = (withdraws IS NULL))
);
-- No query filters by these columns: ANALYZE does not sample them.
ALTER TABLE messages
    ALTER COLUMN topic_header SET STATISTICS 0,
    ALTER COLUMN policy SET STATISTICS 0,
    ALTER COLUMN traceparent SET STATISTICS 0,
    ALTER COLUMN filter SET STATISTICS 0;
COMMENT ON TABLE messages IS
    'Messages. The account of a message holds in every snapshot: targeted = queued + dispatching + retrying + accepted '
    '+ gone + expired + dead + cancelled + capped. The first three are counted from `queue` and `batches`, all '
    'others, `targeted` included, are in message_counts.';
CREATE INDEX messages_by_app ON messages (app, id);
CREATE INDEX messages_in_motion ON messages (state)
    WHERE state IN ('paused', 'cancelled') AND NOT never_began OR resumed_at IS NOT NULL; -- sweeps
-- Deletion of content.
CREATE INDEX messages_with_content ON messages (coalesce(look_at, accepted_at)) WHERE content IS NOT NULL;
CREATE INDEX messages_by_topic ON messages (topic, id) WHERE topic IS NOT NULL; -- use of topics
CREATE INDEX messages_by_campaign ON messages (campaign, id) WHERE campaign IS NOT NULL;
-- Messages that follow their campaign's state. Triggers create one for each person.
CREATE INDEX messages_moving_by_campaign ON messages (campaign, id) WHERE campaign IS NOT NULL AND content IS NOT NULL;
-- Whether a later message has the collapse key of one that is withdrawn.
CREATE INDEX messages_by_collapse_key ON messages (app, topic_header, id) WHERE topic_header IS NOT NULL;

CREATE INDEX messages_by_withdrawn ON messages (withdraws) WHERE withdraws IS NOT NULL;

CREATE TABLE click_clears (
    message      uuid NOT NULL, -- the clicked message
    subscription uuid NOT NULL, -- the browser in which it was clicked
    PRIMARY KEY (message, subscription)
);
COMMENT ON TABLE click_clears IS
    'Clicks on messages with `clear_on_click`, until maintenance has removed the message from the other browsers of the person.';

CREATE TABLE removed_deliveries (
    message      uuid NOT NULL, -- the message
    subscription uuid NOT NULL, -- the browser that it was removed from
    PRIMARY KEY (message, subscription)
);
COMMENT ON TABLE removed_deliveries IS 'Messages that were removed from single browsers, so that a repeat sends nothing.';

CREATE TABLE withdrawals (
    message  uuid        PRIMARY KEY, -- the withdrawn message
    app      uuid        NOT NULL, -- owner
    at       timestamptz NOT NULL, -- time of the request
    sent_by  uuid,       -- the API key or teammate that asked for it; null: a campaign
    ended_at timestamptz, -- time at which every delivery of the message had ended; null: some have not
    removal  uuid        -- the message that removes it from browsers; null: none is needed, or none yet
);
COMMENT ON TABLE withdrawals IS
    'Withdrawn messages. The message is cancelled first. When none of its pushes can start any longer, another message '
    'removes it from the browsers that may have it.';
CREATE INDEX withdrawals_waiting ON withdrawals (message) WHERE ended_at IS NULL;
CREATE INDEX withdrawals_by_removal ON withdrawals (removal) WHERE removal IS NOT NULL;

CREATE TABLE message_keys (
    app     uuid NOT NULL, -- owner
    key     text NOT NULL CHECK (length(key) BETWEEN 1 AND 255), -- the sender's name for the message
    message uuid NOT NULL, -- the message
    PRIMARY KEY (app, key)
);
COMMENT ON TABLE message_keys IS
    'Senders'' own names of messages. A name is free once every delivery of its message has ended; the next message '
    'takes the row over.';
CREATE INDEX message_keys_by_message ON message_keys (message); -- retention

-- cursors, batches, queue and message_counts are rewritten completely within seconds. Autovacuum counts rows instead of
-- shares, and does not truncate: that takes a lock which stops every claim.

CREATE TABLE cursors (
    message uuid        NOT NULL, -- the message
    lane    integer     NOT NULL, -- the lane
    tier    smallint    NOT NULL, -- the message's
    topic   integer,    -- the topic; null: every active subscription of the lane
    after   uuid        NOT NULL, -- last recipient that was taken
    due_at  timestamptz NOT NULL, -- set to the present by every batch, so that messages of one lane and tier take turns
    -- Microseconds from one recipient to the next, at a send rate; null: no send rate.
    pace_us bigint      CHECK (pace_us > 0),
    PRIMARY KEY (message, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
COMMENT ON TABLE cursors IS
    'Progress of fan-outs. In one transaction a worker locks the row (SKIP LOCKED), reads the next recipients by id, '
    'advances `after` and inserts a batch. The last recipient deletes the row.';
CREATE INDEX cursors_due ON cursors (lane, tier, due_at);

CREATE TABLE campaigns_in_motion (
    message uuid PRIMARY KEY, -- the message
    app     uuid NOT NULL -- owner
);
COMMENT ON TABLE campaigns_in_motion IS
    'Messages with a fan-out, until all of their deliveries have ended: event streams report their progress.';
CREATE INDEX campaigns_in_motion_by_app ON campaigns_in_motion (app, message); -- the newest of each app

CREATE TABLE batches (
    id         uuid        PRIMARY KEY, -- UUIDv7
    message    uuid        NOT NULL, -- the message
    lane       integer     NOT NULL, -- the lane
    tier       smallint    NOT NULL, -- the message's
    recipients uuid[]      NOT NULL, -- subscriptions in order, which the account counts as dispatching
    lease      uuid        NOT NULL, -- new for every claim
    due_at     timestamptz NOT NULL, -- end of the lease
    -- Claims so far; the third divides the batch into queue rows without sending.
    leases     smallint    NOT NULL DEFAULT 1
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = false);
ALTER TABLE batches
    ALTER COLUMN recipients SET STORAGE EXTERNAL, -- ids do not compress
    ALTER COLUMN recipients SET STATISTICS 0;
COMMENT ON TABLE batches IS
    'Recipients that one worker took from a cursor. Deleting the row by its `lease` is the fence of the settlement: '
    'only the transaction that deletes it records the outcomes.';
CREATE INDEX batches_due ON batches (lane, tier, due_at);
CREATE INDEX batches_by_message ON batches (message);

CREATE TABLE queue (
    shard        smallint    NOT NULL, -- the subscription's
    subscription uuid        NOT NULL, -- the recipient
    message      uuid        NOT NULL, -- the message
    lane         integer     NOT NULL, -- the lane
    tier         smallint    NOT NULL, -- the message's
    retries      integer     NOT NULL DEFAULT 0 CHECK (retries >= 0), -- attempts that were followed by a retry
    due_at       timestamptz NOT NULL, -- time from which it may be claimed, or end of its lease; infinity: paused
    scheduled_at timestamptz NOT NULL, -- time that the policy set; leases do not move it
    lease        uuid,       -- new for every claim; null: not claimed
    -- Claims so far; the fifth ends the delivery as dead, `lease_exhausted`. A settlement leaves 1 if a claim was lost.
    leases       smallint    NOT NULL DEFAULT 0,
    -- Signature of (message, subscription, retries, scheduled_at): policy::token. A row with another token is never
    -- sent.
    token        bytea       NOT NULL,
    failed_at    timestamptz, -- time of the failed attempt before; null: none
    has_turn     boolean     NOT NULL DEFAULT false, -- the subscription's throttle set `due_at`: it is not asked again
    life         integer     NOT NULL DEFAULT 0, -- `life` of the subscription that the delivery is for
    PRIMARY KEY (shard, subscription, message)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, vacuum_truncate = false);
ALTER TABLE queue ALTER COLUMN token SET STATISTICS 0;
COMMENT ON TABLE queue IS 'Deliveries that wait alone: single sends, small audiences and retries.';
CREATE INDEX queue_due ON queue (lane, tier, due_at);
CREATE INDEX queue_by_message ON queue (message);

CREATE TABLE stops (
    at     timestamptz NOT NULL, -- time of the change; it says nothing about when the change was committed
    -- unsubscribe: ended or suspended. gone: reported by the push service. replace: another subscription takes over.
    -- user: what is for its former user. cancel, pause, resume: of a message.
    kind   text        NOT NULL CHECK (kind IN ('unsubscribe', 'gone', 'replace', 'user', 'cancel', 'pause', 'resume')),
    target uuid        NOT NULL, -- a subscription or a message
    -- Drawn while the target is locked: of two stops of a target, the higher one is valid.
    seq    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Writing transaction: each read begins at the oldest one that the read before could not see.
    xid    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    life   integer,    -- deliveries of this life of a subscription and of earlier ones are stopped; null: a message
    CHECK ((life IS NULL) = (kind IN ('cancel', 'pause', 'resume')))
);
COMMENT ON TABLE stops IS
    'What must not be sent any longer, written in the transaction that decides it. Every worker reads new rows several '
    'times a second and checks them before each request. Kept for an hour, far longer than a delivery stays in '
    'memory.';
CREATE INDEX stops_by_time ON stops (at); -- retention
CREATE INDEX stops_by_transaction ON stops (xid);

CREATE TABLE throttles (
    shard        smallint    NOT NULL, -- the subscription's
    subscription uuid        NOT NULL, -- the subscription
    next_at      timestamptz NOT NULL, -- earliest time of the next delivery; the row is void after it
    PRIMARY KEY (shard, subscription)
) WITH (fillfactor = 70);
COMMENT ON TABLE throttles IS 'Rate limits of subscriptions (`maxReceivesPerSecond`).';

CREATE TABLE subscription_holds (
    subscription uuid        PRIMARY KEY, -- the subscription
    held_at      timestamptz NOT NULL, -- time of the response that set the hold
    held_until   timestamptz NOT NULL, -- no request before; equal to held_at: a push was accepted after the hold
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id() -- writing transaction, as in stops
);
COMMENT ON TABLE subscription_holds IS
    'Subscriptions whose push service asked for a pause (429 and similar responses): all of their deliveries wait.';
CREATE INDEX subscription_holds_by_transaction ON subscription_holds (xid);
CREATE INDEX subscription_holds_by_end ON subscription_holds (held_until); -- retention

CREATE TABLE cap_uses (
    -- First half of SHA-256(app, user id); without a user, the browser's `origin_id`. No two apps share one.
    person  uuid     NOT NULL,
    app     uuid     NOT NULL, -- owner
    tiers   smallint NOT NULL, -- tiers counted together: 2 promotional, 3 engagement, 5 both
    -- Pairs, newest first: start of the delivery in microseconds since 1970, and the second half of the message's id,
    -- which is negative (RFC 9562). A replay counts as the message that it replays. At most 50 pairs.
    uses    bigint[] NOT NULL,
    -- Messages lately held back, so that no other browser of the user gets them, at most 8; null: none.
    refused bigint[],
    PRIMARY KEY (person, tiers)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Each delivery under a cap reads and updates one row, whose size decides the cost. Rows grow from 100 to 900 bytes,
-- hence the fill factor. Arrays are stored as they are, so that reading a number copies no array. No query filters by
-- them: ANALYZE would take as long as the work itself. The sample follows from the largest target.
ALTER TABLE cap_uses
    ALTER COLUMN uses SET STORAGE PLAIN,
    ALTER COLUMN refused SET STORAGE PLAIN,
    ALTER COLUMN person SET STATISTICS 10,
    ALTER COLUMN app SET STATISTICS 10,
    ALTER COLUMN tiers SET STATISTICS 10,
    ALTER COLUMN uses SET STATISTICS 0,
    ALTER COLUMN refused SET STATISTICS 0;
COMMENT ON TABLE cap_uses IS
    'Messages that count towards frequency caps: one row for each person and set of tiers that a cap counts together. '
    'Apps without caps have none.';
CREATE INDEX cap_uses_by_app ON cap_uses (app); -- read when an app is deleted
