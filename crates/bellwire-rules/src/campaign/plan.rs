//! What a campaign is to do, checked: what its author wrote, in the form that its messages are made from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schedule::When;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_segment::Filter;

pub const VARIANTS_MAX: usize = 10;
/// All of an audience, in the unit that shares of it are measured in: ten-thousandths.
pub const WHOLE: u16 = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is sent: at least one, and the first where nothing decides.
    pub variants: Vec<Variant>,
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
    /// Whether nothing of it goes out any more.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// One of the things that a campaign may say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    /// How many get it, beside the weights of the others.
    pub weight: u16,
    /// Whether it is sent at each person's own hour, within the 24 hours that begin when it is due.
    #[serde(default)]
    pub at_own_hour: bool,
    pub body: Body,
}

/// A message, but for its id, its time and who of its audience it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Body {
    pub tier: Tier,
    /// `to`, as it was given.
    pub to: Value,
    pub audience: Audience,
    /// Whom of these it is for; none: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What it says, as it is sealed in a message.
    pub content: Value,
    pub ttl_s: i32,
    pub urgency: Urgency,
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    pub enveloped: bool,
}

/// Whom a campaign is for, before filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
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
    /// Its share of the audience, in ten-thousandths.
    pub share: u16,
    /// How long clicks are counted before it is decided, in seconds.
    pub after_s: i64,
    /// How certain the winner must be.
    pub confidence: f64,
    /// What becomes of the rest if nobody wins.
    pub otherwise: Otherwise,
}

bellwire_core::named! {
    /// What becomes of the rest of an audience if no variant wins.
    #[cfg_attr(feature = "openapi", schema(as = WithoutWinner))]
    pub enum Otherwise {
        First = "first",
        Stop = "stop",
    }
}

/// Which campaign is followed up, for those of its recipients who did not react.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The campaign: an id, `cmp_…`.
    pub campaign: String,
    /// What they did not do.
    pub did_not: DidNot,
}

bellwire_core::named! {
    /// What recipients of a campaign did not do who get the one that follows it.
    pub enum DidNot {
        Click = "click",
        Display = "display",
    }
}
