-- What operators want to see in the log for a while. Every process reads it every other second; once `until` is over, what each was
-- started with holds again.
CREATE TABLE log_level (
    -- There is one row, or none.
    is_only boolean PRIMARY KEY DEFAULT true CONSTRAINT log_level_is_one_row CHECK (is_only),
    -- Levels of Bellwire's own parts, as BELLWIRE_LOG has them: debug, or bellwire::dispatch=debug,sqlx=info.
    filter text NOT NULL CONSTRAINT log_level_filter_length CHECK (length(filter) BETWEEN 1 AND 200),
    set_at timestamptz NOT NULL,
    until timestamptz NOT NULL
);
