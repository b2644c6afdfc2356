-- What holds an app that sends far more than its size explains.

-- Only of apps for which something was set, or that were held once.
CREATE TABLE guards (
    app         uuid    PRIMARY KEY REFERENCES apps,
    -- More than so many times its active subscriptions, and `floor` more, within a quarter of an hour is a runaway. Null: as the
    -- server has it; a factor of 0: nothing is.
    factor      integer CHECK (factor BETWEEN 0 AND 1000),
    floor       bigint  CHECK (floor BETWEEN 0 AND 1000000000),
    released_at timestamptz -- when somebody last released it: what was sent before does not count
);

-- The tiers of the app that nothing is let through of until somebody releases it, and since when. In rows of apps as a whole.
ALTER TABLE flows
    ADD COLUMN held_tiers smallint[] NOT NULL DEFAULT '{}' CHECK (held_tiers <@ ARRAY[1, 2, 3]::smallint[]),
    ADD COLUMN held_at    timestamptz,
    ADD CHECK ((cardinality(held_tiers) = 0) = (held_at IS NULL)),
    ADD CHECK (lane IS NULL OR held_at IS NULL);
