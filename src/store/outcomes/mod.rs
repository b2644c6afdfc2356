//! What became of it: attempts, counts, dead letters, receipts, and what is told to people.

pub mod alerts;
pub mod copy;
pub mod dead_letters;
pub mod deliveries;
pub mod endings;
pub mod events;
pub mod figures;
pub mod forged;
pub mod receipts;
pub mod settle;
pub mod slas;
pub mod tally;
