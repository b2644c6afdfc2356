-- Where users have browsers, on a database that Citus distributes: a look for those of one user asks these shards, and not all. On plain
-- Postgres it stays empty, and nothing is written to it.
CREATE TABLE user_shards (
    app     uuid     NOT NULL,
    user_id text     NOT NULL,
    shard   smallint NOT NULL, -- of a subscription that is theirs, or was: rows too many do no harm
    -- When one that lay there was last not theirs any more: whether the row is still needed is to be looked at. Null: there is no reason to.
    left_at timestamptz,
    CONSTRAINT user_shards_pkey PRIMARY KEY (app, user_id, shard)
);
CREATE INDEX user_shards_left ON user_shards (shard) WHERE left_at IS NOT NULL;

-- What is distributed before it is upgraded is noted here. Plain Postgres looks at nothing.
DO $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        INSERT INTO user_shards (app, user_id, shard)
        SELECT DISTINCT app, user_id, shard FROM subscriptions WHERE user_id IS NOT NULL;
    END IF;
END $$;
