-- How many there are to reach: the sum of `n` over a topic, a lane, or both. What was added up, and what was noted since.
CREATE VIEW audiences AS
SELECT topic, lane, n FROM audience_counts UNION ALL SELECT topic, lane, n FROM audience_changes;
