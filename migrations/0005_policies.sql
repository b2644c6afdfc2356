-- Delivery policies at every place that may set one, and when a tier may send.
--
-- A policy is kept as it was written. Which one is in force is worked out when a message is opened for sending: message →
-- subscription → topic (if the message was addressed to it) → the app's tier → the tier's built-in default, member by
-- member. Opened messages are read anew within a minute, so a change holds for everything that is sent later.

ALTER TABLE apps
    ADD COLUMN max_retries smallint NOT NULL DEFAULT 5 CHECK (max_retries BETWEEN 0 AND 1000), -- of QStash's form: maximum and default
    ADD COLUMN timezone    text     NOT NULL DEFAULT 'UTC', -- IANA; for recipients whose own is unknown
    ADD COLUMN quiet_hours jsonb;   -- policy::calendar::QuietHours: promotional and engagement wait, in the recipient's zone

-- What an app sets for a tier. No row: the defaults.
CREATE TABLE tier_settings (
    app         uuid        NOT NULL REFERENCES apps,
    tier        smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3),
    policy      jsonb,      -- in any of the three forms, and the server's figures
    off_peak    jsonb,      -- policy::calendar::OffPeak, for engagement: when it may be sent, in the app's zone
    sla_seconds integer     CHECK (sla_seconds BETWEEN 1 AND 2592000), -- a later acceptance is an event
    changed_at  timestamptz NOT NULL,
    PRIMARY KEY (app, tier)
);

ALTER TABLE topics ADD COLUMN policy jsonb;
ALTER TABLE subscriptions ADD COLUMN policy jsonb;
ALTER TABLE messages ADD COLUMN topic integer; -- the topic it was addressed to, whose policy counts
