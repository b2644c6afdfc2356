-- A worker that dies is missed within seconds, by counting: whoever finds its count where it was several looks in a row takes
-- over what it held. No times of two machines are compared.

-- How often the worker has said that it lives; 0: a worker of an earlier version, which goes by `beat_at` alone.
ALTER TABLE workers ADD COLUMN beats bigint NOT NULL DEFAULT 0;
-- By what name (application_name) its process's sessions are known to Postgres, which are ended with the worker: what a frozen
-- process has locked keeps nobody waiting. Null: by none of its own.
ALTER TABLE workers ADD COLUMN session text;
-- Each is written once a second, and no index has what changes: room for its versions on its own page.
ALTER TABLE workers SET (fillfactor = 50);
