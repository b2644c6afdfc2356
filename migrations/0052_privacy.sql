-- Consent, and erasures that reach every subscription of a browser and tell what they did.

-- When and where somebody agreed to be sent something, as far as is known. Kept with the subscription, also when it has ended, and handed on
-- to the one that comes in its place.
ALTER TABLE subscriptions ADD COLUMN consent_at timestamptz;
ALTER TABLE subscriptions ADD COLUMN consent_source text; -- in the words of whoever asked; `browser`: it registered, and said no more
-- There is no row yet that it could not hold for, so none is looked at.
ALTER TABLE subscriptions ADD CONSTRAINT subscriptions_consent_source_check CHECK (length(consent_source) BETWEEN 1 AND 200) NOT VALID;

-- The former subscriptions of a browser, which are erased with the present one. Few have been replaced, and none of these is written often.
CREATE INDEX subscriptions_by_successor ON subscriptions (replaced_by) WHERE replaced_by IS NOT NULL;

-- What else an erasure did.
ALTER TABLE erasures ADD COLUMN dead_letters bigint NOT NULL DEFAULT 0; -- that were open, and were discarded with what they hold
ALTER TABLE erasures ADD COLUMN webhook_requests bigint NOT NULL DEFAULT 0; -- that were still to be made, or had failed, and do not name the user any more
