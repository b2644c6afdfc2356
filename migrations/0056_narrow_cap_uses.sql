-- What counts towards frequency caps, in narrower rows: each delivery under caps finds and changes one, and what that costs follows
-- from their size. The key is `person` alone, which no two apps share; times and messages are one array of numbers, stored as
-- they are, so that reading one of them does not copy all of it; a message is the second half of its id. Kept is what the
-- table held: nobody gets more by an upgrade.
ALTER TABLE cap_uses RENAME TO old_cap_uses;
ALTER TABLE old_cap_uses RENAME CONSTRAINT cap_uses_pkey TO old_cap_uses_pkey;

CREATE TABLE cap_uses (
    person  uuid     NOT NULL, -- the first half of SHA-256(app, user id); without a user, the `origin_id` of a browser
    app     uuid     NOT NULL,
    tiers   smallint NOT NULL, -- counted together: 2 promotional, 3 engagement, 5 both
    -- In pairs, the newest first: when sending to the person began, in microseconds since 1970, and of which message, by the second
    -- half of its id, which is negative (RFC 9562). What replays a message is the same one.
    uses    bigint[] NOT NULL,
    refused bigint[]           -- messages that were held back lately, so that none of a user's browsers gets them; null: none
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- 50 pairs and 8 messages at most: far from where a row would be stored elsewhere.
ALTER TABLE cap_uses ALTER COLUMN uses SET STORAGE PLAIN;
ALTER TABLE cap_uses ALTER COLUMN refused SET STORAGE PLAIN;

INSERT INTO cap_uses (person, app, tiers, uses, refused)
SELECT person, app, tiers,
       (SELECT array_agg(n ORDER BY place, n DESC)
        FROM unnest(at, roots) WITH ORDINALITY AS u (at, root, place),
             LATERAL (VALUES ((extract(epoch FROM u.at) * 1000000)::bigint),
                             (('x' || right(replace(u.root::text, '-', ''), 16))::bit(64)::bigint)) AS pair (n)),
       (SELECT array_agg(('x' || right(replace(r.root::text, '-', ''), 16))::bit(64)::bigint ORDER BY r.place)
        FROM unnest(refused) WITH ORDINALITY AS r (root, place))
FROM old_cap_uses; -- in the order in which they lie there, which is about that of a fan-out
DROP TABLE old_cap_uses;

ALTER TABLE cap_uses ADD CONSTRAINT cap_uses_pkey PRIMARY KEY (person, tiers);
CREATE INDEX cap_uses_by_app ON cap_uses (app); -- for the removal of an app
