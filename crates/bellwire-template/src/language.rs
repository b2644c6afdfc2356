//! Template engine: minijinja with its own filters, which never make a text longer than a push allows, and with output that
//! keeps values from being interpreted.
//!
//! - In a text that is not a link, values lose control characters, and characters that change the direction of the text after
//!   them.
//! - In a link, values are percent-encoded, each after a [`MARK`], so that the checks see where the first one begins.
//!
//! The notification is serialised to JSON afterwards, so quotes and braces need no escaping here.

use std::borrow::Cow;
use std::io;
use std::sync::LazyLock;

use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::DATA_MAX;

/// Maximum steps of all texts of a notification together: enough for a loop over 100 items with some ten steps each.
pub(super) const FUEL: u64 = 2_000;
/// Maximum input and output of a filter, in bytes. No value of `data` is longer.
const TEXT_MAX: usize = DATA_MAX;
/// Maximum bytes of one rendered text. The longest that a notification can have is 8,000.
pub(super) const OUTPUT_MAX: usize = 16_384;
/// Maximum nesting during evaluation. There are no macros and inclusions that could need more.
const RECURSION_MAX: usize = 64;

/// Mark in front of each value in a link.
pub(super) const MARK: char = '\u{1}';
const LINK_PREFIX: &str = "link ";
const LINK: AutoEscape = AutoEscape::Custom(Cow::Borrowed("link"));
/// All characters except RFC 3986's unreserved ones.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Filters by name. Only these exist.
pub(super) const FILTERS: [&str; 17] = [
    "abs",
    "capitalize",
    "d",
    "default",
    "first",
    "fixed",
    "float",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "replace",
    "round",
    "trim",
    "truncate",
    "upper",
];
/// Filters that return numbers for any input.
pub(super) const NUMERIC: [&str; 5] = ["abs", "float", "int", "length", "round"];
pub(super) const TESTS: [&str; 3] = ["defined", "none", "undefined"];

pub(super) fn engine() -> Environment<'static> {
    static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(make);
    ENGINE.clone()
}

/// Returns the engine's name of a text, which determines how values are escaped in it.
pub(super) fn name(number: usize, is_link: bool) -> String {
    if is_link { format!("{LINK_PREFIX}{number}") } else { number.to_string() }
}

fn make() -> Environment<'static> {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_debug(false); // it would copy what templates are told into errors
    engine.set_fuel(Some(FUEL));
    engine.set_recursion_limit(RECURSION_MAX);
    engine.set_auto_escape_callback(|name| if name.starts_with(LINK_PREFIX) { LINK } else { AutoEscape::None });
    engine.set_formatter(write_value);
    engine.add_test("defined", minijinja::tests::is_defined);
    engine.add_test("undefined", minijinja::tests::is_undefined);
    engine.add_test("none", minijinja::tests::is_none);
    engine.add_filter("default", default);
    engine.add_filter("d", default);
    engine.add_filter("upper", |value: &Value| bounded(text(value)?.to_uppercase()));
    engine.add_filter("lower", |value: &Value| bounded(text(value)?.to_lowercase()));
    engine.add_filter("capitalize", capitalize);
    engine.add_filter("trim", |value: &Value| bounded(text(value)?.trim().to_owned()));
    engine.add_filter("truncate", truncate);
    engine.add_filter("replace", replace);
    engine.add_filter("join", join);
    engine.add_filter("first", first);
    engine.add_filter("last", last);
    engine.add_filter("length", length);
    engine.add_filter("int", |value: &Value| number(value).map(|n| Value::from(n.trunc() as i64)));
    engine.add_filter("float", |value: &Value| number(value).map(Value::from));
    engine.add_filter("abs", |value: &Value| number(value).map(|n| tidy(n.abs())));
    engine.add_filter("round", round);
    engine.add_filter("fixed", |value: &Value, digits: u32| {
        Ok::<_, Error>(format!("{:.*}", digits.min(DIGITS_MAX) as usize, number(value)?))
    });
    engine
}

/// Maximum decimal places of rounding.
const DIGITS_MAX: u32 = 9;

/// Texts about unsuitable values. Only these errors of the engine are shown, because others may quote values.
pub const COMPLAINTS: [&str; 4] = [TOO_LONG, NO_TEXT, NO_LIST, NO_NUMBER];
const TOO_LONG: &str = "a value is longer than a template may make it";
const NO_TEXT: &str = "a list or an object is not text: name one of its members, or use `join`";
const NO_LIST: &str = "this is no list";
const NO_NUMBER: &str = "this is no number";

fn complaint(words: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, words)
}

fn write_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    // Only the missing branch of an `if` without `else` gets here: all other undefined values were refused.
    if value.is_undefined() {
        return Ok(());
    }
    let text = text(value)?;
    if *state.auto_escape() == LINK {
        if !text.is_empty() {
            out.write_str(MARK.encode_utf8(&mut [0; 4]))?;
        }
        for piece in utf8_percent_encode(&text, RESERVED) {
            out.write_str(piece)?;
        }
    } else if text.chars().any(misleads) {
        out.write_str(&text.replace(misleads, ""))?;
    } else {
        out.write_str(&text)?;
    }
    Ok(())
}

/// Whether a character of a value could change the reading of adjacent text: control characters except line ends and tabs, and
/// Unicode's embeddings, overrides and isolates, which change the direction of text.
fn misleads(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a string, a number or a boolean for people.
fn text(value: &Value) -> Result<Cow<'_, str>, Error> {
    let text = match value.kind() {
        ValueKind::String => Cow::Borrowed(value.as_str().unwrap_or_default()),
        ValueKind::Number | ValueKind::Bool => Cow::Owned(value.to_string()),
        ValueKind::Undefined | ValueKind::None => return Err(ErrorKind::UndefinedError.into()),
        _ => return Err(complaint(NO_TEXT)),
    };
    if text.len() <= TEXT_MAX { Ok(text) } else { Err(complaint(TOO_LONG)) }
}

fn bounded(text: String) -> Result<String, Error> {
    if text.len() <= TEXT_MAX { Ok(text) } else { Err(complaint(TOO_LONG)) }
}

fn number(value: &Value) -> Result<f64, Error> {
    let number = match value.kind() {
        ValueKind::Undefined | ValueKind::None => return Err(ErrorKind::UndefinedError.into()),
        ValueKind::String => value.as_str().and_then(|text| text.trim().parse().ok()),
        _ => f64::try_from(value.clone()).ok(),
    };
    number.filter(|n| n.is_finite()).ok_or_else(|| complaint(NO_NUMBER))
}

/// Formats an integer without a decimal point.
fn tidy(n: f64) -> Value {
    /// Largest number up to which every integer is exact.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if n.fract() == 0.0 && n.abs() <= EXACT_MAX { Value::from(n as i64) } else { Value::from(n) }
}

fn default(value: &Value, instead: &Value) -> Value {
    if value.is_undefined() || value.is_none() { instead.clone() } else { value.clone() }
}

fn capitalize(value: &Value) -> Result<String, Error> {
    let text = text(value)?;
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    bounded(first.chain(chars.flat_map(char::to_lowercase)).collect())
}

/// Cuts a text to at most `max` characters, with an ellipsis as the last one if text was removed.
fn truncate(value: &Value, n: usize) -> Result<String, Error> {
    let text = text(value)?;
    Ok(match text.char_indices().nth(n) {
        None => text.into_owned(),
        Some(_) => text.chars().take(n.saturating_sub(1)).chain(['…']).take(n).collect(),
    })
}

fn replace(value: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let (text, from, to) = (text(value)?, text(from)?, text(to)?);
    if from.is_empty() {
        return Ok(text.into_owned());
    }
    let grown = text.len() + text.matches(&*from).count() * to.len();
    if grown > 2 * TEXT_MAX {
        return Err(complaint(TOO_LONG));
    }
    bounded(text.replace(&*from, &to))
}

fn join(list: &Value, separator: Option<&Value>) -> Result<String, Error> {
    let separator = separator.map(text).transpose()?.unwrap_or_default();
    let mut joined = String::new();
    for (i, item) in items(list)?.enumerate() {
        let item = text(&item)?;
        if joined.len() + separator.len() + item.len() > TEXT_MAX {
            return Err(complaint(TOO_LONG));
        }
        joined.extend([if i > 0 { &*separator } else { "" }, &*item]);
    }
    Ok(joined)
}

fn items(list: &Value) -> Result<impl Iterator<Item = Value> + use<>, Error> {
    match list.kind() {
        ValueKind::Undefined | ValueKind::None => Err(ErrorKind::UndefinedError.into()),
        ValueKind::Seq | ValueKind::Iterable => list.try_iter().map_err(|_| complaint(NO_LIST)),
        _ => Err(complaint(NO_LIST)),
    }
}

fn first(value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => Ok(text.chars().next().map_or(Value::UNDEFINED, Value::from)),
        None => Ok(items(value)?.next().unwrap_or(Value::UNDEFINED)),
    }
}

fn last(value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => Ok(text.chars().next_back().map_or(Value::UNDEFINED, Value::from)),
        None => Ok(items(value)?.last().unwrap_or(Value::UNDEFINED)),
    }
}

fn length(value: &Value) -> Result<usize, Error> {
    match value.as_str() {
        Some(text) => Ok(text.chars().count()),
        None => value.len().ok_or_else(|| complaint(NO_LIST)),
    }
}

fn round(value: &Value, digits: Option<u32>) -> Result<Value, Error> {
    let scale = 10_f64.powi(digits.unwrap_or(0).min(DIGITS_MAX).cast_signed());
    let rounded = (number(value)? * scale).round() / scale;
    if rounded.is_finite() { Ok(tidy(rounded)) } else { Err(complaint(NO_NUMBER)) }
}

/// Collects the rendered text, up to [`OUTPUT_MAX`] octets.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) text: String,
    pub(super) is_full: bool,
}

impl io::Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let piece = str::from_utf8(piece).map_err(io::Error::other)?;
        let room = OUTPUT_MAX - self.text.len();
        if piece.len() > room {
            self.text.push_str(&piece[..piece.floor_char_boundary(room)]);
            self.is_full = true;
            return Err(io::Error::other("full"));
        }
        self.text.push_str(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/template/unit/language.rs"]
mod tests;
