-- Imports that register two parts at a time.

-- How far each half of a file's subscriptions has come (src/store/audience/imports.rs says which is in which half); `lines` is the least of them. Null: both
-- are at `lines`, as of an import that began before there were halves.
ALTER TABLE imports ADD COLUMN halves bigint[];
ALTER TABLE imports ADD CONSTRAINT imports_halves_check CHECK (cardinality(halves) = 2 AND lines <= ALL (halves));

-- A file says of each subscription when it was made, to the microsecond: a note a row, which cost as much as an index. Figures by the
-- minute, hour and day are all that becomes of the time, and those are by default kept for 2, 90 and 1,825 days.
CREATE OR REPLACE FUNCTION audience_gains_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n, at, fact)
    SELECT 0, lane, count(*), at, 40
    FROM (SELECT lane, date_trunc(CASE WHEN since - created_at < interval '2 days' THEN 'minute'
                                       WHEN since - created_at < interval '90 days' THEN 'hour' ELSE 'day' END, created_at, 'UTC') AS at
          FROM changed WHERE state = 'active') AS gained
    GROUP BY lane, at;
    RETURN NULL;
END $$;
