//! Campaigns: plans from which messages are created. Pure rules: states ([`state`]), schedule ([`schedule`]), time zones
//! ([`zones`]), messages of one run ([`parts`]), triggers ([`trigger`]), follow-ups ([`follow`]), winner among variants
//! ([`winner`]), what an app measures ([`measurement`]), and the effect of a campaign ([`lift`]).
//!
//! A campaign has no list of its audience. Its messages have filters and times, and are fanned out like others. So planning,
//! starting and cancelling cost the same for ten million recipients as for ten.

pub mod follow;
pub mod lift;
pub mod measurement;
pub mod parts;
pub mod plan;
pub mod schedule;
pub mod state;
pub mod trigger;
pub mod winner;
pub mod zones;
