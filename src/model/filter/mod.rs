//! Whom of its audience a message is for: a boolean [`Expression`] over what is known of a subscription, and
//! [portions](Portion) of the people that are left.
//!
//! Parsing, printing and evaluation are pure. What an expression needs to know of others, who is in a topic and who did what,
//! is looked up by `store` for many candidates at once and handed in as [`Told`].

mod evaluation;
mod expression;
mod lexer;
mod parser;
mod portion;

use serde::{Deserialize, Serialize};

pub(crate) use evaluation::{Candidate, LaneFacts, Told};
pub use expression::Expression;
pub(crate) use expression::{Act, Deed, Needs};
pub use parser::SyntaxError;
pub(crate) use portion::Portion;

/// Whom of its audience a message is for: whoever fits the expression and lies in every portion. As stored in
/// `messages.filter`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Whom it is for; none: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Expression>,
    /// The shares of the people, all of which somebody has to lie in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portions: Vec<Portion>,
}

impl Filter {
    /// What has to be known of a candidate before it can be judged.
    pub(crate) fn needs(&self) -> Needs {
        self.segment.as_ref().map(Expression::needs).unwrap_or_default()
    }

    /// Whether a message is for a candidate.
    pub(crate) fn takes(&self, candidate: &Candidate<'_>, told: &Told) -> bool {
        self.segment.as_ref().is_none_or(|segment| segment.takes(candidate, told))
            && self.portions.iter().all(|portion| portion.holds(candidate.person()))
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
