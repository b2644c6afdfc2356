-- Figures over time: what became of deliveries, receipts and subscriptions, by minute, hour and day.
--
-- Whoever settles, counts receipts or changes subscriptions notes in `rollup_notes` what it came to, in the same transaction:
-- only inserts, on which no two of them can collide. Maintenance takes the notes out again and adds each to the minute, the
-- hour and the day that it belongs to, in one transaction: every note counts exactly once in each of the three.

CREATE TABLE rollup_notes (
    minute  timestamptz NOT NULL,
    lane    integer     NOT NULL,
    tier    smallint    NOT NULL, -- 0: what has none, such as subscriptions
    message uuid,                 -- of a message whose own figures over time are kept, too; null: of any other
    fact    smallint    NOT NULL, -- src/model/fact.rs names them
    n       bigint      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

ALTER TABLE rollups RENAME TO old_rollups;
ALTER TABLE old_rollups RENAME CONSTRAINT rollups_pkey TO old_rollups_pkey;

CREATE TABLE rollups (
    step    smallint    NOT NULL CHECK (step BETWEEN 1 AND 3), -- 1: a minute, 2: an hour, 3: a day, in UTC
    message uuid        NOT NULL, -- all zeros: every message of the lane
    lane    integer     NOT NULL, -- 0: every lane of the gateway, so that all apps together are as quick to read as one of them
    start   timestamptz NOT NULL,
    tier    smallint    NOT NULL,
    gateway text        NOT NULL,
    -- What was counted, and how much of it, in pairs.
    facts   smallint[]  NOT NULL,
    ns      bigint[]    NOT NULL CHECK (cardinality(ns) = cardinality(facts)),
    PRIMARY KEY (step, message, lane, start, tier, gateway)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX rollups_by_age ON rollups (step, start);

-- Of outcomes before this, endings are known, but no answers, waits or messages. Minutes are kept for two days from now on.
INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
SELECT step, '00000000-0000-0000-0000-000000000000', lane, start, tier, gateway,
       array_agg(ending ORDER BY ending), array_agg(n ORDER BY ending)
FROM (SELECT s.step, p.lane, date_trunc(s.unit, r.minute, 'UTC') AS start, r.tier, l.gateway, r.ending, sum(r.n)::bigint AS n
      FROM old_rollups r JOIN lanes l ON l.id = r.lane CROSS JOIN LATERAL (VALUES (l.id), (0)) AS p (lane)
           CROSS JOIN (VALUES (1::smallint, 'minute'), (2, 'hour'), (3, 'day')) AS s (step, unit)
      WHERE s.step > 1 OR r.minute >= (SELECT max(minute) FROM old_rollups) - interval '2 days'
      GROUP BY s.step, p.lane, 3, r.tier, l.gateway, r.ending) AS summed
GROUP BY step, lane, start, tier, gateway;
DROP TABLE old_rollups;

-- Subscriptions that are won and lost: what is noted of everyone says when it was, and which fact it is. Null: neither is
-- known, as of the members of a topic.
ALTER TABLE audience_changes ADD COLUMN at timestamptz, ADD COLUMN fact smallint;

CREATE OR REPLACE FUNCTION audience_gains_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    SELECT 0, lane, count(*), created_at, 40 FROM changed WHERE state = 'active' GROUP BY lane, created_at;
    RETURN NULL;
END $$;
-- A row that goes while it is active, with its app, has no time of its own for that.
CREATE OR REPLACE FUNCTION audience_loses_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    SELECT 0, lane, -count(*), clock_timestamp(), 46 FROM changed WHERE state = 'active' GROUP BY lane;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION audience_follows_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    VALUES (0, NEW.lane, CASE WHEN NEW.state = 'active' THEN 1 ELSE -1 END,
            CASE WHEN NEW.state = 'active' THEN NEW.since ELSE NEW.ended_at END,
            CASE NEW.state WHEN 'active' THEN 40 WHEN 'gone' THEN 41 WHEN 'unsubscribed' THEN 42 WHEN 'replaced' THEN 43
                           WHEN 'expired' THEN 44 WHEN 'suspended' THEN 45 END);
    RETURN NULL;
END $$;
