-- Events of users, as sites report them, and the campaigns that they trigger. Campaigns have one row here, people one row for
-- each trigger that they are in.

CREATE TABLE user_events (
    id         uuid        PRIMARY KEY, -- UUIDv7 of the time at which it was reported
    app        uuid        NOT NULL, -- owner; a foreign key would cost as much as an index
    event      text        NOT NULL CHECK (length(event) BETWEEN 1 AND 128), -- the sender's id, by which repeats are dropped
    person     uuid        NOT NULL, -- model::person: the user, or the browser of an anonymous user
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 64), -- kind of event: letters, digits, `_`, `-`, `.`
    at         timestamptz NOT NULL, -- time of the event
    properties bytea,      -- sealed JSON; null: none
    UNIQUE (app, event)
);
COMMENT ON TABLE user_events IS 'Events of users, until retention deletes them.';
CREATE INDEX user_events_by_person ON user_events (app, person, name, at);

CREATE TABLE triggers (
    campaign uuid   PRIMARY KEY REFERENCES campaigns ON DELETE CASCADE, -- the campaign
    app      uuid   NOT NULL, -- owner
    cause    text   NOT NULL, -- campaign::trigger::Cause: what lets a person enter
    unless   text[] NOT NULL, -- names of events that end a wait
    rule     jsonb  NOT NULL, -- campaign::trigger::Trigger
    -- Time from which the next message may be created, at a send rate or after a failure; null: now.
    paced_at timestamptz
);
COMMENT ON TABLE triggers IS 'Campaigns that events trigger. A trigger is in force while its campaign is started or paused.';
CREATE INDEX triggers_by_app ON triggers (app);

CREATE TABLE trigger_entries (
    campaign     uuid        NOT NULL, -- the campaign
    person       uuid        NOT NULL, -- model::person
    due_at       timestamptz, -- time at which the message is created; null: the person does not wait
    caused_at    timestamptz NOT NULL, -- time of the event; for a follow-up, of the first campaign's event
    user_id      text,       -- the user to send to, in all browsers; null: `subscription` is the recipient
    subscription uuid,       -- the browser to send to; null: all browsers of the user
    life         integer,    -- `life` of the subscription: of another life, it is another person's
    event        uuid,       -- user_events.id of the event; null: not an event of the site
    follows      uuid,       -- the message that it follows up; null: not a follow-up
    postponed    boolean     NOT NULL DEFAULT false, -- due at the person's own hour
    -- Last message to the person, or what the control group did not get; null: none, or none that counts.
    sent_at      timestamptz,
    PRIMARY KEY (campaign, person),
    CHECK (due_at IS NULL OR user_id IS NOT NULL OR subscription IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE trigger_entries IS
    'People in triggers. A person waits in a trigger once at a time. The row outlives the wait while the last message limits '
    'the next one.';
CREATE INDEX trigger_entries_due ON trigger_entries (campaign, due_at) WHERE due_at IS NOT NULL;
-- Rows whose last message no longer limits the next one.
CREATE INDEX trigger_entries_limited ON trigger_entries (campaign, sent_at) WHERE due_at IS NULL;

CREATE TABLE trigger_counts (
    campaign  uuid        NOT NULL, -- the campaign
    hour      timestamptz NOT NULL, -- start of the hour
    part      smallint    NOT NULL, -- 0 to 15: several rows, so that no transaction waits for another
    entered   bigint      NOT NULL DEFAULT 0, -- people who began to wait
    cancelled bigint      NOT NULL DEFAULT 0, -- ended by an event of `unless`, with the campaign, or by an erasure
    limited   bigint      NOT NULL DEFAULT 0, -- did not enter, because of `at_most`
    held_out  bigint      NOT NULL DEFAULT 0, -- in the control group
    excluded  bigint      NOT NULL DEFAULT 0, -- not in the audience when due, or without a browser
    expired   bigint      NOT NULL DEFAULT 0, -- due for longer than the message's time to live
    sent      bigint      NOT NULL DEFAULT 0, -- messages created
    PRIMARY KEY (campaign, hour, part)
);
COMMENT ON TABLE trigger_counts IS
    'Entries of triggers. The account holds in every snapshot: entered = waiting + cancelled + held_out + excluded + expired '
    '+ sent, where waiting is the number of rows of `trigger_entries` with `due_at`.';
