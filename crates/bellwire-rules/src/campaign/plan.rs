//! Checked plan of a campaign, from which its messages are made.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schedule::When;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_segment::AudienceFilter;

pub const VARIANTS_MAX: usize = 10;
/// All of an audience, in the unit that shares of it are measured in: ten-thousandths.
pub const WHOLE: u16 = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Variants, at least one. The first is the default.
    pub variants: Vec<CampaignVariant>,
    pub when: When,
    pub pace: Option<Pace>,
    /// Whether a share of the audience decides what the rest gets.
    pub test: Option<Test>,
    /// The share of the audience that gets nothing, so that it can be compared; in ten-thousandths.
    pub holdout: u16,
    /// Nothing of it goes out from then on.
    pub expires_at: Option<Timestamp>,
    pub follows: Option<Follow>,
}

impl Plan {
    /// Whether it has expired, so that nothing of it is sent.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Variant of a campaign's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CampaignVariant {
    pub name: String,
    /// Weight of its share of the audience, relative to the other variants.
    pub weight: u16,
    /// Whether it is sent at each person's own hour, within the 24 hours that begin when it is due.
    #[serde(default)]
    pub at_own_hour: bool,
    pub body: PlannedMessage,
}

/// A message, but for its id, its time and who of its audience it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedMessage {
    pub tier: Tier,
    /// `to`, as it was given.
    pub to: Value,
    pub audience: CampaignAudience,
    /// Filter of these recipients. `None`: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<AudienceFilter>,
    /// Content, as it is sealed in a message.
    pub content: Value,
    pub ttl_s: i32,
    pub urgency: Urgency,
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    pub enveloped: bool,
}

/// Audience of a campaign, before filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignAudience {
    Topic {
        name: String,
        /// Whether it is no mistake if there is no such topic.
        may_be_missing: bool,
    },
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    PerMinute(u32),
    /// Evenly within so many seconds.
    SpreadOver(u32),
}

/// The share of one lane of one message in the pace of its campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceShare {
    /// Microseconds from one recipient to the next.
    pub us: i64,
    /// Microseconds until the first recipient, so that not all lanes begin in the same moment.
    pub begins_after_us: i64,
}

/// Divides so many recipients a minute among lanes of messages, by weight: together they never exceed it, and lanes of one
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

/// Microseconds from one recipient to the next in a lane that has `n` of them for so many seconds.
pub fn spread_over(seconds: u32, n: i64) -> i64 {
    (1_000_000 * i64::from(seconds) / n.max(1)).max(1)
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Share of the audience in the test, in ten-thousandths.
    pub share: u16,
    /// Time for which clicks are counted before the decision, in seconds.
    pub after_s: i64,
    /// Required probability of the winner.
    pub confidence: f64,
    /// Rule for the rest without a winner.
    pub otherwise: Otherwise,
}

bellwire_core::named! {
    /// Rule for the rest of an audience without a winner.
    #[cfg_attr(feature = "openapi", schema(as = WithoutWinner))]
    pub enum Otherwise {
        First = "first",
        Stop = "stop",
    }
}

/// Campaign that a follow-up refers to, for those of its recipients who did not react.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The campaign: an id, `cmp_…`.
    pub campaign: String,
    /// Reaction that they did not show.
    pub did_not: FollowCondition,
}

bellwire_core::named! {
    /// Missing reaction that makes recipients of a campaign get its follow-up.
    pub enum FollowCondition {
        Click = "click",
        Display = "display",
    }
}
