-- Accounts at an OpenID provider by which teammates sign in. An account is linked when it first comes with a teammate's address,
-- and nobody else comes in with that address from then on: addresses are given to others in time, subjects never are
-- (OpenID Connect Core 1.0 section 5.7).

CREATE TABLE oidc_accounts (
    teammate  uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE,
    issuer    text        NOT NULL CHECK (length(issuer) BETWEEN 1 AND 2048), -- the provider, as its tokens name it
    subject   text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 255), -- what it calls the account: `sub`
    linked_at timestamptz NOT NULL,
    PRIMARY KEY (teammate, issuer),
    UNIQUE (issuer, subject)
);
