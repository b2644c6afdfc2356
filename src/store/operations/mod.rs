//! What keeps the database itself in order: its schema, partitions, retention, sweeps, and who works on it.

pub mod partitions;
pub mod removal;
pub mod retention;
pub mod retrying;
pub mod schema;
pub mod sweeps;
pub mod workers;
