//! Expressions: their parts, their written form, and the facts that they need.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write as _};

use serde::{Serialize, Serializer};

use super::lexer::begins_word;
use bellwire_core::clock::Timestamp;
use bellwire_core::named;

/// Boolean expression over facts about a subscription, in normal form: no `not` of a `not`, no `and` directly in an `and`, no
/// `or` directly in an `or`. Its text parses to the same expression, and is its JSON form.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(pub(super) Node);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
}

/// A single condition on a subscription.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    Tag(String),
    Topic(String),
    Exists(Field),
    Compare(Field, Comparison, Literal),
    OneOf(Field, Vec<Literal>),
    /// Whether the subscription had an event of a message.
    Did(Deed),
    /// Whether the site reported an event about the person.
    Event(EventCondition),
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Attribute(String),
    Own(SubscriptionField),
}

named! {
    /// Fields of a subscription besides its attributes.
    pub(super) enum SubscriptionField {
        Locale = "locale",
        Language = "language",
        Timezone = "timezone",
        Gateway = "gateway",
        Browser = "browser",
        Key = "key",
        User = "user",
        Age = "age",
        LastSeen = "last_seen",
        LastClicked = "last_clicked",
        Unclicked = "unclicked",
        UnclickedFor = "unclicked_for",
        ConsentAt = "consent_at",
        ConsentSource = "consent_source",
    }
}

/// Comparison of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Value in a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(String),
    Number(f64),
    Flag(bool),
    Time(Timestamp),
    /// Seconds relative to now. Negative: in the past.
    Now(i64),
    /// Length of time in seconds.
    Span(i64),
}

/// Event between a subscription and a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deed {
    /// Kind of event.
    pub act: Act,
    /// Id of a message, or a name that refers to several.
    pub of: String,
    /// Maximum age of the event in seconds. `None`: any.
    pub within_s: Option<i64>,
}

/// Condition on the events that a site reported about a person.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCondition {
    /// Name of the events.
    pub name: String,
    /// Minimum number of events, from 1.
    pub at_least: u16,
    /// Maximum age of the events in seconds. `None`: any.
    pub within_s: Option<i64>,
}

named! {
    /// Events between a subscription and a message.
    pub enum Act {
        /// The push service accepted the message.
        Received = "received",
        /// The browser reported the notification as displayed.
        Displayed = "displayed",
        /// The browser reported a click.
        Clicked = "clicked",
    }
}

/// Facts about a candidate that an expression needs, in addition to those that are always read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Tags of the subscription.
    pub tags: bool,
    /// Attributes of the subscription.
    pub attributes: bool,
    /// Topics that the expression tests.
    pub topics: BTreeSet<String>,
    /// Events that the expression tests.
    pub deeds: BTreeSet<Deed>,
    /// Events of people that the expression tests.
    pub events: BTreeSet<EventCondition>,
    /// Engagement of the person.
    pub habits: bool,
    /// Time and source of the person's consent.
    pub consent: bool,
    /// Person, locale and time zone, and the time of the first registration.
    pub profile: bool,
}

impl Expression {
    /// Combines two expressions with `and`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(Node::all(vec![self.0, other.0]))
    }

    /// Negates the expression with `not`.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(self.0.negated())
    }

    /// Whether it compares attributes only, so that it may be evaluated for the properties of an event.
    pub fn is_of_properties(&self) -> bool {
        let mut is_of_properties = true;
        self.0.each_test(&mut |test| is_of_properties &= test.is_of_attribute());
        is_of_properties
    }

    /// Lists the data of a candidate that [`takes`](Self::takes) reads.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.0.each_test(&mut |test| test.add_needs(&mut needs));
        needs
    }
}

impl Node {
    /// Combines nodes with `and`, in normal form.
    pub(super) fn all(nodes: Vec<Self>) -> Self {
        let flatten = |node| match node {
            Self::All(nodes) => nodes,
            node => vec![node],
        };
        Self::one_or(nodes.into_iter().flat_map(flatten).collect(), Self::All)
    }

    pub(super) fn any(nodes: Vec<Self>) -> Self {
        let flatten = |node| match node {
            Self::Any(nodes) => nodes,
            node => vec![node],
        };
        Self::one_or(nodes.into_iter().flat_map(flatten).collect(), Self::Any)
    }

    fn one_or(mut nodes: Vec<Self>, several: fn(Vec<Self>) -> Self) -> Self {
        match nodes.len() {
            1 => nodes.remove(0),
            _ => several(nodes),
        }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Not(node) => *node,
            node => Self::Not(Box::new(node)),
        }
    }

    fn each_test<'a>(&'a self, then: &mut impl FnMut(&'a Test)) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().for_each(|node| node.each_test(then)),
            Self::Not(node) => node.each_test(then),
            Self::Test(test) => then(test),
        }
    }
}

impl Test {
    fn is_of_attribute(&self) -> bool {
        match self {
            Self::Exists(field) | Self::Compare(field, ..) | Self::OneOf(field, _) => {
                matches!(field, Field::Attribute(_))
            }
            Self::Tag(_) | Self::Topic(_) | Self::Did(_) | Self::Event(_) => false,
        }
    }

    fn add_needs(&self, needs: &mut Needs) {
        match self {
            Self::Tag(_) => needs.tags = true,
            Self::Topic(name) => drop(needs.topics.insert(name.clone())),
            Self::Did(deed) => drop(needs.deeds.insert(deed.clone())),
            Self::Event(event) => {
                needs.events.insert(event.clone());
                needs.profile = true;
            }
            Self::Exists(field) | Self::Compare(field, ..) | Self::OneOf(field, _) => {
                needs.attributes |= matches!(field, Field::Attribute(_));
                needs.habits |= matches!(
                    field,
                    Field::Own(
                        SubscriptionField::LastClicked | SubscriptionField::Unclicked | SubscriptionField::UnclickedFor
                    )
                );
                needs.consent |=
                    matches!(field, Field::Own(SubscriptionField::ConsentAt | SubscriptionField::ConsentSource));
                let profile = matches!(
                    field,
                    Field::Own(
                        SubscriptionField::Locale
                            | SubscriptionField::Language
                            | SubscriptionField::Timezone
                            | SubscriptionField::User
                            | SubscriptionField::Age
                    )
                );
                needs.profile |= profile || needs.habits;
            }
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(nodes) => joined(f, nodes, " and ", |f, node| match node {
                Self::Any(_) => write!(f, "({node})"),
                node => node.fmt(f),
            }),
            Self::Any(nodes) => joined(f, nodes, " or ", |f, node| node.fmt(f)),
            Self::Not(node) => match &**node {
                Self::Test(Test::Compare(field, Comparison::Equal, literal)) => write!(f, "{field} != {literal}"),
                Self::Test(Test::OneOf(field, literals)) => {
                    write!(f, "{field} not in (")?;
                    joined(f, literals, ", ", |f, literal| literal.fmt(f))?;
                    f.write_char(')')
                }
                Self::Test(test) => write!(f, "not {test}"),
                node => write!(f, "not ({node})"),
            },
            Self::Test(test) => test.fmt(f),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "tag({})", Quoted(tag)),
            Self::Topic(name) => write!(f, "topic({})", Quoted(name)),
            Self::Exists(field) => write!(f, "exists({field})"),
            Self::Compare(field, comparison, literal) => write!(f, "{field} {} {literal}", comparison.sign()),
            Self::OneOf(field, literals) => {
                write!(f, "{field} in (")?;
                joined(f, literals, ", ", |f, literal| literal.fmt(f))?;
                f.write_char(')')
            }
            Self::Did(Deed { act, of, within_s }) => {
                write!(f, "{}({}", act.name(), Quoted(of))?;
                if let Some(seconds) = within_s {
                    write!(f, ", {}", DisplayDuration(*seconds))?;
                }
                f.write_char(')')
            }
            Self::Event(EventCondition { name, at_least, within_s }) => {
                write!(f, "did({}", Quoted(name))?;
                if *at_least > 1 {
                    write!(f, ", {at_least}")?;
                }
                if let Some(seconds) = within_s {
                    write!(f, ", {}", DisplayDuration(*seconds))?;
                }
                f.write_char(')')
            }
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(own) => f.write_str(own.name()),
            Self::Attribute(name) if is_bare_name(name) => f.write_str(name),
            Self::Attribute(name) => write!(f, "attribute({})", Quoted(name)),
        }
    }
}

impl Comparison {
    fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => Quoted(text).fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Time(at) => f.write_str(&at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)),
            Self::Now(0) => f.write_str("now"),
            Self::Now(seconds) if *seconds < 0 => write!(f, "now - {}", DisplayDuration(-seconds)),
            Self::Now(seconds) => write!(f, "now + {}", DisplayDuration(*seconds)),
            Self::Span(seconds) => DisplayDuration(*seconds).fmt(f),
        }
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}

/// Formats seconds in the largest unit that divides them.
struct DisplayDuration(i64);

impl Display for DisplayDuration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
        let fits = |(seconds, _): &(i64, char)| self.0 != 0 && self.0 % seconds == 0;
        let (seconds, unit) = units.into_iter().find(fits).unwrap_or((1, 's'));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

fn joined<T>(
    f: &mut Formatter<'_>, items: &[T], between: &str, write: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        write(f, item)?;
    }
    Ok(())
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Words that are not names of attributes.
const RESERVED: [&str; 12] =
    ["and", "or", "not", "in", "true", "false", "now", "tag", "topic", "did", "exists", "attribute"];

fn is_bare_name(name: &str) -> bool {
    name.starts_with(begins_word)
        && name.chars().all(|c| begins_word(c) || c.is_alphanumeric() || c == '.')
        && !is_reserved(name)
}

pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || Act::from_name(name).is_some() || SubscriptionField::from_name(name).is_some()
}
