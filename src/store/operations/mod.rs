//! Operation of the database: schema, partitions, retention, sweeps, workers, setup, backups, and the responses to requests with
//! an `Idempotency-Key`.

pub(crate) mod backups;
pub(crate) mod clock_marks;
pub(crate) mod cluster_identity;
pub(crate) mod distribution;
pub(crate) mod edits;
pub(crate) mod exports;
pub(crate) mod idempotency;
pub(crate) mod log_level;
pub(crate) mod partitions;
pub(crate) mod removal;
pub(crate) mod reports;
pub(crate) mod restoring;
pub(crate) mod retention;
pub(crate) mod retrying;
pub(crate) mod schema;
pub(crate) mod setup;
pub(crate) mod statistics;
pub(crate) mod sweeps;
pub(crate) mod takeover;
pub(crate) mod workers;
