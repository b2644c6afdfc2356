-- What retries came to, by minute, lane and tier: counted in workers' memory, added here every few seconds. Figures may
-- miss the last seconds of a worker that died; the account of messages never does.
CREATE TABLE figures (
    minute timestamptz NOT NULL,
    lane   integer     NOT NULL,
    tier   smallint    NOT NULL,
    figure smallint    NOT NULL, -- src/figures.rs names them
    n      bigint      NOT NULL,
    PRIMARY KEY (minute, lane, tier, figure)
) WITH (fillfactor = 50);
