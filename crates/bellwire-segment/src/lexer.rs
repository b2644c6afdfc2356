//! Splits an expression into words, values and signs.

use chrono::{DateTime, Datelike as _, NaiveDate};

use bellwire_core::clock::Timestamp;
use bellwire_core::duration;

/// Reason for which an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {what}")]
pub struct SyntaxError {
    /// Position in characters, from 1.
    pub position: usize,
    /// Description of the fault.
    pub what: String,
}

/// Maximum time span: a hundred years, so that no computed time leaves the calendar.
const SPAN_MAX_S: u64 = 100 * 365 * 86_400;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Text(String),
    Number(f64),
    /// Length of time in seconds.
    Span(i64),
    Time(Timestamp),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 11] = ["(", ")", ",", "!=", "<=", ">=", "=", "<", ">", "+", "-"]; // longer ones first

/// Tokenizer with its position in the text.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    pub text: &'a str,
    /// Offset of the next byte.
    pub at: usize,
}

impl<'a> Lexer<'a> {
    /// Skips white space. Returns the offset of the next token.
    pub(super) fn skip(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, SyntaxError> {
        self.skip();
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        match first {
            '"' | '\'' => self.text_in(first),
            '0'..='9' => self.value(),
            c if begins_word(c) => Ok(Token::Word(self.take(|c| begins_word(c) || c.is_alphanumeric() || c == '.'))),
            c => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Ok(Token::Sign(sign))
                }
                None => Err(self.error(self.at, format!("'{}' has no meaning here", c.escape_debug()))),
            },
        }
    }

    /// Reads a text up to the same quote. A backslash escapes the next character.
    fn text_in(&mut self, quote: char) -> Result<Token<'a>, SyntaxError> {
        let (begin, mut text) = (self.at, String::new());
        let mut rest = self.text[begin..].char_indices().skip(1);
        while let Some((at, c)) = rest.next() {
            match c {
                c if c == quote => {
                    self.at = begin + at + 1;
                    return Ok(Token::Text(text));
                }
                '\0' => return Err(self.error(begin + at, "a text must not hold NUL".into())),
                '\\' => match rest.next() {
                    Some((_, c @ ('"' | '\'' | '\\'))) => text.push(c),
                    _ => return Err(self.error(begin + at, "a backslash stands before a quote or a backslash".into())),
                },
                c => text.push(c),
            }
        }
        Err(self.error(begin, format!("this text has no end: its second {quote} is missing")))
    }

    /// Reads a number, a duration such as `30d`, or a time such as `2026-11-01`.
    fn value(&mut self) -> Result<Token<'a>, SyntaxError> {
        let begin = self.at;
        let digits = self.take(|c| c.is_ascii_digit());
        if digits.len() == 4 && self.text[self.at..].starts_with('-') {
            self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '+'));
            let word = &self.text[begin..self.at];
            let wrong = "is not a time: write a day as 2026-11-01, or a moment as 2026-11-01T12:00:00Z";
            return time(word).map(Token::Time).ok_or_else(|| self.error(begin, format!("'{word}' {wrong}")));
        }
        self.take(|c| c.is_alphanumeric() || matches!(c, '.' | '_'));
        let word = &self.text[begin..self.at];
        if word.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite() && !word.ends_with('.'));
            return number.map(Token::Number).ok_or_else(|| self.error(begin, format!("'{word}' is not a number")));
        }
        let seconds = duration::parse(word).map(|span| span.as_secs()).filter(|seconds| *seconds <= SPAN_MAX_S);
        match seconds.and_then(|seconds| i64::try_from(seconds).ok()) {
            Some(seconds) => Ok(Token::Span(seconds)),
            None => {
                let what = format!("'{word}' is neither a number nor a span of time such as 30s, 15m, 12h or 30d");
                Err(self.error(begin, what))
            }
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Returns an error at a byte offset.
    pub(super) fn error(&self, at: usize, what: String) -> SyntaxError {
        SyntaxError { position: self.text[..at].chars().count() + 1, what }
    }
}

pub(super) fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Parses a time in expressions and attributes: RFC 3339, or a day, which means midnight UTC. `None`: invalid, or a year not
/// between 1900 and 2999.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let day = || Some(NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0)?.and_utc());
    let at = match text.len() {
        10 => day()?,
        _ => DateTime::parse_from_rfc3339(text).ok()?.to_utc(),
    };
    (1900..3000).contains(&at.year()).then_some(at)
}
