//! Results of deliveries: attempts, counts, dead letters, receipts, and data for people.

pub(crate) mod alerts;
pub(crate) mod copy;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod ledger;
pub(crate) mod notes;
pub(crate) mod receipts;
pub(crate) mod reliability;
pub(crate) mod rollups;
pub(crate) mod search;
pub(crate) mod slas;
pub(crate) mod stories;
pub(crate) mod stream;
pub(crate) mod tally;
