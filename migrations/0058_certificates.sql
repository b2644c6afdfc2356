-- Certificates that are ordered by ACME, and the account by which: all processes of a server share them, and one of them orders.

CREATE TABLE acme_accounts (
    directory   text        PRIMARY KEY, -- URL of the authority's directory
    id          uuid        NOT NULL, -- UUIDv7; part of what the seal authenticates
    credentials bytea       NOT NULL, -- sealed: the account's URL and private key, in JSON
    created_at  timestamptz NOT NULL
);
COMMENT ON TABLE acme_accounts IS 'The account at an authority, made with the first order';

CREATE TABLE acme_certificates (
    id           uuid        PRIMARY KEY, -- UUIDv7; part of what the seal authenticates
    directory    text        NOT NULL, -- URL of the authority's directory
    domain       text        NOT NULL, -- the host that it is for
    chain        text, -- PEM; null: none was issued yet
    private_key  bytea, -- sealed, PEM
    not_after    timestamptz, -- until when it is valid
    renew_at     timestamptz, -- when it is to be ordered anew
    challenge    bytea       CONSTRAINT acme_certificates_challenge CHECK (octet_length(challenge) = 32), -- what the authority is to find by TLS-ALPN-01
    leased_until timestamptz, -- a process orders until then, unless it goes down; null: none does
    failures     integer     NOT NULL DEFAULT 0 CONSTRAINT acme_certificates_failures CHECK (failures >= 0), -- of orders in a row
    failure      text, -- why the last order failed; null: it did not
    retry_at     timestamptz, -- no order before
    CONSTRAINT acme_certificates_once UNIQUE (directory, domain),
    CONSTRAINT acme_certificates_whole CHECK (num_nulls(chain, private_key, not_after, renew_at) IN (0, 4))
);
COMMENT ON TABLE acme_certificates IS 'The certificate of each host, or the wish for one';
