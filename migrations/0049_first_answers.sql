-- Answers to requests that made something, each under the `Idempotency-Key` that it came with: the same request made again gets the
-- same answer, and makes nothing. Written in the transaction that makes the thing, so that there is never one without the other.
-- Kept for a day or longer. Sends have a table of their own (idempotency_keys): they are many, come in groups, and their keys are
-- shared by all servers of an app.
CREATE TABLE first_answers (
    caller       uuid        NOT NULL, -- the API key or teammate that asked: keys of others do not count; all zeros: the command line
    route        text        NOT NULL, -- method and path as the router knows it, such as `POST /v1/apps/{app}/topics`
    key          text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    id           uuid        NOT NULL, -- what the answer is sealed for
    app          uuid,                 -- whose thing was made, with which it goes; null: the server's
    request_hash bytea       NOT NULL CHECK (length(request_hash) = 32), -- SHA-256 of path, query and body: another request is refused
    status       smallint    NOT NULL CHECK (status = 0 OR status BETWEEN 200 AND 299), -- 0: its transaction is still at work
    answer       bytea       NOT NULL, -- sealed: it may show a secret
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (caller, route, key)
);
CREATE INDEX first_answers_by_age ON first_answers (created_at);
CREATE INDEX first_answers_by_app ON first_answers (app) WHERE app IS NOT NULL;
