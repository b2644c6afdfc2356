-- What keeps single statements from being fast.

-- Vacuum would give the empty end of these tables back under a lock that stops every claim and every send.
ALTER TABLE queue SET (vacuum_truncate = false);
ALTER TABLE pages SET (vacuum_truncate = false);
ALTER TABLE cursors SET (vacuum_truncate = false);
ALTER TABLE message_counts SET (vacuum_truncate = false);
