-- Messages for later, and the names that their senders give them.
--
-- A message for later is minted for its `send_at`: its id is a UUIDv7 of that instant, `accepted_at` is `send_at`, and its
-- cursors and queue rows fall due then. Nothing looks at it before.

ALTER TABLE messages
    -- What the ids of its deliveries are derived from, if that is neither itself nor the message that it replays: all messages
    -- of one run of a campaign share theirs, so that whoever falls into two of them is shown one.
    ADD COLUMN root        uuid,
    -- The campaign that it is of, and which of its variants (0: the first).
    ADD COLUMN campaign    uuid,
    ADD COLUMN variant     smallint CHECK ((variant IS NULL) = (campaign IS NULL)),
    -- Cancelled before it was due, with nothing left of it: no sweep needs to look at it again. A million forgotten reminders
    -- cost nothing.
    ADD COLUMN never_began boolean NOT NULL DEFAULT false;
CREATE INDEX messages_by_campaign ON messages (campaign, id) WHERE campaign IS NOT NULL;

DROP INDEX messages_in_motion;
CREATE INDEX messages_in_motion ON messages (state)
    WHERE state IN ('paused', 'cancelled') AND NOT never_began OR resumed_at IS NOT NULL;

-- By which name of its own a sender knows a message. A name is free again once every delivery of its message has ended: whoever
-- takes it then takes the row over. Retention deletes it with the message.
CREATE TABLE message_keys (
    app     uuid NOT NULL,
    key     text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    message uuid NOT NULL,
    PRIMARY KEY (app, key)
);
CREATE INDEX message_keys_by_message ON message_keys (message);

-- Microseconds from one recipient to the next, for messages that are sent at a pace; null: as fast as it goes.
ALTER TABLE cursors ADD COLUMN pace_us bigint CHECK (pace_us > 0);
