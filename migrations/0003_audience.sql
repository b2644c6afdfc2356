-- Who can be reached: subscriptions, topics and segments, the counts of both, engagement, imports and erasures.

CREATE TABLE subscriptions (
    shard            smallint    NOT NULL CHECK (shard BETWEEN 0 AND 63), -- SHA-256(app, endpoint) mod 64
    id               uuid        NOT NULL, -- UUIDv7 whose last 6 bits are the shard
    app              uuid        NOT NULL, -- owner
    lane             integer     NOT NULL, -- never changes for an id, like the endpoint
    -- active: receives pushes. suspended: refused too often, kept without pushes. gone: the push service reported it as
    -- gone. unsubscribed: by the browser or the site. replaced: another row took over. expired: `expires_at` passed.
    state            text        NOT NULL
        CHECK (state IN ('active', 'suspended', 'gone', 'unsubscribed', 'replaced', 'expired')),
    -- The browser's first id, kept by every replacement; delivery ids derive from it.
    origin_id        uuid        NOT NULL,
    since            timestamptz NOT NULL, -- messages accepted before this time are not for it
    -- HMAC of (app, endpoint), which finds the row.
    endpoint_mac     bytea       NOT NULL CHECK (length(endpoint_mac) = 32),
    address          bytea       NOT NULL, -- sealed: p256dh (65 bytes), auth (16 bytes), endpoint
    -- The site's name of its user; null: no user.
    user_id          text        CHECK (length(user_id) BETWEEN 1 AND 255),
    tags             text[]      NOT NULL DEFAULT '{}', -- labels for segments
    attributes       jsonb       NOT NULL DEFAULT '{}', -- values for segments and templates
    locale           text,        -- BCP 47 language tag; null: not known
    timezone         text,        -- IANA name; null: not known
    expires_at       timestamptz, -- the browser's `expirationTime`; null: none
    -- Raised with every change of user or keys, which revokes the browser's token.
    token_version    integer     NOT NULL DEFAULT 1,
    last_seen        timestamptz NOT NULL, -- last registration, written at most daily
    created_at       timestamptz NOT NULL, -- first registration
    -- Time at which it stopped being active.
    ended_at         timestamptz CHECK ((state = 'active') = (ended_at IS NULL)),
    policy           jsonb,       -- delivery policy of the subscription, as written; null: none
    -- Until then only transactional messages are sent, as the person wishes; 9999-12-31: always; null: all are sent.
    muted_until      timestamptz CHECK (isfinite(muted_until)),
    -- Refusals in a row while not proven; a refused key counts five.
    refusals         smallint    NOT NULL DEFAULT 0 CHECK (refusals >= 0),
    -- Last time that a user left it: what was addressed to the user, or to it, until then is not sent.
    user_left_at     timestamptz,
    -- First receipt that shows that the browser can decrypt; null: the keys may be invented.
    keys_proven_at   timestamptz,
    -- A push service accepted a push: it belongs to the VAPID key of its lane.
    proven           boolean     NOT NULL DEFAULT false,
    refused_at       timestamptz, -- last refusal while not proven; null: not refused since
    -- Raised when pending deliveries are no longer for it: revived after its end, or another user.
    life             integer     NOT NULL DEFAULT 0,
    -- `life` at the last revival: deliveries of an earlier life are never sent.
    revived          integer     NOT NULL DEFAULT 0 CHECK (revived <= life),
    replaced_by      uuid,        -- the subscription that took over, which also receives pending deliveries
    -- `life` of that subscription then.
    replaced_by_life integer     CHECK ((replaced_by IS NULL) = (replaced_by_life IS NULL)),
    -- Last change of the keys: receipts of earlier messages do not prove them; null: never changed.
    keys_since       timestamptz,
    consent_at       timestamptz, -- time of consent; null: not known
    -- How consent was given, as the site reports it; `browser`: by registering.
    consent_source   text        CONSTRAINT subscriptions_consent_source_check
        CHECK (length(consent_source) BETWEEN 1 AND 200),
    -- Person and time zone of the last 16 changes, oldest first: model::assignment. Null: neither ever changed. A
    -- former user is a hash, as in `habits`, with the share of each campaign that was in progress.
    former           jsonb,
    -- A user token, an API key, an import or the subscription's token vouched for the keys. Other keys replace them
    -- only with one of these. Keys that a receipt has proven are never replaced.
    keys_vouched     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (shard, id)
);
COMMENT ON TABLE subscriptions IS
    'Push subscriptions of browsers. A browser with a new endpoint gets a new row with the old `origin_id`. '
    'Distributed by Citus.';
-- One row for each endpoint; `shard` follows from the rest.
CREATE UNIQUE INDEX subscriptions_by_endpoint ON subscriptions (app, endpoint_mac, shard);
CREATE INDEX subscriptions_by_lane ON subscriptions (lane, id) WHERE state = 'active'; -- fan-out
-- Ended ones too, for erasures.
CREATE INDEX subscriptions_by_user ON subscriptions (app, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX subscriptions_by_app ON subscriptions (app, id);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL AND state = 'active';
CREATE INDEX subscriptions_refused ON subscriptions (lane, refused_at) WHERE refusals >= 5 AND state = 'active';
-- The hygiene report.
CREATE INDEX subscriptions_lost ON subscriptions (app, ended_at) WHERE state IN ('gone', 'suspended');
CREATE INDEX subscriptions_ended ON subscriptions (ended_at)
    WHERE state IN ('gone', 'unsubscribed', 'replaced', 'expired'); -- retention
CREATE INDEX subscriptions_by_successor ON subscriptions (replaced_by) WHERE replaced_by IS NOT NULL; -- erasures

CREATE TABLE topics (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- short, since many rows contain it
    app        uuid        NOT NULL REFERENCES apps, -- owner
    name       text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_.~%-]{1,128}$'), -- name in requests
    created_at timestamptz NOT NULL, -- time of creation
    policy     jsonb,      -- delivery policy of messages to the topic, as written; null: none
    -- server: browsers cannot join or leave.
    join_by    text        NOT NULL DEFAULT 'anyone' CHECK (join_by IN ('anyone', 'server')),
    -- Topics of browsers are limited, and deleted when unused.
    made_by    text        NOT NULL DEFAULT 'server' CHECK (made_by IN ('browser', 'server')),
    -- Title, description, position and translations, for the preferences of visitors; null: not offered there.
    display    jsonb,
    UNIQUE (app, name)
);
CREATE INDEX topics_displayed ON topics (app) WHERE display IS NOT NULL; -- each page that offers preferences reads them
COMMENT ON TABLE topics IS
    'Topics: named audiences that subscriptions join. The first subscription that joins or the first message to a '
    'topic creates its row.';

CREATE TABLE removed_topics (
    topic      integer     PRIMARY KEY, -- former `topics.id`
    removed_at timestamptz NOT NULL -- time of the deletion
);
COMMENT ON TABLE removed_topics IS
    'Deleted topics, until the last row of topic_members that refers to them is deleted.';

CREATE TABLE topic_members (
    shard        smallint    NOT NULL, -- the subscription's
    subscription uuid        NOT NULL, -- the member
    topic        integer     NOT NULL, -- the topic
    lane         integer     NOT NULL, -- the subscription's: fan-out reads one lane without a join
    joined_at    timestamptz NOT NULL, -- messages accepted before this time are not for the member
    PRIMARY KEY (shard, subscription, topic)
);
COMMENT ON TABLE topic_members IS 'Subscriptions of each topic. Distributed by Citus.';
CREATE INDEX topic_members_by_lane ON topic_members (topic, lane, subscription); -- fan-out

CREATE TABLE former_topic_members (
    shard        smallint    NOT NULL, -- the subscription's
    subscription uuid        NOT NULL, -- a subscription that is gone
    topic        integer     NOT NULL, -- a topic that it was in
    joined_at    timestamptz NOT NULL, -- as in topic_members
    PRIMARY KEY (shard, subscription, topic)
);
COMMENT ON TABLE former_topic_members IS
    'Topics that a subscription was in when it was found gone, for its revival or its replacement. Apart from '
    'topic_members, so that fan-out and counts never read it.';

CREATE TABLE segments (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- only for lists
    app         uuid        NOT NULL REFERENCES apps, -- owner
    name        text        NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,63}$'), -- name in requests
    description text        CHECK (length(description) BETWEEN 1 AND 500), -- for people
    expression  text        NOT NULL CHECK (octet_length(expression) BETWEEN 1 AND 4096), -- in normal form
    created_at  timestamptz NOT NULL, -- time of creation
    changed_at  timestamptz NOT NULL, -- last change
    UNIQUE (app, name)
);
COMMENT ON TABLE segments IS
    'Named filters of subscriptions. A message copies the expression: changing a segment changes no message that was '
    'accepted.';

CREATE TABLE audience_counts (
    topic integer NOT NULL, -- members of this topic; 0: all active subscriptions
    lane  integer NOT NULL, -- the lane of these subscriptions
    n     bigint  NOT NULL, -- number of subscriptions
    PRIMARY KEY (topic, lane)
);
COMMENT ON TABLE audience_counts IS
    'Sizes of audiences, so that no request counts subscriptions. Maintenance adds the rows of audience_changes; the '
    'view audiences is exact in every snapshot.';
CREATE INDEX audience_counts_empty ON audience_counts (topic, lane) WHERE n = 0; -- rows to delete

CREATE TABLE audience_changes (
    topic integer NOT NULL, -- as in audience_counts
    lane  integer NOT NULL, -- as in audience_counts
    n     bigint  NOT NULL, -- difference
    at    timestamptz,      -- time of the change, for metrics over time; null: not recorded, as for members of topics
    fact  smallint          -- kind of the change: model::fact; null: not recorded
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE audience_changes IS
    'Changes of sizes that are not in audience_counts yet. Transactions only insert, so that none waits for another.';
CREATE INDEX audience_changes_by_topic ON audience_changes (topic, lane) INCLUDE (n);

CREATE VIEW audiences AS
SELECT topic, lane, n FROM audience_counts UNION ALL SELECT topic, lane, n FROM audience_changes;
COMMENT ON VIEW audiences IS 'Sizes of audiences: the sum of `n` over a topic, a lane, or both.';

-- Triggers, since a dozen statements create, end, revive and delete subscriptions, and one that forgot to count would
-- not be noticed. They insert one row for each statement and lane. A distributed database has none: its statements
-- count.
--
-- Numbers of facts: model::fact. Registrations count at the start of their minute. Imported subscriptions may be older:
-- their times are cut to the hour or day, as metrics of that age are by default, so that a file makes few rows.
CREATE FUNCTION audience_gains_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    SELECT 0, lane, count(*), at, 40
    FROM (SELECT lane, date_trunc(CASE WHEN since - created_at < interval '2 days' THEN 'minute'
                                       WHEN since - created_at < interval '90 days' THEN 'hour' ELSE 'day' END, created_at, 'UTC') AS at
          FROM changed WHERE state = 'active') AS gained
    GROUP BY lane, at;
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptions_gained AFTER INSERT ON subscriptions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_gains_subscriptions();

-- A row that is deleted while it is active, with its app, has no time of its own for that.
CREATE FUNCTION audience_loses_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    SELECT 0, lane, -count(*), clock_timestamp(), 46 FROM changed WHERE state = 'active' GROUP BY lane;
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptions_lost AFTER DELETE ON subscriptions REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_loses_subscriptions();

-- Only the state counts: the lane of a row never changes.
CREATE FUNCTION audience_follows_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    VALUES (0, NEW.lane, CASE WHEN NEW.state = 'active' THEN 1 ELSE -1 END,
            CASE WHEN NEW.state = 'active' THEN NEW.since ELSE NEW.ended_at END,
            CASE NEW.state WHEN 'active' THEN 40 WHEN 'gone' THEN 41 WHEN 'unsubscribed' THEN 42 WHEN 'replaced' THEN 43
                           WHEN 'expired' THEN 44 WHEN 'suspended' THEN 45 END);
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptions_followed AFTER UPDATE OF state ON subscriptions
    FOR EACH ROW WHEN ((OLD.state = 'active') <> (NEW.state = 'active'))
    EXECUTE FUNCTION audience_follows_state();

CREATE FUNCTION audience_gains_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n) SELECT topic, lane, count(*) FROM changed GROUP BY topic, lane;
    RETURN NULL;
END $$;
CREATE TRIGGER members_gained AFTER INSERT ON topic_members REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_gains_members();

CREATE FUNCTION audience_loses_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n) SELECT topic, lane, -count(*) FROM changed GROUP BY topic, lane;
    RETURN NULL;
END $$;
CREATE TRIGGER members_lost AFTER DELETE ON topic_members REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_loses_members();

CREATE TABLE user_shards (
    app     uuid     NOT NULL, -- owner
    user_id text     NOT NULL, -- a user
    shard   smallint NOT NULL, -- a shard with a subscription of the user, now or before: extra rows do no harm
    -- Time at which a subscription there stopped being the user's: the row may be deleted; null: still needed.
    left_at timestamptz,
    CONSTRAINT user_shards_pkey PRIMARY KEY (app, user_id, shard)
);
COMMENT ON TABLE user_shards IS
    'Shards in which users have subscriptions, on a database that Citus distributes: a query for one user reads these '
    'shards only. Empty on plain Postgres.';
CREATE INDEX user_shards_left ON user_shards (shard) WHERE left_at IS NOT NULL;

CREATE TABLE habit_notes (
    shard        smallint    NOT NULL, -- the subscription's
    subscription uuid        NOT NULL, -- where the message was shown
    message      uuid        NOT NULL, -- the message
    kind         smallint    NOT NULL CHECK (kind IN (1, 2)), -- 1: displayed, 2: clicked
    at           timestamptz NOT NULL -- time of the receipt
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE habit_notes IS
    'Receipts that are not in `habits` yet. Writers of receipts only insert; maintenance deletes each row and adds it '
    'to its person in one transaction, if the message was promotional or engagement.';

CREATE TABLE habits (
    app            uuid        NOT NULL, -- owner
    shard          smallint    NOT NULL, -- last 6 bits of `person`
    -- First half of SHA-256(app, user id); without a user, the browser's `origin_id`.
    person         uuid        NOT NULL,
    noted_at       timestamptz NOT NULL, -- last receipt; the row is deleted 400 days later
    clicked_at     timestamptz, -- last click; null: none
    unclicked      smallint    NOT NULL CHECK (unclicked >= 0), -- messages displayed since the last click, up to 1,000
    unclicked_from timestamptz, -- display of the first of these messages; null: there is none
    unclicked_to   timestamptz, -- display of the last of these messages
    -- Ids of the last 8 messages, newest first: another browser of the person may display the same message later.
    recent         bytea       NOT NULL CHECK (octet_length(recent) <= 128 AND octet_length(recent) % 16 = 0),
    hours          bytea       NOT NULL CHECK (octet_length(hours) = 24), -- clicks by local hour of the day
    -- The person's best hour before its last changes, so that one run of a campaign uses one hour from its first
    -- message to its last. 9 bytes for each change, oldest first: microseconds since 1970 until which it was valid, and
    -- the hour (255: not known). Changes of the last week, at most 16.
    former_hours   bytea       NOT NULL DEFAULT '' CONSTRAINT habits_former_hours_check
        CHECK (octet_length(former_hours) <= 144 AND octet_length(former_hours) % 9 = 0),
    PRIMARY KEY (app, shard, person),
    CHECK ((unclicked = 0) = (unclicked_from IS NULL) AND (unclicked = 0) = (unclicked_to IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE habits IS
    'Engagement of each person, for sunset rules and best hours. The first receipt of a person creates the row.';

CREATE TABLE imports (
    id             uuid        PRIMARY KEY, -- UUIDv7
    app            uuid        NOT NULL REFERENCES apps, -- owner
    format         text        NOT NULL CHECK (format IN ('ndjson', 'csv', 'json')), -- format of the file
    dry_run        boolean     NOT NULL, -- every change is rolled back, and only this row stays
    -- Lines of the file, or elements of its array, that are processed.
    lines          bigint      NOT NULL DEFAULT 0 CHECK (lines >= 0),
    added          bigint      NOT NULL DEFAULT 0 CHECK (added >= 0), -- new subscriptions
    known          bigint      NOT NULL DEFAULT 0 CHECK (known >= 0), -- known subscriptions, changed or not
    -- Ended here or in the file, or not a subscription.
    left_out       bigint      NOT NULL DEFAULT 0 CHECK (left_out >= 0),
    -- Wrong lines; import_faults lists the first ones.
    refused        bigint      NOT NULL DEFAULT 0 CHECK (refused >= 0),
    ignored        text[]      NOT NULL DEFAULT '{}', -- unknown columns of the file
    created_at     timestamptz NOT NULL, -- time of the first request
    changed_at     timestamptz NOT NULL, -- last progress
    finished_at    timestamptz, -- time at which the end of the file was read; null: not read yet
    -- Progress of each half of the file (store::audience::imports): the halves are registered side by side, and `lines`
    -- is the smaller number.
    halves         bigint[]    NOT NULL CONSTRAINT imports_halves_check
        CHECK (cardinality(halves) = 2 AND lines <= ALL (halves)),
    restore_pruned boolean     NOT NULL DEFAULT false, -- pruned subscriptions in the file become active again
    restored       bigint      NOT NULL DEFAULT 0, -- subscriptions that became active again, included in `known`
    -- Subscriptions left out because they are pruned, included in `left_out`.
    pruned         bigint      NOT NULL DEFAULT 0,
    warned         bigint      NOT NULL DEFAULT 0  -- lines that were taken without a detail
);
COMMENT ON TABLE imports IS
    'Imports of subscriptions, and their progress. The transactions that register subscriptions advance it: an '
    'interrupted import continues with the line after `lines`, and counts nothing twice.';
CREATE INDEX imports_by_app ON imports (app, id);

CREATE TABLE import_faults (
    import     uuid     NOT NULL REFERENCES imports ON DELETE CASCADE, -- the import
    line       bigint   NOT NULL CHECK (line > 0), -- line of the file
    n          smallint NOT NULL, -- number of the fault in its line; negative for warnings
    field      text     NOT NULL CHECK (length(field) <= 200), -- the field; empty: the whole line
    reason     text     NOT NULL CHECK (length(reason) <= 500), -- never contains a value, which may be a secret
    -- true: the line was taken without the detail; false: the line was refused.
    is_warning boolean  NOT NULL DEFAULT false,
    PRIMARY KEY (import, line, n)
);
COMMENT ON TABLE import_faults IS 'Faults of the first wrong lines of imported files, and details that were left out.';

CREATE TABLE erasures (
    id               uuid        PRIMARY KEY, -- UUIDv7
    app              uuid        NOT NULL REFERENCES apps, -- owner
    -- The user; null: complete, and nothing names the user.
    user_id          text        CHECK (length(user_id) BETWEEN 1 AND 255),
    -- Who asked: the id of an API key or a teammate, or `local` for the command line.
    actor            text        NOT NULL,
    subscriptions    bigint      NOT NULL DEFAULT 0, -- subscriptions that were ended and cleared
    messages         bigint      NOT NULL DEFAULT 0, -- messages whose audience named the user
    requested_at     timestamptz NOT NULL, -- time of the request
    completed_at     timestamptz CHECK ((completed_at IS NULL) = (user_id IS NOT NULL)), -- time of completion
    dead_letters     bigint      NOT NULL DEFAULT 0, -- open dead letters that were discarded
    -- Pending or failed webhook requests from which the user was removed.
    webhook_requests bigint      NOT NULL DEFAULT 0
);
COMMENT ON TABLE erasures IS
    'Erasures of users. The row is written before anything is erased, so that an interrupted erasure continues.';
CREATE UNIQUE INDEX erasures_open ON erasures (app, user_id) WHERE completed_at IS NULL;

CREATE TABLE diagnoses (
    app          uuid        NOT NULL, -- owner
    -- Shown to the person, who passes it on to support; Crockford's base32.
    code         text        NOT NULL CHECK (code ~ '^[0-9A-HJKMNP-TV-Z]{8}$'),
    subscription uuid        NOT NULL, -- the subscription
    -- The test notification; null: the subscription is not active, or the request failed before.
    message      uuid,
    -- State, key, number of topics and last outcomes, as the server found them at created_at; null: the request failed
    -- before.
    server       jsonb,
    checks       jsonb,      -- array of {name, ok, found, advice}, as the browser sent it; null: not reported yet
    created_at   timestamptz NOT NULL, -- start of the diagnosis
    PRIMARY KEY (app, code)
);
COMMENT ON TABLE diagnoses IS
    'Reports of browsers on why notifications do not arrive. Kept for 7 days, at most 10 for each subscription.';
CREATE INDEX diagnoses_by_subscription ON diagnoses (subscription, created_at);
CREATE INDEX diagnoses_by_time ON diagnoses (created_at);

CREATE TABLE opt_in_counts (
    app       uuid   NOT NULL, -- owner
    day       date   NOT NULL, -- day of the steps, in UTC
    page      text   NOT NULL, -- path of the page; empty: other pages
    layout    text   NOT NULL, -- form of the prompt, or `preferences`
    variant   text   NOT NULL, -- variant of the prompt; empty: none
    browser   text   NOT NULL, -- opt_in::BrowserFamily
    shown     bigint NOT NULL, -- opt_in::OptInStep, like the next eight
    guided    bigint NOT NULL, -- a guide instead of the prompt
    accepted  bigint NOT NULL, -- a yes
    later     bigint NOT NULL, -- "not now"
    no        bigint NOT NULL, -- a no
    asked     bigint NOT NULL, -- the browser's own prompt
    granted   bigint NOT NULL, -- subscribed
    denied    bigint NOT NULL, -- refused in the browser's own prompt
    dismissed bigint NOT NULL, -- closed the browser's own prompt
    due_7     bigint NOT NULL DEFAULT 0, -- those granted whose seventh day is over
    kept_7    bigint NOT NULL DEFAULT 0, -- those of them who were still subscribed
    due_30    bigint NOT NULL DEFAULT 0, -- those granted whose thirtieth day is over
    kept_30   bigint NOT NULL DEFAULT 0, -- those of them who were still subscribed
    PRIMARY KEY (app, day, page, layout, variant, browser)
);
COMMENT ON TABLE opt_in_counts IS
    'Steps from visitors to subscribers, as browsers report them: counts without ids. At most 200 pages a day.';

CREATE TABLE opt_in_subscribers (
    subscription uuid        PRIMARY KEY, -- the subscription
    app          uuid        NOT NULL, -- owner
    day          date        NOT NULL, -- with the next four: the row of opt_in_counts
    page         text        NOT NULL, -- the page
    layout       text        NOT NULL, -- form of the prompt
    variant      text        NOT NULL, -- variant of the prompt
    browser      text        NOT NULL, -- family of the browser
    granted_at   timestamptz NOT NULL, -- time of the subscription
    check_at     timestamptz NOT NULL -- 7 days later, then 30 days later
);
COMMENT ON TABLE opt_in_subscribers IS
    'New subscribers, for 30 days: whether they are still subscribed is counted in opt_in_counts.';
CREATE INDEX opt_in_subscribers_due ON opt_in_subscribers (check_at);
CREATE INDEX opt_in_subscribers_by_app ON opt_in_subscribers (app);
