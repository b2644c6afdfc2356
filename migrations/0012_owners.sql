-- Whose a subscription is, and which keys are proven: what decides who may go on with it.

ALTER TABLE subscriptions
    -- Raised with every change of user or keys. Not small any more, since whoever uses a browser may log in and out of it as
    -- often as they like. Tokens made of the smaller number are void: some may be in the hands of whoever used a
    -- browser before its present user. Browsers get new ones when they register again, as they do at the next visit.
    ALTER COLUMN token_version TYPE integer,
    ADD COLUMN user_left_at timestamptz, -- when a user last left it: what was addressed to them, or to it, until then is for nobody
    ADD COLUMN keys_proven_at    timestamptz; -- when a receipt first showed that its browser can decrypt; null: its keys may be made up

UPDATE subscriptions s SET keys_proven_at = r.first
FROM (SELECT shard, subscription, min(at) AS first FROM receipts GROUP BY shard, subscription) r
WHERE s.shard = r.shard AND s.id = r.subscription;
