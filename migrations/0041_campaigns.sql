-- Campaigns: plans that end in messages. Nothing here grows with an audience: a campaign is a row, each run of it another, and
-- each message that a run ends in a third.

CREATE TABLE campaigns (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps,
    slug       text        NOT NULL CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,63}$'), -- what people call it in URLs
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    tier       smallint    NOT NULL CHECK (tier BETWEEN 1 AND 3),
    -- src/campaign/state.rs says what each is, and who moves it on.
    state      text        NOT NULL CHECK (state IN ('draft', 'scheduled', 'sending', 'paused', 'cancelled', 'done')),
    plan       bytea       NOT NULL, -- sealed: what its author wrote, and what that was checked to mean
    -- When the scheduler looks at it again; null: not by itself.
    next_at    timestamptz CHECK (next_at IS NULL OR state IN ('scheduled', 'sending')),
    -- Whether messages that were made have still to be paused, resumed or cancelled with it.
    unsteered  boolean     NOT NULL DEFAULT false,
    runs       integer     NOT NULL DEFAULT 0 CHECK (runs >= 0), -- how many have begun
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    started_at timestamptz, -- when it was started; null: it never was
    UNIQUE (app, slug)
);
CREATE INDEX campaigns_by_app ON campaigns (app, id);
CREATE INDEX campaigns_due ON campaigns (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX campaigns_unsteered ON campaigns (id) WHERE unsteered;

-- What happens each time that a campaign is due: once, or, if it recurs, again and again.
CREATE TABLE campaign_runs (
    campaign   uuid        NOT NULL REFERENCES campaigns ON DELETE CASCADE,
    run        integer     NOT NULL CHECK (run > 0),
    at         timestamptz NOT NULL, -- the time that it is for; of those that were missed only the last is made up for
    root       uuid        NOT NULL, -- what the ids of all its deliveries are derived from
    decide_at  timestamptz,          -- when the test of its variants is decided; null: none, or it has been
    winner     smallint,             -- the variant that won; null: none has
    confidence double precision,     -- how probable it is that the best was better; null: not decided
    PRIMARY KEY (campaign, run)
);

-- Messages that a run ends in, until retention deletes them.
CREATE TABLE campaign_parts (
    campaign uuid        NOT NULL,
    run      integer     NOT NULL,
    part     integer     NOT NULL,
    due_at   timestamptz NOT NULL,
    variant  smallint    NOT NULL,
    narrow   jsonb       NOT NULL, -- who of the audience it is for: campaign::parts::Narrow
    message  uuid,                 -- null: it is still to be made
    PRIMARY KEY (campaign, run, part),
    FOREIGN KEY (campaign, run) REFERENCES campaign_runs ON DELETE CASCADE
);
CREATE INDEX campaign_parts_by_message ON campaign_parts (message) WHERE message IS NOT NULL;
CREATE INDEX campaign_parts_to_make ON campaign_parts (campaign, due_at) WHERE message IS NULL;
