//! Whether an expression fits a subscription.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;

use super::attributes::{Attributes, Scalar};
use super::expression::{Comparison, Deed, Expression, Field, Literal, Node, SubscriptionField, Test};
use super::lexer;
use super::portion::part_of;
use bellwire_core::assignment::Assigned;
use bellwire_core::clock::Timestamp;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;

/// Facts that all subscriptions of a lane share.
#[derive(Debug)]
pub struct LaneFacts {
    gateway: Gateway,
    key: String,
}

impl LaneFacts {
    /// Of the lane to a push service by a key.
    pub fn new(gateway: Gateway, key: VapidKeyId) -> Self {
        Self { gateway, key: key.to_string() }
    }

    /// Returns the value of a field for all subscriptions of the lane. `None`: the lane does not determine it.
    fn value(&self, own: SubscriptionField) -> Option<&str> {
        match own {
            SubscriptionField::Gateway => Some(self.gateway.name()),
            SubscriptionField::Browser => Some(self.gateway.browser()),
            SubscriptionField::Key => Some(&self.key),
            _ => None,
        }
    }
}

/// Facts about a subscription. Facts that an expression does not [need](super::Needs) may be empty.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Id of the subscription.
    pub id: SubscriptionId,
    /// The first id of its browser.
    pub origin_id: Option<SubscriptionId>,
    /// Lane of the subscription.
    pub lane: &'a LaneFacts,
    /// The site's name for its person.
    pub user_id: Option<&'a str>,
    /// Tags of the subscription.
    pub tags: &'a [String],
    /// Attributes: strings, numbers and booleans.
    pub attributes: Attributes<'a>,
    /// Language tag of the browser.
    pub locale: Option<&'a str>,
    /// An IANA time zone.
    pub timezone: Option<&'a str>,
    /// Time of the browser's last contact.
    pub last_seen: Timestamp,
    /// Time of the first registration.
    pub created_at: Option<Timestamp>,
    /// Time of the person's consent.
    pub consent_at: Option<Timestamp>,
    /// Place of the consent.
    pub consent_source: Option<&'a str>,
    /// Values at the time when the message's campaign assigned it, where they differ. Its time zone is already that one.
    pub assigned: Assigned<'a>,
}

impl Candidate<'_> {
    /// The part of a [portion](super::Portion) of that salt in which its person lies: browsers of one user fall together.
    pub fn part(&self, salt: &str) -> u16 {
        let browser = self.origin_id.as_ref().map(|id| id.0.as_bytes().as_slice()).unwrap_or_default();
        match self.assigned.user {
            None => part_of(salt, self.user_id.map_or(browser, str::as_bytes)),
            Some(None) => part_of(salt, browser),
            Some(Some(user)) => user.parts.get(salt).copied().unwrap_or_else(|| part_of(salt, user.person.as_bytes())),
        }
    }
}

/// Facts from other tables.
#[derive(Debug)]
pub struct EvaluationFacts {
    /// Current time of the evaluation.
    pub now: Timestamp,
    /// Members of each topic that was [needed](super::Needs).
    pub topics: HashMap<String, HashSet<SubscriptionId>>,
    /// Subscriptions with each needed event.
    pub deeds: HashMap<Deed, HashSet<SubscriptionId>>,
    /// Engagement of the persons of these subscriptions, if needed. Persons without data are absent.
    pub habits: HashMap<SubscriptionId, Habits>,
}

impl EvaluationFacts {
    /// Returns the engagement of a subscription's person.
    pub(super) fn habits_of(&self, candidate: &Candidate<'_>) -> &Habits {
        static NONE: Habits = Habits::NONE;
        self.habits.get(&candidate.id).unwrap_or(&NONE)
    }
}

enum Actual<'a> {
    Text(&'a str),
    /// A text in which the case of letters means nothing.
    Caseless(&'a str),
    Number(f64),
    Flag(bool),
    /// Length of time in seconds.
    Span(i64),
}

impl Expression {
    /// Whether it fits a subscription.
    pub fn takes(&self, candidate: &Candidate<'_>, told: &EvaluationFacts) -> bool {
        self.0.value(&|test| Some(test.holds(candidate, told))).unwrap_or(false)
    }

    /// Whether it matches all of a lane, or none. `None`: it depends on the subscription.
    pub fn in_lane(&self, lane: &LaneFacts) -> Option<bool> {
        self.0.value(&|test| test.holds_in(lane))
    }
}

impl Node {
    /// Returns its value. The value of a test may be unknown.
    fn value(&self, of: &impl Fn(&Test) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Test(test) => of(test),
            Self::Not(node) => node.value(of).map(|value| !value),
            Self::All(nodes) => decided(nodes, of, false),
            Self::Any(nodes) => decided(nodes, of, true),
        }
    }
}

/// The value of several, any one of which decides if its own is `deciding`.
fn decided(nodes: &[Node], of: &impl Fn(&Test) -> Option<bool>, deciding: bool) -> Option<bool> {
    let mut value = Some(!deciding);
    for node in nodes {
        match node.value(of) {
            Some(found) if found == deciding => return Some(deciding),
            Some(_) => {}
            None => value = None,
        }
    }
    value
}

impl Test {
    fn holds(&self, candidate: &Candidate<'_>, told: &EvaluationFacts) -> bool {
        match self {
            Self::Tag(tag) => candidate.tags.contains(tag),
            Self::Topic(name) => told.topics.get(name).is_some_and(|members| members.contains(&candidate.id)),
            Self::Did(deed) => told.deeds.get(deed).is_some_and(|doers| doers.contains(&candidate.id)),
            Self::Exists(field) => field.of(candidate, told).is_some(),
            Self::Compare(field, comparison, literal) => field
                .of(candidate, told)
                .and_then(|actual| actual.compare(literal, told.now))
                .is_some_and(|ordering| comparison.holds(ordering)),
            Self::OneOf(field, literals) => field.of(candidate, told).is_some_and(|actual| {
                literals.iter().any(|literal| actual.compare(literal, told.now) == Some(Ordering::Equal))
            }),
        }
    }

    /// Whether it holds for everybody in a lane, if the lane decides.
    fn holds_in(&self, lane: &LaneFacts) -> Option<bool> {
        let is = |field: &Field, literal: &Literal| match (field, literal) {
            (Field::Own(own), Literal::Text(text)) => lane.value(*own).map(|actual| actual == text),
            _ => None,
        };
        match self {
            Self::Compare(field, Comparison::Equal, literal) => is(field, literal),
            Self::OneOf(field, literals) => {
                literals.iter().map(|literal| is(field, literal)).reduce(|one, other| Some(one? || other?)).flatten()
            }
            _ => None,
        }
    }
}

impl Field {
    fn of<'c>(&self, candidate: &'c Candidate<'_>, told: &EvaluationFacts) -> Option<Actual<'c>> {
        let since = |at: Timestamp| Some(Actual::Span((told.now - at).num_seconds()));
        match self {
            Self::Attribute(name) => match candidate.attributes.get(name)? {
                Scalar::Text(text) => Some(Actual::Text(text)),
                Scalar::Number(number) => Some(Actual::Number(*number)),
                Scalar::Flag(flag) => Some(Actual::Flag(*flag)),
                Scalar::Other => None,
            },
            Self::Own(SubscriptionField::Locale) => candidate.locale.map(Actual::Caseless),
            Self::Own(SubscriptionField::Language) => {
                let language = candidate.locale?.split(['-', '_']).next()?;
                Some(Actual::Caseless(language))
            }
            Self::Own(SubscriptionField::Timezone) => candidate.timezone.map(Actual::Text),
            Self::Own(SubscriptionField::User) => candidate.user_id.map(Actual::Text),
            Self::Own(own @ (SubscriptionField::Gateway | SubscriptionField::Browser | SubscriptionField::Key)) => {
                candidate.lane.value(*own).map(Actual::Text)
            }
            Self::Own(SubscriptionField::Age) => since(candidate.created_at?),
            Self::Own(SubscriptionField::LastSeen) => since(candidate.last_seen),
            Self::Own(SubscriptionField::ConsentAt) => since(candidate.consent_at?),
            Self::Own(SubscriptionField::ConsentSource) => candidate.consent_source.map(Actual::Text),
            Self::Own(SubscriptionField::LastClicked) => since(told.habits_of(candidate).clicked_at?),
            Self::Own(SubscriptionField::Unclicked) => Some(Actual::Number(told.habits_of(candidate).unclicked.into())),
            Self::Own(SubscriptionField::UnclickedFor) => {
                Some(Actual::Span(told.habits_of(candidate).unclicked_for().num_seconds()))
            }
        }
    }
}

impl Actual<'_> {
    /// Compares a value with a literal. `None`: they are of different kinds, or not ordered.
    fn compare(&self, literal: &Literal, now: Timestamp) -> Option<Ordering> {
        match (self, literal) {
            (Self::Text(actual), Literal::Text(text)) => Some((*actual).cmp(text.as_str())),
            (Self::Caseless(actual), Literal::Text(text)) => {
                actual.eq_ignore_ascii_case(text).then_some(Ordering::Equal)
            }
            (Self::Text(actual), Literal::Time(at)) => Some(lexer::time(actual)?.cmp(at)),
            (Self::Text(actual), Literal::Now(seconds)) => {
                Some(lexer::time(actual)?.cmp(&(now + TimeDelta::seconds(*seconds))))
            }
            (Self::Number(actual), Literal::Number(number)) => actual.partial_cmp(number),
            (Self::Flag(actual), Literal::Flag(flag)) => Some(actual.cmp(flag)),
            (Self::Span(actual), Literal::Span(seconds)) => Some(actual.cmp(seconds)),
            _ => None,
        }
    }
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}
