-- The archive of deliveries that failed, what was done with it, and what webhooks will be told.

-- A replay is a message of its own, for those whom the letters were for. Its deliveries keep the ids of the first one's,
-- so that a service worker that did show it drops the repeat.
ALTER TABLE messages
    ADD COLUMN replay_of uuid, -- the message that was sent first, also if this replays a replay
    -- Payloads go once every delivery has ended and no open letter needs them.
    ALTER COLUMN content DROP NOT NULL,
    ADD COLUMN ended_by  timestamptz, -- when maintenance first saw that every delivery had ended
    ADD COLUMN look_at   timestamptz; -- when it looks again, give or take its grace; null: it has not looked yet
CREATE INDEX messages_with_content ON messages (coalesce(look_at, accepted_at)) WHERE content IS NOT NULL;

-- open: to be replayed or discarded. closed: `gone` and `expired`, kept for the record without payload and without a
-- way back. Ids are UUIDv7 of the time of death, so that a list by id is a list by time.
ALTER TABLE dead_letters
    DROP CONSTRAINT dead_letters_state_check,
    ADD CONSTRAINT dead_letters_state_check CHECK (state IN ('open', 'replayed', 'discarded', 'closed')),
    ADD COLUMN settled_at timestamptz CHECK ((settled_at IS NULL) = (state IN ('open', 'closed'))), -- replayed, discarded
    ADD COLUMN replay uuid CHECK ((replay IS NULL) = (state <> 'replayed')), -- the message that replayed it
    ADD CHECK ((state = 'closed') = (reason IN ('gone', 'expired'))),
    DROP CONSTRAINT dead_letters_pkey,
    ADD PRIMARY KEY (app, id, shard);
-- A campaign may leave a million closed letters: they pay for two indexes only.
DROP INDEX dead_letters_by_app;
DROP INDEX dead_letters_by_message;
CREATE INDEX dead_letters_by_message ON dead_letters (message, id);
CREATE INDEX dead_letters_open ON dead_letters (app, id) WHERE state = 'open';
CREATE INDEX dead_letters_open_by_message ON dead_letters (app, message, id) WHERE state = 'open';

-- The trail: what was done to letters, by whom, to how many. Each transaction of an operation adds its part, so that the
-- trail is right wherever it broke off; rows are never changed.
CREATE TABLE dead_letter_actions (
    app       uuid        NOT NULL,
    operation uuid        NOT NULL, -- UUIDv7 of its beginning
    part      integer     NOT NULL,
    action    text        NOT NULL CHECK (action IN ('replay', 'discard', 'export')),
    actor     text        NOT NULL, -- the API key's id; `local` for the command line
    filter    jsonb       NOT NULL, -- what was asked for
    n         bigint      NOT NULL CHECK (n >= 0), -- letters
    at        timestamptz NOT NULL,
    PRIMARY KEY (app, operation, part)
);

-- What webhooks will be told, written in the transaction that makes it so. What is alike within a minute is one event
-- with a count.
CREATE TABLE events (
    id       uuid        PRIMARY KEY, -- UUIDv7 of its first occurrence
    app      uuid        NOT NULL,
    kind     text        NOT NULL, -- dead_letter.created, subscription.gone, sla.missed
    subject  text        NOT NULL, -- what it is about: a reason, a lane, a tier
    minute   timestamptz NOT NULL,
    n        bigint      NOT NULL CHECK (n > 0),
    body     jsonb       NOT NULL, -- store::events::Body
    at       timestamptz NOT NULL, -- the first occurrence
    UNIQUE (app, kind, subject, minute)
);
CREATE INDEX events_by_app ON events (app, id);

-- The hygiene report.
CREATE INDEX subscriptions_lost ON subscriptions (app, ended_at) WHERE state IN ('gone', 'suspended');
