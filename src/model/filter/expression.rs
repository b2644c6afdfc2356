//! What an expression consists of, how it is written down, and what it needs to know.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::parser;
use crate::model::clock::Timestamp;

/// A boolean expression over what is known of a subscription, in its normal form: no `not` of a `not`, no `and` right within
/// an `and`, no `or` right within an `or`. Prints as text that parses to the same again, and goes by it as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(pub(super) Node);

/// A part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Every one of at least two.
    All(Vec<Node>),
    /// Any one of at least two.
    Any(Vec<Node>),
    /// What it is not.
    Not(Box<Node>),
    /// A single question.
    Test(Test),
}

/// A single question about a subscription.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// Whether it carries this tag.
    Tag(String),
    /// Whether it is in the topic of this name.
    Topic(String),
    /// Whether it has a value there at all.
    Exists(Field),
    /// How its value compares.
    Compare(Field, Comparison, Literal),
    /// Whether its value is one of these.
    OneOf(Field, Vec<Literal>),
    /// Whether it was part of what happened to a message.
    Did(Deed),
}

/// Where a value is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    /// The attribute of this name.
    Attribute(String),
    /// One of the names that are ours.
    Own(Own),
}

/// What a subscription has besides attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Locale,
    Language,
    Timezone,
    Gateway,
    Browser,
    Key,
    User,
    Age,
    LastSeen,
    LastClicked,
    Unclicked,
    UnclickedFor,
    ConsentAt,
    ConsentSource,
}

impl Own {
    const NAMES: [(&'static str, Self); 14] = [
        ("locale", Self::Locale),
        ("language", Self::Language),
        ("timezone", Self::Timezone),
        ("gateway", Self::Gateway),
        ("browser", Self::Browser),
        ("key", Self::Key),
        ("user", Self::User),
        ("age", Self::Age),
        ("last_seen", Self::LastSeen),
        ("last_clicked", Self::LastClicked),
        ("unclicked", Self::Unclicked),
        ("unclicked_for", Self::UnclickedFor),
        ("consent_at", Self::ConsentAt),
        ("consent_source", Self::ConsentSource),
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find_map(|(known, own)| (known == name).then_some(own))
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.into_iter().find_map(|(name, own)| (own == self).then_some(name)).expect("each has a name")
    }
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a value is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(String),
    /// Finite.
    Number(f64),
    Flag(bool),
    /// A point in time.
    Time(Timestamp),
    /// So many seconds after now; negative: before.
    Now(i64),
    /// So many seconds.
    Span(i64),
}

/// Something that happened between a subscription and a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Deed {
    /// What happened.
    pub act: Act,
    /// Of what: a message's id, or a name that stands for messages.
    pub of: String,
    /// Not longer ago than so many seconds.
    pub within_s: Option<i64>,
}

/// What can happen between a subscription and a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Act {
    /// Its push service took it.
    Received,
    /// Its browser showed it.
    Displayed,
    /// It was clicked.
    Clicked,
}

impl Act {
    const NAMES: [(&'static str, Self); 3] =
        [("received", Self::Received), ("displayed", Self::Displayed), ("clicked", Self::Clicked)];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find_map(|(known, act)| (known == name).then_some(act))
    }

    fn name(self) -> &'static str {
        Self::NAMES.into_iter().find_map(|(name, act)| (act == self).then_some(name)).expect("each has a name")
    }
}

/// What has to be known of a candidate before an expression can be evaluated, besides what is always read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Its tags.
    pub tags: bool,
    /// Its attributes.
    pub attributes: bool,
    /// Topics that it may be in, each once.
    pub topics: BTreeSet<String>,
    /// What it may have done, each once.
    pub deeds: BTreeSet<Deed>,
    /// What its person does with what they are shown.
    pub habits: bool,
    /// When and where its person agreed.
    pub consent: bool,
    /// Who its person is, their locale and time zone, and when it was first registered.
    pub profile: bool,
}

impl Expression {
    /// Parses an expression of at most 4,096 octets, 200 conditions, 8 different deeds and 32 levels.
    pub fn parse(text: &str) -> Result<Self, super::SyntaxError> {
        parser::parse(text, &parser::GIVEN)
    }

    /// Those that fit both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(Node::all(vec![self.0, other.0]))
    }

    /// Those that it does not fit.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(self.0.negated())
    }

    pub(crate) fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.0.each_test(&mut |test| test.add_needs(&mut needs));
        needs
    }
}

impl Node {
    /// Every one of these, in normal form.
    pub(super) fn all(nodes: Vec<Self>) -> Self {
        let flatten = |node| match node {
            Self::All(nodes) => nodes,
            node => vec![node],
        };
        Self::one_or(nodes.into_iter().flat_map(flatten).collect(), Self::All)
    }

    /// Any one of these, in normal form.
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
    fn add_needs(&self, needs: &mut Needs) {
        match self {
            Self::Tag(_) => needs.tags = true,
            Self::Topic(name) => drop(needs.topics.insert(name.clone())),
            Self::Did(deed) => drop(needs.deeds.insert(deed.clone())),
            Self::Exists(field) | Self::Compare(field, ..) | Self::OneOf(field, _) => {
                needs.attributes |= matches!(field, Field::Attribute(_));
                needs.habits |= matches!(field, Field::Own(Own::LastClicked | Own::Unclicked | Own::UnclickedFor));
                needs.consent |= matches!(field, Field::Own(Own::ConsentAt | Own::ConsentSource));
                let profile =
                    matches!(field, Field::Own(Own::Locale | Own::Language | Own::Timezone | Own::User | Own::Age));
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
                    write!(f, ", {}", Span(*seconds))?;
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
            Self::Attribute(name) if parser::is_bare_name(name) => f.write_str(name),
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
            Self::Now(seconds) if *seconds < 0 => write!(f, "now - {}", Span(-seconds)),
            Self::Now(seconds) => write!(f, "now + {}", Span(*seconds)),
            Self::Span(seconds) => Span(*seconds).fmt(f),
        }
    }
}

/// A text between double quotes.
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

/// Seconds in the largest unit that divides them.
struct Span(i64);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
        let fits = |(seconds, _): &(i64, char)| self.0 != 0 && self.0 % seconds == 0;
        let (seconds, unit) = units.into_iter().find(fits).unwrap_or((1, 's'));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

fn joined<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    between: &str,
    write: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
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

/// Reads what was stored, which may be put together of several that somebody gave.
impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parser::parse(&text, &parser::STORED).map_err(serde::de::Error::custom)
    }
}
