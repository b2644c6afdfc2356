//! Whom of its audience a message is for: a boolean [`Expression`] over what is known of a subscription, [portions](Portion) of
//! the people that are left, those with their [own hour](OwnHour) then, and without those whom a [sunset rule](Sunset) leaves out.
//!
//! Parsing, printing and evaluation are pure. What an expression needs to know of others, who is in a topic, who did what and what people's habits are,
//! is looked up by `store` for many candidates at once and handed in as [`Told`].

mod attributes;
mod evaluation;
mod expression;
mod lexer;
mod own_hour;
mod parser;
mod portion;
mod sunset;

use serde::{Deserialize, Serialize};

pub(crate) use attributes::Attributes;
pub(crate) use evaluation::{Candidate, LaneFacts, Told};
pub use expression::Expression;
pub(crate) use expression::{Act, Deed, Needs};
pub(crate) use own_hour::{OwnHour, SLOTS};
pub use parser::SyntaxError;
pub(crate) use portion::Portion;
pub(crate) use sunset::Sunset;

/// Whom of its audience a message is for: whoever passes all of this. As stored in `messages.filter`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Whom it is for; none: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Expression>,
    /// The shares of the people, all of which somebody has to lie in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portions: Vec<Portion>,
    /// At which hour it is sent to whoever clicks then; none: it makes no difference when they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_hour: Option<OwnHour>,
    /// Who is left out since they do not click; none: nobody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sunset: Option<Sunset>,
}

/// What a filter says of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The message is for them.
    Taken,
    /// They do not fit the expression.
    NotInSegment,
    /// They lie in another portion.
    NotInPortion,
    /// Their own hour is another one.
    AtAnotherHour,
    /// It would be for them, but they do not click.
    Sunset,
}

impl Verdict {
    /// Whether the message is for them.
    pub(crate) fn is_taken(self) -> bool {
        self == Self::Taken
    }
}

impl From<Expression> for Filter {
    fn from(segment: Expression) -> Self {
        Self { segment: Some(segment), ..Self::default() }
    }
}

impl Filter {
    /// What has to be known of a candidate before it can be judged.
    pub(crate) fn needs(&self) -> Needs {
        let mut needs = self.segment.as_ref().map(Expression::needs).unwrap_or_default();
        needs.habits |= self.own_hour.is_some() || self.sunset.is_some();
        needs.profile |= needs.habits || !self.portions.is_empty();
        needs
    }

    /// Whether a message is for a candidate, or what speaks against it. That they do not click comes last: whoever is left out for
    /// that would have got it.
    pub(crate) fn verdict(&self, candidate: &Candidate<'_>, told: &Told) -> Verdict {
        let habits = told.habits_of(candidate);
        if !self.segment.as_ref().is_none_or(|segment| segment.takes(candidate, told)) {
            Verdict::NotInSegment
        } else if !self.portions.iter().all(|portion| portion.holds(candidate.person())) {
            Verdict::NotInPortion
        } else if !self
            .own_hour
            .as_ref()
            .is_none_or(|own| own.holds(habits.own_hour_at(own.as_of()), candidate.timezone))
        {
            Verdict::AtAnotherHour
        } else if let (Some(rule), Some(since)) = (&self.sunset, candidate.created_at)
            && rule.leaves_out(habits, told.now - since)
        {
            Verdict::Sunset
        } else {
            Verdict::Taken
        }
    }

    /// Whether anybody in a lane may be taken, by what holds for the whole of it.
    pub(crate) fn may_take_any_of(&self, lane: &LaneFacts) -> bool {
        self.segment.as_ref().is_none_or(|segment| segment.in_lane(lane) != Some(false))
            && self.portions.iter().all(|portion| !portion.is_empty())
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
