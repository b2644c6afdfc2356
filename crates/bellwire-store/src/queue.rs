//! Deliveries in progress: messages, queue rows and fan-out cursors, claims, stops and limits.

pub mod calendars;
pub mod caps;
pub mod claims;
pub mod clears;
pub mod flows;
pub mod gone_watches;
pub mod guards;
pub mod lanes;
pub mod messages;
pub mod opening;
pub mod policies;
pub mod recall;
pub mod removals;
pub mod sending;
pub mod steering;
pub mod stops;
pub mod subscription_holds;
pub mod templates;
pub mod throttles;
pub mod updates;
pub mod withdrawals;
