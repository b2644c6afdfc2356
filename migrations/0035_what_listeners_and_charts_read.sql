-- What listeners of the event streams and charts read costs what they are shown, and not what is stored beside it.

-- An app's listeners read their own rows alone. Few rows are written: the first of a kind and minute.
CREATE INDEX stream_events_by_app ON stream_events (app, xid, seq);

-- The last row that retention has deleted: whoever resumes from there or later misses nothing. One row.
CREATE TABLE stream_floor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    xid xid8    NOT NULL,
    seq bigint  NOT NULL
);
-- What was deleted before is not known.
INSERT INTO stream_floor (xid, seq) SELECT pg_snapshot_xmin(pg_current_snapshot()), 0;

-- Progress is told of the newest of each app.
CREATE INDEX campaigns_in_motion_by_app ON campaigns_in_motion (app, message);
-- Those that were fanned out before there was this table, and that have deliveries waiting still. Messages that wait are
-- walked through one by one, however many deliveries each has.
INSERT INTO campaigns_in_motion (message, app)
WITH RECURSIVE waiting (message) AS (
    (SELECT message FROM queue ORDER BY message LIMIT 1)
    UNION ALL
    SELECT (SELECT q.message FROM queue q WHERE q.message > w.message ORDER BY q.message LIMIT 1)
    FROM waiting w WHERE w.message IS NOT NULL
)
SELECT m.id, m.app
FROM (SELECT message FROM waiting WHERE message IS NOT NULL UNION SELECT message FROM batches) w
     JOIN messages m ON m.id = w.message
WHERE m.audience_estimate > 100 AND (m.topic IS NOT NULL OR m.audience ->> 'all' = 'true')
ON CONFLICT DO NOTHING;

-- Listeners ask for the notes of the last minutes once a second, and every chart for the oldest one; both must not read all
-- that is there when folding has fallen behind.
CREATE INDEX rollup_notes_by_minute ON rollup_notes (minute);
-- What was won and lost and is not folded yet.
CREATE INDEX rollup_notes_of_subscriptions ON rollup_notes (lane) WHERE fact BETWEEN 40 AND 46;
