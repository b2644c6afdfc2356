-- Recipients that are leased and settled together are a batch; what workers count of retries are reliability metrics.
ALTER TABLE pages RENAME TO batches;
ALTER INDEX pages_pkey RENAME TO batches_pkey;
ALTER INDEX pages_due RENAME TO batches_due;
ALTER INDEX pages_by_message RENAME TO batches_by_message;

ALTER TABLE figures RENAME TO reliability_counts;
ALTER TABLE reliability_counts RENAME COLUMN figure TO metric; -- src/policy/reliability.rs names them
ALTER INDEX figures_pkey RENAME TO reliability_counts_pkey;
UPDATE alerts SET kind = 'sli' WHERE kind = 'figure';
