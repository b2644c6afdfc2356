//! What a campaign is to do, checked: what its author wrote, in the form that its messages are made from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schedule::When;
use crate::model::clock::Timestamp;
use crate::model::delivery::{Tier, Urgency};
use crate::model::filter::Filter;

/// Most variants of a campaign.
pub(crate) const VARIANTS_MAX: usize = 10;
/// All of an audience, in the unit that shares of it are measured in: ten-thousandths.
pub(crate) const WHOLE: u16 = 10_000;

/// A checked plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// What is sent: at least one, and the first where nothing decides.
    pub variants: Vec<Variant>,
    /// When.
    pub when: When,
    /// How fast.
    pub pace: Option<Pace>,
    /// Whether a share of the audience decides what the rest gets.
    pub test: Option<Test>,
    /// The share of the audience that gets nothing, so that it can be compared; in ten-thousandths.
    pub holdout: u16,
    /// Nothing of it goes out from then on.
    pub expires_at: Option<Timestamp>,
    /// The campaign that it follows up.
    pub follows: Option<Follow>,
}

impl Plan {
    /// Whether nothing of it goes out any more.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// One of the things that a campaign may say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variant {
    /// What it is called.
    pub name: String,
    /// How many get it, beside the weights of the others.
    pub weight: u16,
    /// Whether it is sent at each person's own hour, within the 24 hours that begin when it is due.
    #[serde(default)]
    pub at_own_hour: bool,
    /// What is sent.
    pub body: Body,
}

/// A message, but for its id, its time and who of its audience it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub tier: Tier,
    /// `to`, as it was given.
    pub to: Value,
    /// Whom that is.
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
pub(crate) enum Audience {
    /// Everyone in a topic.
    Topic {
        /// Its name.
        name: String,
        /// Whether it is no mistake if there is no such topic.
        may_be_missing: bool,
    },
    /// Everyone.
    All,
}

/// How fast a message of a campaign goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// So many recipients a minute.
    PerMinute(u32),
    /// Evenly within so many seconds.
    SpreadOver(u32),
}

impl Pace {
    /// Microseconds from one recipient to the next in a lane that has `n` of `total` recipients: lanes that are paced so end at
    /// the same time.
    pub(crate) fn of_lane(self, n: i64, total: i64) -> i64 {
        let (n, total) = (n.max(1), total.max(1));
        let all_us = match self {
            Self::PerMinute(rate) => 60_000_000 * total / i64::from(rate.max(1)),
            Self::SpreadOver(seconds) => 1_000_000 * i64::from(seconds),
        };
        (all_us / n).max(1)
    }
}

/// A test of variants on a share of the audience.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Test {
    /// Its share of the audience, in ten-thousandths.
    pub share: u16,
    /// How long clicks are counted before it is decided, in seconds.
    pub after_s: i64,
    /// How certain the winner must be.
    pub confidence: f64,
    /// What becomes of the rest if nobody wins.
    pub otherwise: Otherwise,
}

crate::model::named! {
    /// What becomes of the rest of an audience if no variant wins.
    #[schema(as = WithoutWinner)]
    pub(crate) enum Otherwise {
        /// It gets the first variant.
        First = "first",
        /// It gets nothing.
        Stop = "stop",
    }
}

/// Which campaign is followed up, for those of its recipients who did not react.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Follow {
    /// The campaign: an id, `cmp_…`.
    pub campaign: String,
    /// What they did not do.
    pub did_not: DidNot,
}

crate::model::named! {
    /// What recipients of a campaign did not do who get the one that follows it.
    pub(crate) enum DidNot {
        /// Click it, or one of its buttons.
        Click = "click",
        /// Have it displayed, as far as their browsers tell.
        Display = "display",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_one_message_end_together_at_the_pace_that_was_asked_for() {
        let pace = Pace::PerMinute(600);
        for (n, total) in [(600, 600), (300, 600), (1, 600)] {
            let whole_us = pace.of_lane(n, total) * n;
            assert!((whole_us - 60_000_000).abs() <= n, "{n} of {total} take {whole_us} µs");
        }
        assert_eq!(Pace::SpreadOver(3_600).of_lane(1_000, 5_000) * 1_000, 3_600_000_000);
        assert_eq!(pace.of_lane(0, 0), 100_000, "nobody is known of yet");
        assert_eq!(Pace::SpreadOver(1).of_lane(i64::MAX, i64::MAX), 1);
    }
}
