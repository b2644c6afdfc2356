-- What a push service's answers say of a subscription, and how far a refused VAPID key is held: anybody may register a
-- subscription that was made with another key, and must not stop the others by it.

ALTER TABLE subscriptions
    -- Whether a push service has ever accepted a push to it: then it was made with the VAPID key of its lane. Those that
    -- are there already pass for it, since a look through all attempts would take long; no row is rewritten for that.
    ADD COLUMN proven     boolean NOT NULL DEFAULT true,
    -- When it was last refused, if it was since; only while it is not proven.
    ADD COLUMN refused_at timestamptz;
ALTER TABLE subscriptions ALTER COLUMN proven SET DEFAULT false;
-- Whose last answer was a refusal, and who was suspended for refusals, has to show it again.
UPDATE subscriptions SET proven = false, refusals = 0 WHERE refusals > 0 OR state = 'suspended';

-- `refusals` counts for those only that are not proven. A refusal of the key weighs as much as five of another kind.
DROP INDEX subscriptions_refused;
CREATE INDEX subscriptions_refused ON subscriptions (lane, refused_at) WHERE refusals >= 5 AND state = 'active';

-- A refused key holds beside whatever else does (`held_until`), with origin `*`, and lets probes through.
ALTER TABLE lane_states
    ADD COLUMN key_held_at     timestamptz, -- when the present hold was set
    ADD COLUMN key_held_until  timestamptz,
    ADD COLUMN key_released_at timestamptz; -- when a probe last ended one: what was set before does not count
UPDATE lane_states
SET key_held_at = held_at, key_held_until = held_until, held_at = NULL, held_until = NULL, reason = NULL
WHERE reason = 'key_refused';
