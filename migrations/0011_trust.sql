-- Who may do what, in parts that can be given singly; which key made which; and what people with keys did.

-- The scope `manage` did nearly everything. Keys that have it get what it consisted of, and keys that may send keep the
-- right to stop what they sent, which is a scope of its own now: nothing that runs loses a right that it uses. Exporting
-- dead letters, which `read` allowed, and letting in other gateways, which `manage` did, are the deliberate exceptions.
ALTER TABLE api_keys
    DROP CONSTRAINT api_keys_scopes_check,
    DROP CONSTRAINT api_keys_check;
UPDATE api_keys SET scopes = ARRAY(
    SELECT DISTINCT part FROM unnest(scopes) AS scope, unnest(
        CASE scope
            WHEN 'manage' THEN ARRAY['subscribers', 'messages', 'policies', 'settings', 'keys', 'export']
            WHEN 'send' THEN ARRAY['send', 'messages']
            ELSE ARRAY[scope]
        END) AS part
    ORDER BY part)
WHERE scopes && ARRAY['manage', 'send'];
ALTER TABLE api_keys
    -- An app's keys have scopes of apps, the server's own (`app` is null) have the others.
    ADD CONSTRAINT api_keys_scopes_check CHECK (scopes <@ CASE WHEN app IS NULL
        THEN ARRAY['operator', 'metrics']
        ELSE ARRAY['send', 'read', 'subscribers', 'messages', 'policies', 'settings', 'keys', 'export'] END),
    -- Neither: it was made before this was recorded.
    ADD COLUMN made_by      uuid    REFERENCES api_keys, -- the key that made it
    ADD COLUMN made_locally boolean NOT NULL DEFAULT false, -- it was made on the command line
    ADD CHECK (made_by IS NULL OR NOT made_locally);
-- Whoever revokes a key asks what it made.
CREATE INDEX api_keys_by_maker ON api_keys (made_by) WHERE made_by IS NOT NULL;

-- What people with keys did: a row for each transaction that did it, written in that transaction.
CREATE TABLE audit_log (
    id         uuid        PRIMARY KEY, -- UUIDv7 of `at`
    at         timestamptz NOT NULL,
    app        uuid, -- whose things; null: the server's. No reference: the log outlives apps
    actor_kind text        NOT NULL CHECK (actor_kind IN ('api_key', 'operator', 'local')),
    actor      uuid        CHECK ((actor IS NULL) = (actor_kind = 'local')), -- the API key
    address    inet, -- of the client; null on the command line
    action     text        NOT NULL CHECK (action ~ '^[a-z_]+\.[a-z_]+$'), -- store::audit::Action
    target     text        NOT NULL CHECK (length(target) BETWEEN 1 AND 300), -- an id or a name, never a secret or a person
    n          bigint      NOT NULL CHECK (n >= 0), -- how many
    detail     jsonb       NOT NULL -- what else is worth knowing, the same
);
CREATE INDEX audit_log_by_app ON audit_log (app, id);
CREATE INDEX audit_log_by_actor ON audit_log (actor, id);

-- Rows are never changed. Retention deletes the oldest, and says so within its transaction: a mistake does not.
CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' OR current_setting('bellwire.audit_log_retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'audit_log is append-only';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();
