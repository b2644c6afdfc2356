//! Evaluates an expression for a subscription.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;

use super::attributes::{Attributes, Scalar};
use super::expression::{Comparison, Deed, EventCondition, Expression, Field, Literal, Node, SubscriptionField, Test};
use super::lexer;
use super::portion::position_of;
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
    /// Creates the facts of a lane from its push service and VAPID key.
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
    /// First id of its browser.
    pub origin_id: Option<SubscriptionId>,
    /// Lane of the subscription.
    pub lane: &'a LaneFacts,
    /// User id, chosen by the site.
    pub user_id: Option<&'a str>,
    /// Tags of the subscription.
    pub tags: &'a [String],
    /// Attributes: strings, numbers and booleans.
    pub attributes: Attributes<'a>,
    /// Language tag of the browser.
    pub locale: Option<&'a str>,
    /// IANA time zone of the browser.
    pub timezone: Option<&'a str>,
    /// Time of the browser's last contact.
    pub last_seen: Timestamp,
    /// Time of the first registration.
    pub created_at: Option<Timestamp>,
    /// Time of the person's consent.
    pub consent_at: Option<Timestamp>,
    /// Source of the consent.
    pub consent_source: Option<&'a str>,
    /// Values that differed when the message's campaign assigned the subscription. `timezone` has that value already.
    pub assigned: Assigned<'a>,
}

impl Candidate<'_> {
    /// Returns the person's position, in ten-thousandths, for [portions](super::Portion) with a salt. Browsers of one user have
    /// the same position.
    pub fn part(&self, salt: &str) -> u16 {
        position_of(salt, self.user_id, self.origin_id, self.assigned)
    }
}

/// Facts from other tables.
#[derive(Debug)]
pub struct EvaluationFacts {
    /// Current time of the evaluation.
    pub now: Timestamp,
    /// Subscriptions of each topic that was [needed](super::Needs).
    pub topics: HashMap<String, HashSet<SubscriptionId>>,
    /// Subscriptions with each needed event.
    pub deeds: HashMap<Deed, HashSet<SubscriptionId>>,
    /// Subscriptions whose person meets each needed condition on events.
    pub events: HashMap<EventCondition, HashSet<SubscriptionId>>,
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
    /// A text that is compared without regard to case.
    Caseless(&'a str),
    Number(f64),
    Flag(bool),
    /// Length of time in seconds.
    Span(i64),
}

impl Expression {
    /// Whether the expression is true for a subscription.
    pub fn takes(&self, candidate: &Candidate<'_>, told: &EvaluationFacts) -> bool {
        self.0.value(&|test| Some(test.holds(candidate, told))).unwrap_or(false)
    }

    /// Whether the expression is true for the properties of an event, a JSON object. Conditions on anything else are false.
    pub fn takes_properties(&self, properties: &[u8], now: Timestamp) -> bool {
        let properties = Attributes::from_json(properties);
        self.0.value(&|test| Some(test.holds_of(&properties, now))).unwrap_or(false)
    }

    /// Whether the expression is true, or false, for all subscriptions of a lane. `None`: it depends on the subscription.
    pub fn in_lane(&self, lane: &LaneFacts) -> Option<bool> {
        self.0.value(&|test| test.holds_in(lane))
    }
}

impl Node {
    /// Evaluates the node. `of` evaluates a test and may return `None` for unknown.
    fn value(&self, of: &impl Fn(&Test) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Test(test) => of(test),
            Self::Not(node) => node.value(of).map(|value| !value),
            Self::All(nodes) => decided(nodes, of, false),
            Self::Any(nodes) => decided(nodes, of, true),
        }
    }
}

/// Evaluates several nodes, where a single value `deciding` decides the result: `true` for `or`, `false` for `and`.
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
    fn holds_of(&self, properties: &Attributes<'_>, now: Timestamp) -> bool {
        let of = |field: &Field| match field {
            Field::Attribute(name) => properties.get(name).and_then(Actual::of),
            Field::Own(_) => None,
        };
        match self {
            Self::Exists(field) => of(field).is_some(),
            Self::Compare(field, comparison, literal) => {
                let ordering = of(field).and_then(|actual| actual.compare(literal, now));
                ordering.is_some_and(|ordering| comparison.holds(ordering))
            }
            Self::OneOf(field, literals) => of(field)
                .is_some_and(|actual| literals.iter().any(|it| actual.compare(it, now) == Some(Ordering::Equal))),
            Self::Tag(_) | Self::Topic(_) | Self::Did(_) | Self::Event(_) => false,
        }
    }

    fn holds(&self, candidate: &Candidate<'_>, told: &EvaluationFacts) -> bool {
        match self {
            Self::Tag(tag) => candidate.tags.contains(tag),
            Self::Topic(name) => told.topics.get(name).is_some_and(|members| members.contains(&candidate.id)),
            Self::Did(deed) => told.deeds.get(deed).is_some_and(|doers| doers.contains(&candidate.id)),
            Self::Event(event) => told.events.get(event).is_some_and(|doers| doers.contains(&candidate.id)),
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

    /// Whether the test is true for all subscriptions of a lane. `None`: it depends on the subscription.
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
            Self::Attribute(name) => candidate.attributes.get(name).and_then(Actual::of),
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

impl<'a> Actual<'a> {
    fn of(value: &'a Scalar<'_>) -> Option<Self> {
        match value {
            Scalar::Text(text) => Some(Actual::Text(text)),
            Scalar::Number(number) => Some(Actual::Number(*number)),
            Scalar::Flag(flag) => Some(Actual::Flag(*flag)),
            Scalar::Other => None,
        }
    }

    /// Compares a value with a literal. `None`: they have different types, or are not ordered.
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
