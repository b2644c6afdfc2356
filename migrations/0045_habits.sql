-- What people do with what they are shown: whom nothing is sent that nobody wants, and at what hour.

-- Promotional and engagement messages alone tell anything of that, but which these are is looked up by maintenance, not by the
-- transaction that writes receipts. That only inserts here, so that no two of them collide; maintenance takes the notes out again
-- and adds each to its person's `habits`, in one transaction: every note counts once.
CREATE TABLE habit_notes (
    shard        smallint    NOT NULL,
    subscription uuid        NOT NULL,
    message      uuid        NOT NULL,
    kind         smallint    NOT NULL CHECK (kind IN (1, 2)), -- 1: displayed, 2: clicked
    at           timestamptz NOT NULL -- when it was reported
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A row a person, made by the first receipt of theirs. What was displayed before there was this table does not count.
CREATE TABLE habits (
    app            uuid        NOT NULL,
    shard          smallint    NOT NULL, -- the last 6 bits of `person`
    person         uuid        NOT NULL, -- the first half of SHA-256(app, user id); without a user, the `origin_id` of a browser
    noted_at       timestamptz NOT NULL, -- when the last receipt came; the row is deleted 400 days later
    clicked_at     timestamptz,          -- the last click; null: none
    unclicked      smallint    NOT NULL CHECK (unclicked >= 0), -- messages displayed since then, counted up to 1,000
    unclicked_from timestamptz,          -- when the first of these was displayed; null: none was
    unclicked_to   timestamptz,          -- and the last
    recent         bytea       NOT NULL CHECK (octet_length(recent) <= 128 AND octet_length(recent) % 16 = 0), -- ids of the last messages, the newest first: another browser of theirs may display one later
    hours          bytea       NOT NULL CHECK (octet_length(hours) = 24), -- clicks by the hour of the day where they are
    PRIMARY KEY (app, shard, person),
    CHECK ((unclicked = 0) = (unclicked_from IS NULL) AND (unclicked = 0) = (unclicked_to IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Whom a message's sunset rule left out. They are not targeted, so no part of its account.
ALTER TABLE message_counts ADD COLUMN sunset bigint NOT NULL DEFAULT 0;
