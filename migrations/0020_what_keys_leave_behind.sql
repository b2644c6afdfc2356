-- What outlives a key that was stolen, and what a receipt can prove.

-- The API key that made it; null: the command line, or before this was recorded. Revoking that key takes identity keys along;
-- a VAPID key stays, since subscriptions are bound to it.
ALTER TABLE identity_keys ADD COLUMN made_by uuid;

-- When the keys of the browser last changed: receipts of messages of before say nothing of them. Null: never.
ALTER TABLE subscriptions ADD COLUMN keys_since timestamptz;
