-- Which deliveries a stop concerns, where a reading of the stops takes up, and who comes in the place of a subscription.

-- Whoever reads these started after this migration, and has claimed nothing yet that an earlier stop concerns.
TRUNCATE stops;
ALTER TABLE stops
    DROP COLUMN id,
    -- Taken while the target's row is locked: of two stops of one target, the one with the higher number holds.
    ADD COLUMN seq  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who wrote it. A reading finds every stop of a transaction that the reading before could not see the end of, however
    -- long ago that began: `at` says nothing about when a stop was committed.
    ADD COLUMN xid  xid8    NOT NULL DEFAULT pg_current_xact_id(),
    -- Of a subscription: deliveries of this life, and of those before, are stopped. Those of a later one are not.
    ADD COLUMN life integer,
    DROP CONSTRAINT stops_kind_check,
    -- unsubscribe: ended or suspended; gone: the gateway said so; replace: another subscription takes its place; user: what
    -- is meant for the user that it had; cancel, pause, resume: of a message.
    ADD CONSTRAINT stops_kind_check CHECK (kind IN ('unsubscribe', 'gone', 'replace', 'user', 'cancel', 'pause', 'resume')),
    ADD CHECK ((life IS NULL) = (kind IN ('cancel', 'pause', 'resume')));
CREATE INDEX stops_by_transaction ON stops (xid);

ALTER TABLE subscriptions
    -- Counts up when what was under way is not for it any more: when it comes back after it ended, and, for what is meant
    -- for its user, when that becomes another one.
    ADD COLUMN life    integer NOT NULL DEFAULT 0,
    -- Its life when it last came back: a delivery of an earlier one is never sent.
    ADD COLUMN revived integer NOT NULL DEFAULT 0 CHECK (revived <= life),
    -- Who took its place, and in which of its lives: what waits for this one is for that one. Null for those that were
    -- replaced before this was remembered.
    ADD COLUMN replaced_by      uuid,
    ADD COLUMN replaced_by_life integer CHECK ((replaced_by IS NULL) = (replaced_by_life IS NULL));

-- The life of its subscription that a delivery is for.
ALTER TABLE queue ADD COLUMN life integer NOT NULL DEFAULT 0;

-- The topics that a subscription was in when it turned out to be gone, for itself if it comes back, and for the one that
-- comes in its place. Apart from `topic_members`, so that fan-out and counts meet nobody who cannot be reached.
CREATE TABLE former_topic_members (
    shard        smallint    NOT NULL,
    subscription uuid        NOT NULL,
    topic        integer     NOT NULL,
    joined_at    timestamptz NOT NULL,
    PRIMARY KEY (shard, subscription, topic)
);
