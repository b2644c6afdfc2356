//! Sunset rule: leaves out people who do not click.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use bellwire_core::engagement_stats::Habits;

/// Rule that leaves out people who meet all of its conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sunset {
    /// So many messages were displayed to them, and none of these was clicked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclicked: Option<i16>,
    /// Messages were displayed to them for so many seconds, and none of these was clicked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclicked_for_s: Option<i64>,
    /// They subscribed so many seconds ago or longer.
    pub welcome_s: i64,
}

impl Sunset {
    /// Whether it leaves out a person with this engagement and age of the subscription. People without displayed or reported
    /// messages are not left out.
    pub(crate) fn leaves_out(&self, habits: &Habits, age: TimeDelta) -> bool {
        habits.unclicked > 0
            && self.unclicked.is_none_or(|n| habits.unclicked >= n)
            && self.unclicked_for_s.is_none_or(|seconds| habits.unclicked_for() >= TimeDelta::seconds(seconds))
            && age >= TimeDelta::seconds(self.welcome_s)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/segment/unit/sunset.rs"]
mod tests;
