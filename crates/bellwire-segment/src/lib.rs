//! Segment language: filters for the audience of a message. The main types are `Expression` (a boolean expression over facts
//! about a subscription), `Portion` (a share of the people), `OwnHour`, `Sunset` and `AudienceFilter`, which combines them.
//! Parsing, printing and evaluation are pure. This crate never reads data: the store reads them for many candidates and passes
//! them in as `EvaluationFacts`.

mod attributes;
mod evaluation;
mod expression;
mod lexer;
mod own_hour;
mod parser;
mod portion;
mod sunset;

use serde::{Deserialize, Serialize};

pub use attributes::Attributes;
pub use evaluation::{Candidate, EvaluationFacts, LaneFacts};
pub use expression::{Act, Deed, EventCondition, Expression, Needs};
pub use lexer::SyntaxError;
pub use own_hour::{OwnHour, SLOTS};
pub use parser::TEXT_MAX;
pub use portion::{PARTS, Portion, part_of, position_of};
pub use sunset::Sunset;

/// Filter of a message's audience. Recipients pass all its parts. Stored in `messages.filter`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudienceFilter {
    /// Expression. `None`: all subscriptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Expression>,
    /// Shares of the people. A recipient is in all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portions: Vec<Portion>,
    /// Own hour of the recipients. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_hour: Option<OwnHour>,
    /// Rule that excludes people who do not click. `None`: no rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sunset: Option<Sunset>,
}

/// Result of a filter for one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The candidate is a recipient.
    Taken,
    /// The segment expression is false.
    NotInSegment,
    /// The person is in another share of the audience, at this position in ten-thousandths.
    NotInPortion(u16),
    /// The person gets the message at another hour.
    AtAnotherHour,
    /// The candidate would be a recipient, but the person does not click.
    Sunset,
}

impl FilterVerdict {
    /// Whether the candidate is a recipient.
    pub fn is_taken(self) -> bool {
        self == Self::Taken
    }
}

impl From<Expression> for AudienceFilter {
    fn from(segment: Expression) -> Self {
        Self { segment: Some(segment), ..Self::default() }
    }
}

impl AudienceFilter {
    /// Returns the facts that a decision needs.
    pub fn needs(&self) -> Needs {
        let mut needs = self.segment.as_ref().map(Expression::needs).unwrap_or_default();
        needs.habits |= self.own_hour.is_some() || self.sunset.is_some();
        needs.profile |= needs.habits || !self.portions.is_empty();
        needs
    }

    /// Decides whether a candidate is a recipient, or returns the reason against it. The sunset rule comes last, because it
    /// counts people who would otherwise be recipients.
    pub fn verdict(&self, candidate: &Candidate<'_>, told: &EvaluationFacts) -> FilterVerdict {
        let habits = told.habits_of(candidate);
        if !self.segment.as_ref().is_none_or(|segment| segment.takes(candidate, told)) {
            FilterVerdict::NotInSegment
        } else if let Some(portion) = self.portions.iter().find(|portion| !portion.holds(candidate.part(&portion.salt)))
        {
            FilterVerdict::NotInPortion(candidate.part(&portion.salt))
        } else if !self
            .own_hour
            .as_ref()
            .is_none_or(|own| own.holds(habits.own_hour_at(own.as_of()), candidate.timezone))
        {
            FilterVerdict::AtAnotherHour
        } else if let (Some(rule), Some(since)) = (&self.sunset, candidate.created_at)
            && rule.leaves_out(habits, told.now - since)
        {
            FilterVerdict::Sunset
        } else {
            FilterVerdict::Taken
        }
    }

    /// Whether any subscription of a lane can match, by the facts of the lane.
    pub fn may_take_any_of(&self, lane: &LaneFacts) -> bool {
        self.segment.as_ref().is_none_or(|segment| segment.in_lane(lane) != Some(false))
            && self.portions.iter().all(|portion| !portion.is_empty())
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/segment/unit/properties.rs"]
mod properties;
