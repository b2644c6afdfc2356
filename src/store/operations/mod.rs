//! What keeps the database itself in order: its schema, partitions, retention, sweeps, and who works on it.

pub(crate) mod partitions;
pub(crate) mod removal;
pub(crate) mod retention;
pub(crate) mod retrying;
pub(crate) mod schema;
pub(crate) mod sweeps;
pub(crate) mod workers;
