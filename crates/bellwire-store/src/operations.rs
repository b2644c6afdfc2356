//! Operations: schema, partitions, retention, sweeps, workers, setup, backups, and responses to requests with an
//! `Idempotency-Key`.

pub mod backups;
pub mod clock_marks;
pub mod cluster_identity;
pub mod distribution;
pub mod exports;
pub mod idempotency;
pub mod if_match;
pub mod log_level;
pub mod partitions;
pub mod removal;
pub mod reports;
pub mod restoring;
pub mod retention;
pub mod retrying;
pub mod schema;
pub mod setup;
pub mod statistics;
pub mod sweeps;
pub mod takeover;
pub mod workers;
