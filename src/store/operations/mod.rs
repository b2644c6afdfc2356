//! What keeps the database itself in order: its schema, partitions, retention, sweeps, who works on it, and how it is set up.

pub(crate) mod partitions;
pub(crate) mod removal;
pub(crate) mod reports;
pub(crate) mod retention;
pub(crate) mod retrying;
pub(crate) mod schema;
pub(crate) mod setup;
pub(crate) mod sweeps;
pub(crate) mod workers;
