-- How often one person is sent what.

-- At most so many messages of these tiers to a person in a rolling window, as a list of caps in the form in which they are
-- written: [{"tiers": ["promotional"], "max": 2, "window": "1d"}]. Null: none.
ALTER TABLE apps ADD COLUMN caps jsonb;

-- What counts towards caps. A row a person and set of tiers that some cap counts together, made by the first message: none in
-- apps without caps. It is changed in place at most once for each message, and as narrow as the largest cap is.
CREATE TABLE cap_uses (
    app     uuid          NOT NULL,
    shard   smallint      NOT NULL, -- the last 6 bits of `person`
    person  uuid          NOT NULL, -- the first half of SHA-256(app, user id); without a user, the `origin_id` of a browser
    tiers   smallint      NOT NULL, -- counted together: 2 promotional, 3 engagement, 5 both
    at      timestamptz[] NOT NULL, -- when sending to the person began, the newest first
    roots   uuid[]        NOT NULL, -- beside each of these, of which message: what replays it is the same one
    refused uuid[]        NOT NULL DEFAULT '{}', -- messages that were held back lately, so that none of a user's browsers gets them
    PRIMARY KEY (app, shard, person, tiers)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
