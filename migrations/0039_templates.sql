-- What an app writes once and sends often. A message has a copy of its own, so a change here changes nothing that is under way.

CREATE TABLE templates (
    id         uuid        PRIMARY KEY, -- UUIDv7; part of what the seal authenticates
    app        uuid        NOT NULL REFERENCES apps,
    name       text        NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
    content    bytea       NOT NULL, -- sealed: the JSON of model::template::Template
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    UNIQUE (app, name)
);
-- Lists, the newest first.
CREATE INDEX templates_by_app ON templates (app, id);
