-- Whom of an audience a message is for.

-- Named expressions over what is known of subscriptions. A message keeps the text that it was sent with: changing or deleting
-- a segment changes nothing that is under way.
CREATE TABLE segments (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app         uuid        NOT NULL REFERENCES apps,
    name        text        NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
    description text        CHECK (length(description) BETWEEN 1 AND 500),
    expression  text        NOT NULL CHECK (octet_length(expression) BETWEEN 1 AND 4096), -- in its normal form
    created_at  timestamptz NOT NULL,
    changed_at  timestamptz NOT NULL,
    UNIQUE (app, name)
);

-- Of whoever `audience` names, those alone to whom this applies: `model::filter::Filter`. Null: everybody. The fan-out evaluates
-- it when it comes to a subscription, by what holds then.
ALTER TABLE messages ADD COLUMN filter jsonb;
