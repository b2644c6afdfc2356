//! Checked plan of a campaign, from which its messages are created.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::follow::Follow;
use super::schedule::When;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_segment::AudienceFilter;

pub const VARIANTS_MAX: usize = 10;
/// Whole audience in ten-thousandths, the unit of shares.
pub const WHOLE: u16 = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Variants, at least one. The first one is the default.
    pub variants: Vec<CampaignVariant>,
    pub when: When,
    pub pace: Option<Pace>,
    /// A/B test. `None`: none.
    pub test: Option<Test>,
    /// Share of the audience that gets nothing, as a control group, in ten-thousandths.
    pub holdout: u16,
    /// Time after which nothing is sent.
    pub expires_at: Option<Timestamp>,
    pub follows: Option<Follow>,
    /// Kind of conversion by which the test is decided. `None`: clicks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Parameters of links, which replace equal ones of the app.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link_parameters: BTreeMap<String, String>,
}

impl Plan {
    /// Whether the plan has expired, so that nothing is sent.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Variant of a campaign's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CampaignVariant {
    pub name: String,
    /// Weight of its share, relative to the other variants.
    pub weight: u16,
    /// Whether it is sent at each person's own hour, within 24 hours from the due time.
    #[serde(default)]
    pub at_own_hour: bool,
    pub body: PlannedMessage,
}

/// A message without its id, time and part of the audience.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedMessage {
    pub tier: Tier,
    /// `to` of the plan.
    pub to: Value,
    pub audience: CampaignAudience,
    /// Filter of these recipients. `None`: no filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<AudienceFilter>,
    /// Content, in the form that a message stores encrypted.
    pub content: Value,
    pub ttl_s: i32,
    pub urgency: Urgency,
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    pub enveloped: bool,
    /// Whether a click in one browser removes it from the person's others.
    #[serde(default)]
    pub clear_on_click: bool,
}

/// Audience of a campaign, before filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignAudience {
    Topic {
        name: String,
        /// Whether a missing topic is allowed.
        may_be_missing: bool,
    },
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    PerMinute(u32),
    /// Evenly over this many seconds.
    SpreadOver(u32),
}

/// Send rate of one cursor: its share of the campaign's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceShare {
    /// Microseconds between two recipients.
    pub us: i64,
    /// Microseconds before the first recipient, so that not all lanes start at the same moment.
    pub begins_after_us: i64,
}

/// Divides a rate per minute among the lanes of messages, by weight. Together they never exceed the rate, and lanes of one
/// message end together.
pub fn share_of(per_minute: u32, weights: &[i64]) -> Vec<PaceShare> {
    let weight = |weight: &i64| u128::from((*weight).max(1).unsigned_abs());
    let total: u128 = weights.iter().map(weight).sum();
    let share = |(place, of): (usize, &i64)| {
        let us = (60_000_000 * total).div_ceil(weight(of) * u128::from(per_minute.max(1)));
        let us = i64::try_from(us).unwrap_or(i64::MAX / 1_000_000).max(1);
        // A lane takes recipients a second's worth at a time, or one by one.
        PaceShare { us, begins_after_us: us.clamp(1_000_000, 60_000_000) / weights.len() as i64 * place as i64 }
    };
    weights.iter().enumerate().map(share).collect()
}

/// Returns the microseconds between two recipients in a lane that spreads `n` of them over `seconds`.
pub fn spread_over(seconds: u32, n: i64) -> i64 {
    (1_000_000 * i64::from(seconds) / n.max(1)).max(1)
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Share of the audience in the test, in ten-thousandths.
    pub share: u16,
    /// Seconds for which clicks or conversions are counted before the decision.
    pub after_s: i64,
    /// Required probability that the winner is the best variant.
    pub confidence: f64,
    /// Content for the rest of the audience without a winner.
    pub otherwise: Otherwise,
}

bellwire_core::named! {
    /// Content for the rest of an audience without a winner.
    #[cfg_attr(feature = "openapi", schema(as = WithoutWinner))]
    pub enum Otherwise {
        First = "first",
        Stop = "stop",
    }
}
