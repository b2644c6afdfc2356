-- Passkeys (WebAuthn): the second factor of those teammates who have one. Nothing of them is secret: the private keys never leave
-- their authenticators.

CREATE TABLE passkeys (
    id            uuid        PRIMARY KEY,
    teammate      uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE,
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 64), -- by which their owner tells them apart
    credential_id bytea       NOT NULL UNIQUE CHECK (length(credential_id) BETWEEN 1 AND 1023), -- what the authenticator calls it
    public_key    bytea       NOT NULL CHECK (length(public_key) BETWEEN 1 AND 2048), -- a COSE key (RFC 9052)
    algorithm     integer     NOT NULL, -- the number of a COSE algorithm, such as -7 for ES256
    counter       bigint      NOT NULL CHECK (counter BETWEEN 0 AND 4294967295), -- of its signatures; 0: it does not count
    transports    text[]      NOT NULL, -- how browsers reach its authenticator, as they say themselves
    created_at    timestamptz NOT NULL,
    last_used_at  timestamptz -- null: never
);
CREATE INDEX passkeys_by_teammate ON passkeys (teammate, id);

-- What an authenticator was asked to sign, for five minutes and once. With a session: to add a passkey, in that session alone.
-- Without: to sign in, by whoever has shown the first factor.
CREATE TABLE passkey_challenges (
    challenge_mac bytea       PRIMARY KEY CHECK (length(challenge_mac) = 32), -- the challenge stands for the first factor: not kept
    teammate      uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE,
    session       uuid        REFERENCES sessions ON DELETE CASCADE,
    link_mac      bytea       CHECK (length(link_mac) = 32), -- the one-time link that was shown, to be used up with the challenge
    password_hash text        CHECK (length(password_hash) <= 255), -- the password that the link is to set
    expires_at    timestamptz NOT NULL,
    CHECK (session IS NULL OR link_mac IS NULL),
    CHECK (password_hash IS NULL OR link_mac IS NOT NULL)
);
CREATE INDEX passkey_challenges_by_teammate ON passkey_challenges (teammate); -- a new password voids them
CREATE INDEX passkey_challenges_by_session ON passkey_challenges (session) WHERE session IS NOT NULL; -- deleting a session asks
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at); -- retention
