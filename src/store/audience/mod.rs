//! Whom there is to reach: subscriptions and their topics, how they come, change, are replaced and are forgotten.

pub mod audience_counts;
pub mod erasures;
pub mod hygiene;
pub mod membership;
pub mod refusals;
pub mod registration;
pub mod subscriptions;
pub mod succession;
pub mod topics;
