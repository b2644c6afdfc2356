-- What listeners of the event streams are told.

-- Rows are never changed, and go after a day. Transactions commit in another order than they began: whoever reads keeps
-- below the oldest transaction that is still under way, in the order of the key, and so misses none and meets none twice.
CREATE TABLE stream_events (
    xid  xid8        NOT NULL DEFAULT pg_current_xact_id(),
    seq  bigint      GENERATED ALWAYS AS IDENTITY,
    at   timestamptz NOT NULL,
    app  uuid,                 -- whose it is; null: the server's as a whole
    kind text        NOT NULL, -- live::Kind
    data jsonb       NOT NULL, -- never a secret, nor what operators wrote for each other
    PRIMARY KEY (xid, seq)
);
CREATE INDEX stream_events_by_time ON stream_events (at);

-- Messages that are fanned out, until all of their deliveries have ended: what progress is told of. A row a campaign, none
-- for messages to a few.
CREATE TABLE campaigns_in_motion (
    message uuid PRIMARY KEY,
    app     uuid NOT NULL
);
INSERT INTO campaigns_in_motion SELECT DISTINCT m.id, m.app FROM cursors c JOIN messages m ON m.id = c.message;

-- Triggers, since a dozen statements change these small tables, and a forgotten one would never be noticed.
CREATE FUNCTION lanes_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    held_until timestamptz := greatest(NEW.held_until, NEW.key_held_until);
BEGIN
    IF held_until IS DISTINCT FROM greatest(OLD.held_until, OLD.key_held_until) THEN
        INSERT INTO stream_events (at, app, kind, data)
        SELECT NEW.changed_at, l.app, CASE WHEN held_until > NEW.changed_at THEN 'lane.held' ELSE 'lane.released' END,
               jsonb_build_object('lane', l.id, 'gateway', l.gateway, 'origin', NEW.origin, 'held_until', held_until, 'reason',
                   CASE WHEN held_until IS NULL THEN NULL WHEN held_until = NEW.key_held_until THEN 'key_refused'
                        ELSE coalesce(NEW.reason, 'throttled') END)
        FROM lanes l WHERE l.id = NEW.lane;
    END IF;
    IF (NEW.breaker, NEW.open_until, NEW.breaker_of) IS DISTINCT FROM (OLD.breaker, OLD.open_until, OLD.breaker_of) THEN
        INSERT INTO stream_events (at, app, kind, data)
        SELECT NEW.changed_at, l.app, 'lane.breaker',
               jsonb_build_object('lane', l.id, 'gateway', l.gateway, 'origin', NEW.origin, 'breaker',
                   coalesce(NEW.breaker, 'closed'), 'open_until', NEW.open_until, 'of_one_replica', NEW.breaker_of IS NOT NULL)
        FROM lanes l WHERE l.id = NEW.lane;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lane_states_told AFTER INSERT OR UPDATE ON lane_states FOR EACH ROW EXECUTE FUNCTION lanes_tell();

CREATE FUNCTION alerts_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (coalesce(NEW.resolved_at, NEW.first_at), NEW.app,
            CASE WHEN NEW.resolved_at IS NULL THEN 'alert.raised' ELSE 'alert.resolved' END,
            jsonb_build_object('alert', 'al_' || NEW.id, 'kind', NEW.kind, 'subject', NEW.subject, 'detail', NEW.detail));
    RETURN NULL;
END $$;
CREATE TRIGGER alerts_raised AFTER INSERT ON alerts FOR EACH ROW EXECUTE FUNCTION alerts_tell();
CREATE TRIGGER alerts_resolved AFTER UPDATE OF resolved_at ON alerts FOR EACH ROW
    WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at IS NOT NULL) EXECUTE FUNCTION alerts_tell();

-- The first of each minute; how many followed is told by the list of events.
CREATE FUNCTION events_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (NEW.at, NEW.app, NEW.kind, NEW.body -> 'data' || jsonb_build_object('event', 'evt_' || NEW.id));
    RETURN NULL;
END $$;
CREATE TRIGGER events_told AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION events_tell();
