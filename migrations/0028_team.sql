-- Who signs in: the people who run the server and its apps, as opposed to the users of those apps.

CREATE TABLE teammates (
    id            uuid        PRIMARY KEY,
    email         text        NOT NULL UNIQUE CHECK (length(email) BETWEEN 3 AND 254 AND email = lower(email)),
    password_hash text        CHECK (length(password_hash) <= 255), -- argon2id with its parameters, a PHC string; null: has none
    created_at    timestamptz NOT NULL,
    disabled_at   timestamptz -- since when they are not let in; null: they are
);

-- What teammates may do: model::role. At most one role for each app, and one for all.
CREATE TABLE teammate_roles (
    teammate uuid NOT NULL REFERENCES teammates ON DELETE CASCADE,
    app      uuid REFERENCES apps, -- null: all apps, and the server itself
    role     text NOT NULL CHECK (role IN ('viewer', 'sender', 'operator', 'admin')),
    UNIQUE NULLS NOT DISTINCT (teammate, app)
);
CREATE INDEX teammate_roles_by_app ON teammate_roles (app); -- deleting an app asks

-- One-time links. A teammate has one at most: a new one takes the place of the one before. Using it deletes it.
CREATE TABLE invitations (
    teammate   uuid        PRIMARY KEY REFERENCES teammates ON DELETE CASCADE,
    token_mac  bytea       NOT NULL UNIQUE CHECK (length(token_mac) = 32), -- the token itself is shown once and not kept
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- For how long which browser is signed in. A row outlives its session by a month: whether somebody signed in from an address
-- before is asked when strangers guess at the password.
CREATE TABLE sessions (
    id         uuid        PRIMARY KEY,
    teammate   uuid        REFERENCES teammates ON DELETE CASCADE,
    api_key    uuid        REFERENCES api_keys ON DELETE CASCADE, -- an operator's key, as which the session acts
    began_at   timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL, -- when it was last used, to the minute
    expires_at timestamptz NOT NULL, -- whatever happens
    ended_at   timestamptz, -- by signing out, or because somebody ended it
    address    inet, -- of the client that began it
    browser    text        CHECK (length(browser) BETWEEN 1 AND 200), -- its User-Agent, for the teammate to recognise it by
    CHECK (num_nonnulls(teammate, api_key) = 1)
);
CREATE INDEX sessions_by_teammate ON sessions (teammate, id) WHERE teammate IS NOT NULL;
CREATE INDEX sessions_by_key ON sessions (api_key, id) WHERE api_key IS NOT NULL;
CREATE INDEX sessions_by_end ON sessions (expires_at); -- retention

-- The teammate that made a key; no reference: keys outlive teammates. One of the three at most.
ALTER TABLE api_keys
    ADD COLUMN made_by_teammate uuid,
    ADD CHECK (num_nonnulls(made_by, made_by_teammate) + made_locally::int <= 1);

-- Teammates act, too, and sign-ins fail before anybody knows whose they were. Rows of before satisfied narrower checks: none
-- need be looked at again.
ALTER TABLE audit_log
    DROP CONSTRAINT audit_log_actor_kind_check,
    DROP CONSTRAINT audit_log_check,
    ADD CONSTRAINT audit_log_actor_kind_check
        CHECK (actor_kind IN ('api_key', 'operator', 'teammate', 'local', 'nobody')) NOT VALID,
    -- An API key or a teammate.
    ADD CONSTRAINT audit_log_actor_check CHECK ((actor IS NULL) = (actor_kind IN ('local', 'nobody'))) NOT VALID;
