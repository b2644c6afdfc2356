-- What a retry carries, and what a subscription's history says of it.

ALTER TABLE queue
    -- Signs (message, subscription, retries, scheduled_at): see src/policy/token.rs. A row whose token does not fit is
    -- never sent.
    -- A queue with rows of an older version stops this migration: let it drain first, since nobody can sign for them now.
    ADD COLUMN token     bytea   NOT NULL,
    -- When the attempt before failed: figures compare the delay that was planned with the one that came of it.
    ADD COLUMN failed_at timestamptz,
    -- Whether `due_at` is a turn that the subscription's throttle has given it: it need not ask again.
    ADD COLUMN has_turn  boolean NOT NULL DEFAULT false;

-- Non-retryable refusals in a row. Five of a subscription that was never accepted suspend it.
ALTER TABLE subscriptions ADD COLUMN refusals smallint NOT NULL DEFAULT 0 CHECK (refusals >= 0);
CREATE INDEX subscriptions_refused ON subscriptions (refusals) WHERE refusals >= 5 AND state = 'active';

-- `maxReceivesPerSecond`: when the next delivery to a subscription may be sent. A row counts until that time has passed.
CREATE TABLE throttles (
    shard        smallint    NOT NULL,
    subscription uuid        NOT NULL,
    next_at      timestamptz NOT NULL,
    PRIMARY KEY (shard, subscription)
) WITH (fillfactor = 70);
