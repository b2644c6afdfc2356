//! The grammar of expressions.
//!
//! ```text
//! any        = all { "or" all }
//! all        = one { "and" one }
//! one        = "not" one | "(" any ")" | test
//! test       = "tag" "(" text ")" | "topic" "(" text ")" | "exists" "(" field ")"
//!            | ( "received" | "displayed" | "clicked" ) "(" text [ "," span ] ")"
//!            | "did" "(" text [ "," number ] [ "," span ] ")"
//!            | field comparison value | field [ "not" ] "in" "(" value { "," value } ")"
//! field      = name | "attribute" "(" text ")"
//! comparison = "=" | "!=" | "<" | "<=" | ">" | ">="
//! value      = text | [ "-" ] number | "true" | "false" | time | span | "now" [ ( "+" | "-" ) span ]
//! ```
//!
//! Nothing that comes in can loop, overflow the stack or allocate without bound: see [`Bounds`].

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};

use super::expression::{
    Act, Comparison, Deed, EventCondition, Expression, Field, Literal, Node, SubscriptionField, Test, is_reserved,
};
use super::lexer::{Lexer, SyntaxError, Token};
use bellwire_core::id::VapidKeyId;
use bellwire_core::lane::Gateway;
use bellwire_core::user_event::{EVENT_NAME_RULE, is_event_name};

/// Maximum length of an expression in bytes, as written and in normal form.
pub const TEXT_MAX: usize = 4_096;
const LIST_MAX: usize = 500;
/// Maximum characters of an attribute's name and a tag.
const NAME_MAX: usize = 64;
/// Maximum number of events that a condition counts.
const TIMES_MAX: u16 = 1_000;
/// Maximum characters of a quoted text.
const LITERAL_MAX: usize = 2_048;

/// Maximum size of an expression.
struct Bounds {
    /// Maximum bytes of the text.
    octets: usize,
    depth: usize,
    tests: usize,
    /// Maximum number of different events of messages, and of people. Each needs a lookup for every candidate.
    deeds: usize,
}

/// Bounds of expressions in requests.
const GIVEN: Bounds = Bounds { octets: TEXT_MAX, depth: 32, tests: 200, deeds: 8 };
/// Bounds of stored expressions: combinations, and expressions accepted under earlier bounds.
const STORED: Bounds = Bounds { octets: 16 * TEXT_MAX, depth: 64, tests: 1_000, deeds: 1_000 };

impl Expression {
    /// Parses an expression of at most 4,096 bytes, 200 conditions, 8 different events and 32 levels of nesting.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        parse(text, &GIVEN)
    }
}

/// Reads a stored expression, which may be composed of several expressions from requests.
impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text, &STORED).map_err(serde::de::Error::custom)
    }
}

fn parse(text: &str, bounds: &Bounds) -> Result<Expression, SyntaxError> {
    let mut lexer = Lexer { text, at: 0 };
    if text.len() > bounds.octets {
        return Err(lexer.error(0, format!("it is longer than {} octets", bounds.octets)));
    }
    let begin = lexer.skip();
    let token = lexer.next()?;
    let mut parser =
        Parser { lexer, token, begin, depth: 0, tests: 0, deeds: BTreeSet::new(), events: BTreeSet::new(), bounds };
    let node = parser.any()?;
    if parser.token != Token::End {
        return Err(parser.unexpected("`and`, `or` or the end"));
    }
    let expression = Expression(node);
    match expression.to_string().len() > bounds.octets {
        true => Err(parser.lexer.error(0, format!("it is longer than {} octets once written out", bounds.octets))),
        false => Ok(expression),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// Offset of the current token.
    begin: usize,
    depth: usize,
    tests: usize,
    deeds: BTreeSet<Deed>,
    events: BTreeSet<EventCondition>,
    bounds: &'a Bounds,
}

type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    fn any(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.all()?];
        while self.takes_word("or")? {
            nodes.push(self.all()?);
        }
        Ok(Node::any(nodes))
    }

    fn all(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.one()?];
        while self.takes_word("and")? {
            nodes.push(self.one()?);
        }
        Ok(Node::all(nodes))
    }

    /// Parses one operand. Counts the nesting here, because every recursion passes this function.
    fn one(&mut self) -> Parsed<Node> {
        if self.depth == self.bounds.depth {
            return Err(self.error(format!("it is nested deeper than {} levels", self.bounds.depth)));
        }
        self.depth += 1;
        let node = if self.takes_word("not")? {
            self.one()?.negated()
        } else if self.takes_sign("(")? {
            let node = self.any()?;
            self.expect(")", "`and`, `or` or `)`")?;
            node
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn test(&mut self) -> Parsed<Node> {
        if self.tests == self.bounds.tests {
            return Err(self.error(format!("it holds more than {} conditions", self.bounds.tests)));
        }
        self.tests += 1;
        let Token::Word(word) = self.token else { return Err(self.unexpected("a condition, `not` or `(`")) };
        let test = match word {
            "tag" => Test::Tag(self.only_argument("a tag", NAME_MAX)?),
            "topic" => Test::Topic(self.only_argument("a topic's name", 128)?),
            "did" => self.event()?,
            "exists" => self.exists()?,
            word => match Act::from_name(word) {
                Some(act) => self.deed(act)?,
                None => return self.comparison(),
            },
        };
        Ok(Node::Test(test))
    }

    /// Parses the single text in parentheses after a word.
    fn only_argument(&mut self, wanted: &str, max_chars: usize) -> Parsed<String> {
        self.advance()?;
        self.expect("(", "`(`")?;
        let text = self.text(wanted, max_chars)?;
        self.expect(")", "`)`")?;
        Ok(text)
    }

    fn exists(&mut self) -> Parsed<Test> {
        self.advance()?;
        self.expect("(", "`(`")?;
        let begin = self.begin;
        let field = self.field()?;
        if let Field::Own(own) = field
            && own.is_always_there()
        {
            let what = format!("every subscription has `{}`", own.name());
            return Err(self.lexer.error(begin, what));
        }
        self.expect(")", "`)`")?;
        Ok(Test::Exists(field))
    }

    fn deed(&mut self, act: Act) -> Parsed<Test> {
        let begin = self.begin;
        self.advance()?;
        self.expect("(", "`(`")?;
        let of = self.text("a message's id", 128)?;
        let within_s = match self.takes_sign(",")? {
            true => Some(self.span()?),
            false => None,
        };
        self.expect(")", if within_s.is_some() { "`)`" } else { "`,` or `)`" })?;
        let deed = Deed { act, of, within_s };
        self.deeds.insert(deed.clone());
        if self.deeds.len() > self.bounds.deeds {
            let what = format!("it asks for more than {} different engagement conditions", self.bounds.deeds);
            return Err(self.lexer.error(begin, what));
        }
        Ok(Test::Did(deed))
    }

    fn event(&mut self) -> Parsed<Test> {
        let begin = self.begin;
        self.advance()?;
        self.expect("(", "`(`")?;
        let named_at = self.begin;
        let name = self.text("an event's name", NAME_MAX)?;
        if !is_event_name(&name) {
            return Err(self.lexer.error(named_at, format!("an event's name {EVENT_NAME_RULE}")));
        }
        let (mut at_least, mut within_s) = (1, None);
        if self.takes_sign(",")? {
            if let Token::Number(number) = self.token {
                at_least = times(number).ok_or_else(|| self.error(format!("it must be 1 to {TIMES_MAX} times")))?;
                self.advance()?;
                if self.takes_sign(",")? {
                    within_s = Some(self.span()?);
                }
            } else {
                within_s = Some(self.span()?);
            }
        }
        self.expect(")", if within_s.is_some() { "`)`" } else { "`,` or `)`" })?;
        let event = EventCondition { name, at_least, within_s };
        self.events.insert(event.clone());
        if self.events.len() > self.bounds.deeds {
            let what = format!("it asks for more than {} different events", self.bounds.deeds);
            return Err(self.lexer.error(begin, what));
        }
        Ok(Test::Event(event))
    }

    fn comparison(&mut self) -> Parsed<Node> {
        let field = self.field()?;
        let is_negated = self.takes_word("not")?;
        if self.takes_word("in")? {
            let node = Node::Test(Test::OneOf(field.clone(), self.list(&field)?));
            return Ok(if is_negated { node.negated() } else { node });
        }
        if is_negated {
            return Err(self.unexpected("`in`"));
        }
        let (begin, is_ordered) = (self.begin, field.is_ordered());
        let Token::Sign(sign) = self.token else { return Err(self.unexpected(field.operators())) };
        let comparison = match sign {
            "=" | "!=" => Comparison::Equal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Err(self.unexpected(field.operators())),
        };
        if is_ordered.is_some_and(|is_ordered| is_ordered == (comparison == Comparison::Equal)) {
            return Err(self.unexpected(field.operators()));
        }
        self.advance()?;
        let literal = self.value(&field)?;
        if comparison != Comparison::Equal && matches!(literal, Literal::Flag(_)) {
            return Err(self.lexer.error(begin, "true and false are compared by `=` or `!=`".into()));
        }
        let node = Node::Test(Test::Compare(field, comparison, literal));
        Ok(if sign == "!=" { node.negated() } else { node })
    }

    fn field(&mut self) -> Parsed<Field> {
        let Token::Word(word) = self.token else { return Err(self.unexpected("a name")) };
        if word == "attribute" {
            return self.only_argument("an attribute's name", NAME_MAX).map(Field::Attribute);
        }
        if let Some(own) = SubscriptionField::from_name(word) {
            self.advance()?;
            return Ok(Field::Own(own));
        }
        if is_reserved(word) {
            return Err(self.unexpected("a condition, `not` or `(`"));
        }
        if word.chars().count() > NAME_MAX {
            return Err(self.error(format!("no attribute's name is longer than {NAME_MAX} characters")));
        }
        self.advance()?;
        Ok(Field::Attribute(word.to_owned()))
    }

    fn list(&mut self, field: &Field) -> Parsed<Vec<Literal>> {
        if field.is_ordered() == Some(true) {
            return Err(self.error(format!("`{field}` is compared by `<`, `<=`, `>` or `>=`")));
        }
        self.expect("(", "`(`")?;
        let mut literals = Vec::new();
        loop {
            if literals.len() == LIST_MAX {
                return Err(self.error(format!("a list holds more than {LIST_MAX} values")));
            }
            literals.push(self.value(field)?);
            if !self.takes_sign(",")? {
                break;
            }
        }
        self.expect(")", "`,` or `)`")?;
        Ok(literals)
    }

    fn value(&mut self, field: &Field) -> Parsed<Literal> {
        let begin = self.begin;
        match field {
            Field::Attribute(_) => self.any_value(),
            Field::Own(SubscriptionField::Unclicked) => self.number().map(Literal::Number),
            Field::Own(own) if own.is_ordered() => self.span().map(Literal::Span),
            Field::Own(own) => {
                let text = self.text("a text", LITERAL_MAX)?;
                own.checked(text).map(Literal::Text).map_err(|what| self.lexer.error(begin, what))
            }
        }
    }

    fn any_value(&mut self) -> Parsed<Literal> {
        const WANTED: &str = "a text between quotes, a number, true, false, or a time such as 2026-11-01 or now - 30d";
        let literal = match &self.token {
            Token::Text(_) => return self.text("a text", LITERAL_MAX).map(Literal::Text),
            Token::Word("now") => return self.now(),
            Token::Sign("-") => {
                self.advance()?;
                let Token::Number(number) = self.token else { return Err(self.unexpected("a number")) };
                Literal::Number(if number == 0.0 { 0.0 } else { -number })
            }
            Token::Number(number) => Literal::Number(*number),
            Token::Word("true") => Literal::Flag(true),
            Token::Word("false") => Literal::Flag(false),
            Token::Time(at) => Literal::Time(*at),
            Token::Span(_) => {
                return Err(
                    self.error("an attribute is compared with a time, such as now - 30d, not with a span".into())
                );
            }
            _ => return Err(self.unexpected(WANTED)),
        };
        self.advance()?;
        Ok(literal)
    }

    fn now(&mut self) -> Parsed<Literal> {
        self.advance()?;
        if self.takes_sign("-")? {
            return Ok(Literal::Now(-self.span()?));
        }
        Ok(Literal::Now(if self.takes_sign("+")? { self.span()? } else { 0 }))
    }

    fn span(&mut self) -> Parsed<i64> {
        let Token::Span(seconds) = self.token else {
            return Err(self.unexpected("a span of time such as 12h or 30d"));
        };
        self.advance()?;
        Ok(seconds)
    }

    fn number(&mut self) -> Parsed<f64> {
        let Token::Number(number) = self.token else { return Err(self.unexpected("a number")) };
        self.advance()?;
        Ok(number)
    }

    fn text(&mut self, wanted: &str, max: usize) -> Parsed<String> {
        let Token::Text(text) = &mut self.token else {
            return Err(self.unexpected(&format!("{wanted} between quotes")));
        };
        let text = std::mem::take(text);
        if text.chars().count() > max {
            return Err(self.error(format!("it is longer than {max} characters")));
        }
        self.advance()?;
        Ok(text)
    }

    fn advance(&mut self) -> Parsed<()> {
        self.begin = self.lexer.skip();
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn takes_word(&mut self, word: &str) -> Parsed<bool> {
        self.takes(|token| matches!(token, Token::Word(found) if *found == word))
    }

    fn takes_sign(&mut self, sign: &str) -> Parsed<bool> {
        self.takes(|token| matches!(token, Token::Sign(found) if *found == sign))
    }

    fn takes(&mut self, is_it: impl Fn(&Token<'_>) -> bool) -> Parsed<bool> {
        if !is_it(&self.token) {
            return Ok(false);
        }
        self.advance()?;
        Ok(true)
    }

    fn expect(&mut self, sign: &str, wanted: &str) -> Parsed<()> {
        if self.takes_sign(sign)? { Ok(()) } else { Err(self.unexpected(wanted)) }
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.token {
            Token::End => "the end".to_owned(),
            _ => format!("`{}`", shortened(&self.lexer.text[self.begin..self.lexer.at])),
        };
        self.error(format!("expected {wanted}, found {found}"))
    }

    fn error(&self, what: String) -> SyntaxError {
        self.lexer.error(self.begin, what)
    }
}

/// Converts the number of times of an event.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1,000")]
fn times(number: f64) -> Option<u16> {
    (number.fract() == 0.0 && (1.0..=f64::from(TIMES_MAX)).contains(&number)).then_some(number as u16)
}

/// Truncates a token for an error message.
fn shortened(token: &str) -> String {
    let shown: String = token.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if token.chars().nth(40).is_some() { format!("{shown}…") } else { shown }
}

impl Field {
    /// Whether the field is compared only by order, or only by equality. `None`: by both.
    fn is_ordered(&self) -> Option<bool> {
        match self {
            Self::Attribute(_) => None,
            Self::Own(own) => Some(own.is_ordered()),
        }
    }

    /// Returns the operators that may follow the field.
    fn operators(&self) -> &'static str {
        match self.is_ordered() {
            None => "`=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `not in`",
            Some(true) => "`<`, `<=`, `>` or `>=`",
            Some(false) => "`=`, `!=`, `in` or `not in`",
        }
    }
}

impl SubscriptionField {
    /// Whether every subscription has the field.
    fn is_always_there(self) -> bool {
        match self {
            Self::Gateway
            | Self::Browser
            | Self::Key
            | Self::Age
            | Self::LastSeen
            | Self::Unclicked
            | Self::UnclickedFor => true,
            Self::Locale | Self::Language | Self::Timezone | Self::User => false,
            Self::LastClicked | Self::ConsentAt | Self::ConsentSource => false,
        }
    }

    /// Whether the field is a quantity, which is compared only by order.
    fn is_ordered(self) -> bool {
        match self {
            Self::Age | Self::LastSeen | Self::LastClicked | Self::Unclicked | Self::UnclickedFor | Self::ConsentAt => {
                true
            }
            Self::Locale | Self::Language | Self::Timezone | Self::User | Self::ConsentSource => false,
            Self::Gateway | Self::Browser | Self::Key => false,
        }
    }

    /// Parses a literal value, or returns its fault.
    fn checked(self, text: String) -> Result<String, String> {
        let one_of = |names: [&str; Gateway::ALL.len()]| match names.contains(&text.as_str()) {
            true => Ok(text.clone()),
            false => Err(format!("`{}` is one of {}", self.name(), names.join(", "))),
        };
        match self {
            Self::Gateway => one_of(Gateway::ALL.map(Gateway::name)),
            Self::Browser => one_of(Gateway::ALL.map(Gateway::browser)),
            Self::Key => text.parse::<VapidKeyId>().map(|id| id.to_string()).map_err(|error| error.to_string()),
            _ => Ok(text),
        }
    }
}
