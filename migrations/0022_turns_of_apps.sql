-- How apps share a server.

-- How many turns an app has where another one has a single one, while deliveries of both wait for the same thing.
ALTER TABLE apps ADD COLUMN weight smallint NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100);
