-- Backups, what a restore holds back, seal keys that take over at a time of their own, and which migrations servers of the version before
-- may run beside.
-- beside: yes

-- Backups that were made, by `bellwire backup` or by other means: checks look at the age of the newest.
CREATE TABLE backups (
    id           uuid        PRIMARY KEY, -- UUIDv7
    kind         text        NOT NULL CHECK (kind IN ('dump', 'other')), -- other: by other means, as somebody said
    started_at   timestamptz NOT NULL,    -- before the snapshot that it shows
    completed_at timestamptz,             -- null: it is being made, or broke off
    octets       bigint      CHECK (octets >= 0) -- of the file; null: not known
);
CREATE INDEX backups_by_completion ON backups (completed_at) WHERE completed_at IS NOT NULL;

-- Each time that this database was brought back from a backup.
CREATE TABLE restores (
    id           uuid        PRIMARY KEY, -- UUIDv7
    backup       uuid,                    -- the backup's id; null: it was brought back by other means
    backed_up_at timestamptz NOT NULL,    -- what happened from then on is missing
    restored_at  timestamptz NOT NULL,
    held         boolean     NOT NULL     -- whether what was pending was held back
);

-- What a restore has paused, until somebody resumes or cancels it: the server of before may have sent it since the backup.
CREATE TABLE held_back (
    kind text NOT NULL CHECK (kind IN ('campaign', 'message')),
    id   uuid NOT NULL,
    app  uuid NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX held_back_by_app ON held_back (app); -- for the removal of an app

-- When a seal key takes over from the one before: by then every server has heard of it. Null: at once.
ALTER TABLE data_keys ADD COLUMN seals_from timestamptz;
-- Since when nothing that is kept for good is sealed under earlier keys. Null: something may be, or it is the first.
ALTER TABLE data_keys ADD COLUMN resealed_at timestamptz;

-- Applied migrations that a server of the version before may run beside: programs that do not know them start all the same.
CREATE TABLE migrations_beside (
    version bigint PRIMARY KEY
);
