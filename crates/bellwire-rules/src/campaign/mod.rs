//! Campaigns: plans that end in messages. Pure rules: where a campaign stands and may go ([`state`]), when it is due
//! ([`schedule`]), on whose clock ([`zones`]), which messages one run of it ends in ([`parts`]), and which of several variants
//! did better ([`winner`]).
//!
//! A campaign knows nobody of its audience. All that it can do is said in messages with filters and times, which the engine
//! fans out like any others; so a campaign to ten million costs as much to plan, start and cancel as one to ten.

pub mod parts;
pub mod plan;
pub mod schedule;
pub mod state;
pub mod winner;
pub mod zones;
