-- Campaigns: plans that send messages. Nothing here grows with an audience: a campaign, a run and a message are one row
-- each.

CREATE TABLE campaigns (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps, -- owner
    slug       text        NOT NULL CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,63}$'), -- name in URLs
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200), -- name for people
    tier       smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3), -- 1: transactional, 2: promotional, 3: engagement
    -- campaign::state.
    state      text        NOT NULL CHECK (state IN ('draft', 'scheduled', 'sending', 'paused', 'cancelled', 'done')),
    plan       bytea       NOT NULL, -- sealed: api::campaigns::plan::Stored: the plan as written, and as it was read
    -- Next run of the scheduler; null: none.
    next_at    timestamptz CHECK (next_at IS NULL OR state IN ('scheduled', 'sending')),
    unsteered  boolean     NOT NULL DEFAULT false, -- messages are still to be paused, resumed or cancelled with it
    runs       integer     NOT NULL DEFAULT 0 CHECK (runs >= 0), -- runs that have begun
    created_at timestamptz NOT NULL, -- time of creation
    changed_at timestamptz NOT NULL, -- last change
    started_at timestamptz, -- time at which it was started; null: never
    expired    boolean     NOT NULL DEFAULT false, -- the end of the plan has passed: pending messages are cancelled
    UNIQUE (app, slug)
);
COMMENT ON TABLE campaigns IS 'Campaigns.';
CREATE INDEX campaigns_by_app ON campaigns (app, id);
CREATE INDEX campaigns_due ON campaigns (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX campaigns_unsteered ON campaigns (id) WHERE unsteered;

CREATE FUNCTION campaigns_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stream_events (at, app, kind, data)
    VALUES (NEW.changed_at, NEW.app, 'campaign.state',
            jsonb_build_object('campaign', 'cmp_' || NEW.id, 'slug', NEW.slug, 'state', NEW.state));
    RETURN NULL;
END $$;
CREATE TRIGGER campaigns_told AFTER UPDATE OF state ON campaigns FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION campaigns_tell();

CREATE TABLE campaign_runs (
    campaign   uuid        NOT NULL REFERENCES campaigns ON DELETE CASCADE, -- the campaign
    run        integer     NOT NULL CHECK (run > 0), -- number of the run
    at         timestamptz NOT NULL, -- time that the run is for; of missed times only the last is made up for
    root       uuid        NOT NULL, -- what the ids of all its deliveries derive from: messages.root
    decide_at  timestamptz, -- time at which the A/B test is decided; null: no test, or decided
    winner     smallint,    -- winning variant; null: none
    confidence double precision, -- probability that the best variant is better; null: not decided
    PRIMARY KEY (campaign, run)
);
COMMENT ON TABLE campaign_runs IS 'Runs of campaigns: one, or one for each time of a recurring campaign.';
CREATE INDEX campaign_runs_undecided ON campaign_runs (campaign, decide_at) WHERE decide_at IS NOT NULL;
CREATE UNIQUE INDEX campaign_runs_once ON campaign_runs (campaign, at); -- one run for each time, whoever schedules it

CREATE TABLE campaign_parts (
    campaign uuid        NOT NULL, -- the campaign
    run      integer     NOT NULL, -- the run
    part     integer     NOT NULL, -- number of the message in its run
    due_at   timestamptz NOT NULL, -- time of the message
    variant  smallint    NOT NULL, -- variant; 0: the first
    narrow   jsonb       NOT NULL, -- the part of the audience that it is for: campaign::parts::Narrow
    message  uuid,       -- the message; null: not created yet
    PRIMARY KEY (campaign, run, part),
    FOREIGN KEY (campaign, run) REFERENCES campaign_runs ON DELETE CASCADE
);
COMMENT ON TABLE campaign_parts IS 'Messages of runs, until retention deletes them.';
CREATE INDEX campaign_parts_by_message ON campaign_parts (message) WHERE message IS NOT NULL;
CREATE INDEX campaign_parts_to_make ON campaign_parts (campaign, due_at) WHERE message IS NULL;
