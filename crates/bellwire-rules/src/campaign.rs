//! Campaigns: plans that produce messages. These are pure rules: the states ([`state`]), the schedule ([`schedule`]), time zones
//! ([`zones`]), the messages of one run ([`parts`]), and the winner among variants ([`winner`]).
//!
//! A campaign has no list of its audience. Its messages carry filters and times, and the engine fans them out like any others. So
//! planning, starting and cancelling cost the same for ten million recipients as for ten.

pub mod parts;
pub mod plan;
pub mod schedule;
pub mod state;
pub mod winner;
pub mod zones;
