-- How many there are to reach, kept instead of counted: `to: all` and large topics are taken in at a cost that does not
-- grow with them.

-- Whoever changes what counts notes the difference in `audience_changes`, which no two of them can collide on; maintenance
-- folds the notes into `audience_counts`. What counts is the sum of both, in one statement: it is right to the row.
CREATE TABLE audience_counts (
    topic integer NOT NULL, -- members of this topic; 0: all active subscriptions
    lane  integer NOT NULL,
    n     bigint  NOT NULL,
    PRIMARY KEY (topic, lane)
);
CREATE INDEX audience_counts_empty ON audience_counts (topic, lane) WHERE n = 0; -- to be forgotten
CREATE TABLE audience_changes (
    topic integer NOT NULL,
    lane  integer NOT NULL,
    n     bigint  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX audience_changes_by_topic ON audience_changes (topic, lane) INCLUDE (n);

-- Triggers, since a dozen statements make, end, revive and delete subscriptions, and a forgotten one would never be noticed.
-- They cost one row for each statement and lane.
CREATE FUNCTION audience_gains_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n)
    SELECT 0, lane, count(*) FROM changed WHERE state = 'active' GROUP BY lane;
    RETURN NULL;
END $$;
CREATE FUNCTION audience_loses_subscriptions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n)
    SELECT 0, lane, -count(*) FROM changed WHERE state = 'active' GROUP BY lane;
    RETURN NULL;
END $$;
CREATE FUNCTION audience_follows_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n)
    VALUES (0, NEW.lane, CASE WHEN NEW.state = 'active' THEN 1 ELSE -1 END);
    RETURN NULL;
END $$;
CREATE FUNCTION audience_gains_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n) SELECT topic, lane, count(*) FROM changed GROUP BY topic, lane;
    RETURN NULL;
END $$;
CREATE FUNCTION audience_loses_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audience_changes (topic, lane, n) SELECT topic, lane, -count(*) FROM changed GROUP BY topic, lane;
    RETURN NULL;
END $$;

CREATE TRIGGER subscriptions_gained AFTER INSERT ON subscriptions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_gains_subscriptions();
CREATE TRIGGER subscriptions_lost AFTER DELETE ON subscriptions REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_loses_subscriptions();
-- Of an update nothing else counts: a row's lane never changes.
CREATE TRIGGER subscriptions_followed AFTER UPDATE OF state ON subscriptions
    FOR EACH ROW WHEN ((OLD.state = 'active') <> (NEW.state = 'active'))
    EXECUTE FUNCTION audience_follows_state();
CREATE TRIGGER members_gained AFTER INSERT ON topic_members REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_gains_members();
CREATE TRIGGER members_lost AFTER DELETE ON topic_members REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION audience_loses_members();

INSERT INTO audience_counts
SELECT 0, lane, count(*) FROM subscriptions WHERE state = 'active' GROUP BY lane
UNION ALL SELECT topic, lane, count(*) FROM topic_members GROUP BY topic, lane;
