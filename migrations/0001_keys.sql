-- Apps (tenants), the keys that belong to them, the team that runs the server, and the audit log.
--
-- Conventions of all files:
-- * A comment follows each column, or stands on the lines above it. COMMENT ON TABLE describes each table.
--   A later migration that adds a column describes it with COMMENT ON COLUMN.
-- * Timestamps come from the server, whose clock follows the database's. One trigger reads the database's clock itself
--   (audience_loses_subscriptions).
-- * Ids are UUIDv7, so that an order by id is an order by time, unless a comment says otherwise.
-- * "Sealed" values are encrypted with a data key (AES-256-GCM). The id of the row is authenticated with the value.
-- * Users and subscriptions belong to logical shards 0 to 63. Tables that Citus distributes have the column `shard` in
--   their primary key. All other tables stay on the coordinator.

CREATE TABLE data_keys (
    number        smallint    PRIMARY KEY CHECK (number >= 0), -- sealed values begin with it
    -- seal: encrypts values; the newest key encrypts, all keys decrypt. lookup: the one permanent key of all HMACs by
    -- which rows are found.
    purpose       text        NOT NULL CHECK (purpose IN ('seal', 'lookup')),
    wrapped       bytea       NOT NULL, -- the key, encrypted with the master key (AES-256-GCM)
    created_at    timestamptz NOT NULL, -- time of creation
    -- Time from which it encrypts: by then every server has read it; null: from created_at.
    seals_from    timestamptz,
    -- Time at which every long-lived value was encrypted with this key. Null: older keys may still be in use, or this
    -- is the first key.
    resealed_at   timestamptz,
    -- Values encrypted with this key: AES-GCM with random nonces is safe for 2^32 values (NIST SP 800-38D, section
    -- 8.3). Each process adds its count once a minute and when it stops; a crash loses at most one minute. 0 for the
    -- lookup key.
    sealed_values bigint      NOT NULL DEFAULT 0
);
COMMENT ON TABLE data_keys IS
    'Keys that encrypt what the database holds. The master key, which is not in the database, wraps each of them. '
    'Rotating the master key rewraps these rows and nothing else. A row that opens proves that the master key is the '
    'right one.';
CREATE UNIQUE INDEX data_keys_one_lookup ON data_keys (purpose) WHERE purpose = 'lookup';

CREATE TABLE apps (
    id                   uuid        PRIMARY KEY, -- UUIDv7
    slug                 text        NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'), -- name in URLs
    name                 text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200), -- name for people
    -- Origins whose pages may call the public routes (CORS): `https://example.com`.
    origins              text[]      NOT NULL DEFAULT '{}',
    -- Accepts endpoints on unknown hosts, such as UnifiedPush or a private autopush.
    allow_other_gateways boolean     NOT NULL DEFAULT false,
    created_at           timestamptz NOT NULL, -- time of creation
    -- Maximum and default of policies in QStash's form.
    max_retries          smallint    NOT NULL DEFAULT 5 CHECK (max_retries BETWEEN 0 AND 1000),
    timezone             text        NOT NULL DEFAULT 'UTC', -- IANA name; for recipients without a time zone
    -- policy::calendar: hours without promotional and engagement messages, in the recipient's zone.
    quiet_hours          jsonb,
    is_example           boolean     NOT NULL DEFAULT false, -- the server created it for the page at /example/
    -- What browsers may do in addition to joining and leaving open topics. Servers may do all of it.
    browsers_may         text[]      NOT NULL DEFAULT '{}'
        CHECK (browsers_may <@ ARRAY['create_topics', 'set_tags', 'set_attributes', 'track_events', 'report_conversions']),
    -- Time of the request to delete the app: it is closed at once, and maintenance deletes its rows and then the app.
    deleting_at          timestamptz,
    -- Share of the server relative to other apps while both have deliveries due.
    weight               smallint    NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    -- Frequency caps, as written: [{"tiers": ["promotional"], "max": 2, "window": "1d"}]. Null: no caps.
    caps                 jsonb,
    -- Settings of the prompt on the app's pages, as the API shows them. Null: no settings.
    prompt               jsonb,
    -- Text that replaces withdrawn messages where a browser must show one: {"title": "…", "body": "…"}. Null: a built-in text.
    withdrawal_notice    jsonb,
    -- campaign::measurement::MeasurementRule. Null: conversions are attributed to no campaign, and links stay as they are.
    measurement          jsonb,
    -- Union of `webhooks.heard` of its active webhooks; 0: nothing is written for them alone.
    heard                integer     NOT NULL DEFAULT 0
);
COMMENT ON TABLE apps IS 'Apps. An app is one site, with keys, subscriptions and messages of its own.';
CREATE UNIQUE INDEX apps_example ON apps (is_example) WHERE is_example;

CREATE TABLE vapid_keys (
    id          uuid        PRIMARY KEY, -- UUIDv7
    app         uuid        NOT NULL REFERENCES apps, -- owner
    public_key  bytea       NOT NULL CHECK (length(public_key) = 65), -- uncompressed point on P-256
    private_key bytea       NOT NULL, -- sealed: 32 bytes, big endian
    subject     text        NOT NULL, -- the `sub` claim: mailto: or https:
    -- active: given to new subscribers, one for each app.
    state       text        NOT NULL CHECK (state IN ('active', 'retired')),
    created_at  timestamptz NOT NULL, -- time of creation
    retired_at  timestamptz CHECK ((state = 'retired') = (retired_at IS NOT NULL)), -- time of retirement
    UNIQUE (app, public_key)
);
COMMENT ON TABLE vapid_keys IS
    'VAPID key pairs (RFC 8292). A subscription is bound to the key that it was created with, so retired keys keep '
    'signing.';
CREATE UNIQUE INDEX vapid_keys_one_active ON vapid_keys (app) WHERE state = 'active';

CREATE TABLE api_keys (
    id               uuid        PRIMARY KEY, -- UUIDv7
    -- The app that it belongs to; null: a key of the server, valid for all apps.
    app              uuid        REFERENCES apps,
    -- HMAC of the secret, which is shown once and not stored.
    secret_mac       bytea       NOT NULL UNIQUE CHECK (length(secret_mac) = 32),
    hint             text        NOT NULL, -- first characters of the secret, for people to recognise the key
    name             text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200), -- name for people
    -- Permissions. Keys of apps and keys of the server have different ones.
    scopes           text[]      NOT NULL CONSTRAINT api_keys_scopes_check CHECK (scopes <@ CASE WHEN app IS NULL
        THEN ARRAY['operator', 'metrics']
        ELSE ARRAY['send', 'read', 'subscribers', 'messages', 'policies', 'settings', 'keys', 'export'] END),
    created_at       timestamptz NOT NULL, -- time of creation
    expires_at       timestamptz, -- end of validity; null: none
    revoked_at       timestamptz, -- time of revocation; null: not revoked
    made_by          uuid        REFERENCES api_keys, -- the API key that created it
    -- Or the teammate, without a reference, since keys outlive teammates; both null: the command line.
    made_by_teammate uuid,
    last_used_on     date,       -- day of the last request, in UTC, written at most once a day; null: never used
    CHECK (made_by IS NULL OR made_by_teammate IS NULL)
);
COMMENT ON TABLE api_keys IS 'API keys of apps and of the server.';
CREATE INDEX api_keys_by_app ON api_keys (app, id);
-- Revoking a key lists the keys that it created.
CREATE INDEX api_keys_by_maker ON api_keys (made_by) WHERE made_by IS NOT NULL;

CREATE TABLE identity_keys (
    id         uuid        PRIMARY KEY, -- UUIDv7
    app        uuid        NOT NULL REFERENCES apps, -- owner
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200), -- name for people
    algorithm  text        NOT NULL CHECK (algorithm IN ('HS256', 'ES256')), -- signature algorithm
    secret     bytea,      -- sealed; HS256 only
    public_key bytea       CHECK (length(public_key) = 65), -- uncompressed point on P-256; ES256 only
    created_at timestamptz NOT NULL, -- time of creation
    -- Form of its user tokens. A key serves one form only: the HMAC of a user id that reads `header.payload` would
    -- otherwise be the signature of that JWT.
    form       text        NOT NULL CHECK (form IN ('jwt', 'hmac')),
    -- The API key that created it, which takes this key along when it is revoked; null: the command line.
    made_by    uuid,
    CHECK ((algorithm = 'HS256') = (secret IS NOT NULL) AND (algorithm = 'ES256') = (public_key IS NOT NULL)),
    CHECK (form = 'jwt' OR algorithm = 'HS256')
);
COMMENT ON TABLE identity_keys IS
    'Keys with which a site''s backend signs user tokens. An app may have several, so that they can be rotated.';
CREATE INDEX identity_keys_by_app ON identity_keys (app, id);

CREATE TABLE teammates (
    id              uuid        PRIMARY KEY, -- UUIDv7
    -- sign-in name.
    email           text        NOT NULL UNIQUE CHECK (length(email) BETWEEN 3 AND 254 AND email = lower(email)),
    -- sealed: the password's hash, argon2id with its parameters as a PHC string; null: no password.
    password_sealed bytea,
    created_at      timestamptz NOT NULL, -- time of creation
    disabled_at     timestamptz  -- time from which sign-in is refused; null: sign-in is allowed
);
COMMENT ON TABLE teammates IS
    'People who sign in to run the server and its apps, as opposed to the users of these apps.';

CREATE TABLE teammate_roles (
    teammate uuid NOT NULL REFERENCES teammates ON DELETE CASCADE, -- who has the role
    app      uuid REFERENCES apps, -- null: all apps, and the server itself
    role     text NOT NULL CHECK (role IN ('viewer', 'sender', 'operator', 'admin')), -- model::role
    UNIQUE NULLS NOT DISTINCT (teammate, app)
);
COMMENT ON TABLE teammate_roles IS 'Roles of teammates: at most one for each app, and one for all apps.';
CREATE INDEX teammate_roles_by_app ON teammate_roles (app); -- read when an app is deleted

CREATE TABLE invitations (
    teammate   uuid        PRIMARY KEY REFERENCES teammates ON DELETE CASCADE, -- a new link replaces the one before
    -- HMAC of the token, which is shown once and not stored.
    token_mac  bytea       NOT NULL UNIQUE CHECK (length(token_mac) = 32),
    created_at timestamptz NOT NULL, -- time of creation
    expires_at timestamptz NOT NULL  -- end of validity
);
COMMENT ON TABLE invitations IS 'One-time sign-in links of teammates. Using a link deletes its row.';

CREATE TABLE sessions (
    id         uuid        PRIMARY KEY, -- UUIDv7
    teammate   uuid        REFERENCES teammates ON DELETE CASCADE, -- who signed in
    api_key    uuid        REFERENCES api_keys ON DELETE CASCADE, -- or the server's key that the session acts as
    began_at   timestamptz NOT NULL, -- time of the sign-in
    seen_at    timestamptz NOT NULL, -- last use, to the minute
    expires_at timestamptz NOT NULL, -- absolute end
    ended_at   timestamptz, -- time of the sign-out, or of the end by another person; null: not ended early
    address    inet,        -- client address at the sign-in
    -- User-Agent at the sign-in, for the teammate to recognise it.
    browser    text        CHECK (length(browser) BETWEEN 1 AND 200),
    CHECK (num_nonnulls(teammate, api_key) = 1)
);
COMMENT ON TABLE sessions IS
    'Browser sessions. A row outlives its session by a month: the limit on password guesses reads whether an address '
    'has signed in before.';
CREATE INDEX sessions_by_teammate ON sessions (teammate, id) WHERE teammate IS NOT NULL;
CREATE INDEX sessions_by_key ON sessions (api_key, id) WHERE api_key IS NOT NULL;
CREATE INDEX sessions_by_end ON sessions (expires_at); -- retention

CREATE TABLE oidc_accounts (
    teammate  uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE, -- owner
    issuer    text        NOT NULL CHECK (length(issuer) BETWEEN 1 AND 2048), -- the provider: the `iss` claim
    subject   text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 255), -- the account: the `sub` claim
    linked_at timestamptz NOT NULL, -- time of the first sign-in
    PRIMARY KEY (teammate, issuer),
    UNIQUE (issuer, subject)
);
COMMENT ON TABLE oidc_accounts IS
    'OpenID accounts of teammates. The first sign-in with a teammate''s address links the account, and later only that '
    'account may use the address: addresses are reassigned, subjects are not (OpenID Connect Core 1.0, section 5.7).';

CREATE TABLE passkeys (
    id            uuid        PRIMARY KEY, -- UUIDv7
    teammate      uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE, -- owner
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 64), -- chosen by the owner
    -- The authenticator's id of the key.
    credential_id bytea       NOT NULL UNIQUE CHECK (length(credential_id) BETWEEN 1 AND 1023),
    public_key    bytea       NOT NULL CHECK (length(public_key) BETWEEN 1 AND 2048), -- COSE key (RFC 9052)
    algorithm     integer     NOT NULL, -- COSE algorithm number, such as -7 for ES256
    -- Signature counter; 0: the authenticator has none.
    counter       bigint      NOT NULL CHECK (counter BETWEEN 0 AND 4294967295),
    transports    text[]      NOT NULL, -- how browsers reach the authenticator, as they report it
    created_at    timestamptz NOT NULL, -- time of registration
    last_used_at  timestamptz -- last sign-in; null: never
);
COMMENT ON TABLE passkeys IS 'Passkeys (WebAuthn): the second factor of teammates who have one. No column is secret.';
CREATE INDEX passkeys_by_teammate ON passkeys (teammate, id);

CREATE TABLE passkey_challenges (
    -- HMAC of the challenge, which proves the first factor and is not stored.
    challenge_mac   bytea       PRIMARY KEY CHECK (length(challenge_mac) = 32),
    teammate        uuid        NOT NULL REFERENCES teammates ON DELETE CASCADE, -- who is to answer
    -- To add a passkey, in this session only; null: to sign in.
    session         uuid        REFERENCES sessions ON DELETE CASCADE,
    -- The one-time link that was shown, used up together with the challenge.
    link_mac        bytea       CHECK (length(link_mac) = 32),
    password_sealed bytea,      -- sealed: hash of the password that the link sets
    -- The provider that was the first factor.
    oidc_issuer     text        CHECK (length(oidc_issuer) BETWEEN 1 AND 2048),
    -- And the account there, linked once the passkey has answered.
    oidc_subject    text        CHECK (length(oidc_subject) BETWEEN 1 AND 255),
    expires_at      timestamptz NOT NULL, -- end of validity, five minutes after it was issued
    CHECK (session IS NULL OR link_mac IS NULL),
    CHECK (password_sealed IS NULL OR link_mac IS NOT NULL),
    CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL)),
    CHECK (oidc_issuer IS NULL OR (session IS NULL AND link_mac IS NULL))
);
COMMENT ON TABLE passkey_challenges IS 'Challenges for passkeys to sign, each valid once.';
CREATE INDEX passkey_challenges_by_teammate ON passkey_challenges (teammate); -- a new password deletes them
-- Read when a session is deleted.
CREATE INDEX passkey_challenges_by_session ON passkey_challenges (session) WHERE session IS NOT NULL;
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at); -- retention

CREATE TABLE removed_teammates (
    email_mac   bytea       NOT NULL CHECK (length(email_mac) = 32), -- HMAC of the address
    account_mac bytea       CHECK (length(account_mac) = 32), -- HMAC of a linked OpenID account; null: none was linked
    removed_at  timestamptz NOT NULL -- time of the removal
);
COMMENT ON TABLE removed_teammates IS
    'People who were removed from the team. A sign-in by their provider does not add them again; an invitation does. '
    'HMACs recognise them without naming them.';
CREATE INDEX removed_teammates_by_email ON removed_teammates (email_mac);
CREATE INDEX removed_teammates_by_account ON removed_teammates (account_mac);

CREATE TABLE audit_log (
    id         uuid        PRIMARY KEY, -- UUIDv7 of `at`
    at         timestamptz NOT NULL, -- time of the action
    app        uuid,       -- owner of the target; null: the server. No reference, since the log outlives apps
    -- Who acted. nobody: a failed sign-in.
    actor_kind text        NOT NULL CHECK (actor_kind IN ('api_key', 'operator', 'teammate', 'local', 'nobody')),
    actor      uuid,       -- the API key or teammate
    address    inet,       -- client address; null: the command line
    action     text        NOT NULL CHECK (action ~ '^[a-z_]+\.[a-z_]+$'), -- store::keys::audit::Action
    -- An id or a name, never a secret or a person.
    target     text        NOT NULL CHECK (length(target) BETWEEN 1 AND 300),
    n          bigint      NOT NULL CHECK (n >= 0), -- number of things changed
    detail     jsonb       NOT NULL, -- further facts, never a secret or a person
    CONSTRAINT audit_log_actor_check CHECK ((actor IS NULL) = (actor_kind IN ('local', 'nobody')))
);
COMMENT ON TABLE audit_log IS
    'Actions of people and keys: one row for each transaction that acted, written in that transaction. Rows never '
    'change.';
CREATE INDEX audit_log_by_app ON audit_log (app, id);
CREATE INDEX audit_log_by_actor ON audit_log (actor, id);

-- Only retention deletes rows, and sets a parameter of its transaction to do so: an accidental DELETE fails.
CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' OR current_setting('bellwire.audit_log_retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'audit_log is append-only';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();

CREATE TABLE acme_accounts (
    directory   text        PRIMARY KEY, -- URL of the certificate authority's directory
    id          uuid        NOT NULL, -- UUIDv7; authenticated with the sealed value
    credentials bytea       NOT NULL, -- sealed: the account's URL and private key, in JSON
    created_at  timestamptz NOT NULL  -- time of the first order
);
COMMENT ON TABLE acme_accounts IS
    'ACME accounts: one for each certificate authority. All processes of a server share them.';

CREATE TABLE acme_certificates (
    id           uuid        PRIMARY KEY, -- UUIDv7
    directory    text        NOT NULL, -- URL of the certificate authority's directory
    domain       text        NOT NULL, -- host name
    chain        text,       -- PEM; null: not issued yet
    private_key  bytea,      -- sealed, PEM
    not_after    timestamptz, -- end of validity
    renew_at     timestamptz, -- time of the next order
    -- What TLS-ALPN-01 presents to the authority.
    challenge    bytea       CONSTRAINT acme_certificates_challenge CHECK (octet_length(challenge) = 32),
    leased_until timestamptz, -- end of the lease of the process that orders; null: no order is in progress
    -- Failed orders in a row.
    failures     integer     NOT NULL DEFAULT 0 CONSTRAINT acme_certificates_failures CHECK (failures >= 0),
    failure      text,       -- error of the last order; null: it succeeded
    retry_at     timestamptz, -- earliest time of the next order after a failure
    CONSTRAINT acme_certificates_once UNIQUE (directory, domain),
    CONSTRAINT acme_certificates_whole CHECK (num_nulls(chain, private_key, not_after, renew_at) IN (0, 4))
);
COMMENT ON TABLE acme_certificates IS
    'TLS certificates by host, issued or requested. One process at a time orders a certificate.';
