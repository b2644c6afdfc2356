//! Results of deliveries: attempts, counts, dead letters, receipts, events and metrics.

pub mod alerts;
pub mod copy;
pub mod dead_letters;
pub mod deliveries;
pub mod events;
pub mod ledger;
pub mod notes;
pub mod receipts;
pub mod reliability;
pub mod rollups;
pub mod search;
pub mod slas;
pub mod stories;
pub mod stream;
pub mod tally;
