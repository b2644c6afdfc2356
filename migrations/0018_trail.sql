-- The trail of dead letters is what it says: append-only.

-- Rows are never changed. Retention deletes the oldest, the removal of an app its own, and both say so within their
-- transaction: a mistake does not.
CREATE FUNCTION dead_letter_actions_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' OR current_setting('bellwire.dead_letter_retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'dead_letter_actions is append-only';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letter_actions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dead_letter_actions
    FOR EACH STATEMENT EXECUTE FUNCTION dead_letter_actions_is_append_only();
