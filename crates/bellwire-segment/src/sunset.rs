//! Sunset rule: excludes people who do not click.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use bellwire_core::engagement_stats::Habits;

/// Rule that excludes people who meet all its conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sunset {
    /// Minimum number of messages displayed since the last click.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclicked: Option<i16>,
    /// Minimum seconds between the first and the last of these messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclicked_for_s: Option<i64>,
    /// Minimum seconds since the subscription.
    pub welcome_s: i64,
}

impl Sunset {
    /// Whether the rule excludes a person with this engagement and age of the subscription. People without displayed messages
    /// are not excluded.
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
