//! Audience: subscriptions and their topics, from registration to replacement and deletion.

pub(crate) mod aliases;
mod assignments;
pub(crate) mod audience_counts;
pub(in crate::store) mod candidates;
pub(crate) mod diagnoses;
pub(crate) mod erasures;
pub(crate) mod habits;
pub(crate) mod hygiene;
pub(crate) mod imports;
pub(crate) mod judge;
mod lost_endpoint;
pub(crate) mod membership;
pub(crate) mod people;
pub(crate) mod reach;
pub(crate) mod refusals;
pub(crate) mod registration;
pub(crate) mod restoring;
pub(crate) mod segments;
pub(crate) mod subscriptions;
pub(crate) mod succession;
pub(crate) mod topics;
pub(crate) mod user_shards;
