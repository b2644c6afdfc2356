-- What goes, and when: users who are erased, apps that are deleted, and rows that are past their retention.
--
-- Takes a minute or so for each ten million messages to users, which are looked at once (see the end).

-- When somebody asked for the app to be deleted. From then on it does not exist for anybody who uses it, nothing is sent for
-- it, and maintenance deletes its rows, itself at last.
ALTER TABLE apps ADD COLUMN deleting_at timestamptz;

-- Users who are to be forgotten. The row is written before anything is done, so that whatever breaks off goes on.
CREATE TABLE erasures (
    id            uuid        PRIMARY KEY, -- UUIDv7
    app           uuid        NOT NULL REFERENCES apps,
    user_id       text        CHECK (length(user_id) BETWEEN 1 AND 255), -- null as soon as nothing else names them
    actor         text        NOT NULL, -- who asked: the API key's id; `local` for the command line
    subscriptions bigint      NOT NULL DEFAULT 0, -- unsubscribed and forgotten
    messages      bigint      NOT NULL DEFAULT 0, -- that named the user among those they were for
    requested_at  timestamptz NOT NULL,
    completed_at  timestamptz CHECK ((completed_at IS NULL) = (user_id IS NOT NULL))
);
CREATE UNIQUE INDEX erasures_open ON erasures (app, user_id) WHERE completed_at IS NULL;

-- Ended subscriptions in the order in which they go. Who registers, is sent to or is refreshed does not pay for it.
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE state IN ('gone', 'unsubscribed', 'replaced', 'expired');
-- The open letters of one subscription, which are put aside when its user is erased. There are few open letters. Without
-- the app, lest a plan made while the table is empty look for a message's letters here.
CREATE INDEX dead_letters_open_by_subscription ON dead_letters (subscription) WHERE state = 'open';

-- Who a message was for is forgotten when its last delivery has ended: the ids of users in `audience` become null. So an
-- erasure finds all that name a user among the few messages that have their content still.
UPDATE messages
SET audience = jsonb_build_object('users', (SELECT jsonb_agg(NULL::text) FROM jsonb_array_elements(audience -> 'users')))
WHERE content IS NULL AND audience ? 'users';
