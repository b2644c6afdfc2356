//! Audience: subscriptions and their topics, from registration to replacement and deletion.

pub mod aliases;
mod assignments;
pub mod audience_counts;
pub(crate) mod candidates;
pub mod diagnoses;
pub mod erasures;
pub mod habits;
pub mod hygiene;
pub mod imports;
pub mod judge;
mod lost_endpoint;
pub mod membership;
pub mod people;
pub mod reach;
pub mod refusals;
pub mod registration;
pub mod restoring;
pub mod segments;
pub mod subscriptions;
pub mod succession;
pub mod topics;
pub mod user_shards;
