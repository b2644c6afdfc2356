-- What a person's own hour was before it last changed, so that one run of a campaign has the same hour for them from its first message
-- to its last: a click on the very push may change it. 9 octets a change, the oldest first: microseconds since 1970, until when it was
-- so, and the hour of the day (255: not known). Of a week, 16 at most.
ALTER TABLE habits ADD COLUMN former_hours bytea NOT NULL DEFAULT '';
ALTER TABLE habits ADD CONSTRAINT habits_former_hours_check
    CHECK (octet_length(former_hours) <= 144 AND octet_length(former_hours) % 9 = 0) NOT VALID;

-- A campaign runs once for each time that it is due, whoever counts. The table is small: a row a run.
CREATE UNIQUE INDEX campaign_runs_once ON campaign_runs (campaign, at);
