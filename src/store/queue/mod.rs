//! What is on its way: messages, the rows and cursors that wait, who may claim them, and what stops or slows them.

pub mod calendars;
pub mod claims;
pub mod flows;
pub mod idempotency;
pub mod lanes;
pub mod messages;
pub mod opening;
pub mod policies;
pub mod recall;
pub mod sending;
pub mod steering;
pub mod stops;
pub mod throttles;
pub mod unsent;
