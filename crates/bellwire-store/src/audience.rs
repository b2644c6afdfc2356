//! Audience: subscriptions and their topics, from registration to replacement and deletion.

pub mod aliases;
mod assignments;
pub mod audience_counts;
pub(crate) mod candidates;
pub mod diagnoses;
pub mod engagement_stats;
pub mod erasures;
pub mod hygiene;
pub mod imports;
mod lost_endpoint;
pub mod membership;
pub mod opt_in;
pub mod people;
pub mod reach;
pub mod refusals;
pub mod registration;
pub mod replacement;
pub mod restoring;
pub mod segment_filter;
pub mod segments;
pub mod subscriptions;
pub mod topics;
pub mod user_shards;
