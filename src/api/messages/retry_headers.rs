//! Request headers that set the retries of one message, with Bellwire's names and with QStash's.

use aws_lc_rs::digest::{Context, Digest, SHA256};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::api::http::problem::{Faults, Problem};
use bellwire_rules::policy::{Layer, Terms};

const RETRIES: [&str; 2] = ["Bellwire-Retries", "Upstash-Retries"];
const DELAY: [&str; 2] = ["Bellwire-Retry-Delay", "Upstash-Retry-Delay"];
/// Members of a policy in QStash's form, which the headers replace.
const TIMETABLE: [&str; 2] = ["retries", "retryDelay"];
/// Members of a policy that are kept together with retries from headers.
const BESIDE: [&str; 2] = ["throttlePolicy", "requestPolicy"];

#[derive(Debug, PartialEq, Eq)]
struct ParsedHeader<T> {
    header: &'static str,
    value: T,
}

/// Parsed headers of one request, before the policy check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryHeaders {
    retries: Option<ParsedHeader<u32>>,
    delay: Option<ParsedHeader<String>>,
}

impl RetryHeaders {
    /// Parses the headers. Refuses invalid numbers or text, and two names of a header with different values.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        Ok(Self {
            retries: read(headers, RETRIES, "must be an integer from 0 to the app's `max_retries`", number)?,
            delay: read(headers, DELAY, "must be an expression of milliseconds over `retried`", |text| {
                Some(text.to_owned())
            })?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.retries.is_none() && self.delay.is_none()
    }

    /// Combines the body's policy with the headers. The headers replace QStash's members. Of a policy in another form, only
    /// members about other things than retries are kept.
    pub(crate) fn over(&self, policy: Option<Value>) -> Option<Value> {
        if self.is_empty() {
            return policy;
        }
        let mut members = match policy {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        members.retain(|name, _| TIMETABLE.contains(&name.as_str()) || BESIDE.contains(&name.as_str()));
        let [retries, delay] = TIMETABLE;
        members.extend(self.retries.as_ref().map(|said| (retries.to_owned(), json!(said.value))));
        members.extend(self.delay.as_ref().map(|said| (delay.to_owned(), json!(said.value))));
        Some(Value::Object(members))
    }

    /// Checks the retries from headers together with the body's policy. Faults of headers are returned as a problem, faults of
    /// the body are added to `faults`. Returns whether this check covers the whole policy of the body.
    pub(crate) fn check(&self, policy: Option<&Value>, terms: &Terms, faults: &mut Faults) -> Result<bool, Problem> {
        if self.is_empty() {
            return Ok(false);
        }
        let beside = policy
            .and_then(Value::as_object)
            .filter(|members| members.keys().all(|name| TIMETABLE.contains(&name.as_str())));
        let timetable = self.over(beside.cloned().map(Value::Object)).unwrap_or_default();
        for error in Layer::parse(&timetable, terms).err().into_iter().flatten() {
            match self.named(&error.pointer) {
                Some(header) => return Err(Problem::invalid_header(header, error.detail)),
                None => faults.refuse(format!("/policy{}", error.pointer), error.detail),
            }
        }
        Ok(beside.is_some())
    }

    /// Returns the header that a member of the retries came from.
    fn named(&self, pointer: &str) -> Option<&'static str> {
        match pointer {
            "/retries" => self.retries.as_ref().map(|said| said.header),
            "/retryDelay" => self.delay.as_ref().map(|said| said.header),
            _ => None,
        }
    }

    /// Returns a digest of the body and the headers, which identifies the request. The separator is NUL, which JSON cannot
    /// contain.
    pub(crate) fn digest(&self, body: &[u8]) -> Digest {
        let mut digest = Context::new(&SHA256);
        digest.update(body);
        if let Some(said) = &self.retries {
            digest.update(format!("\0retries {}", said.value).as_bytes());
        }
        if let Some(said) = &self.delay {
            digest.update(format!("\0retryDelay {}", said.value).as_bytes());
        }
        digest.finish()
    }
}

/// Returns the value of the headers with these names, if one is present.
fn read<T: PartialEq>(
    headers: &HeaderMap, names: [&'static str; 2], rule: &str, parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<ParsedHeader<T>>, Problem> {
    let mut known: Option<ParsedHeader<T>> = None;
    for header in names {
        for given in headers.get_all(header) {
            let value = given.to_str().ok().map(str::trim).filter(|text| !text.is_empty()).and_then(&parse);
            let value = value.ok_or_else(|| Problem::invalid_header(header, rule))?;
            match &known {
                Some(first) if first.value != value => {
                    return Err(Problem::invalid_header(header, format!("contradicts `{}`", first.header)));
                }
                Some(_) => {}
                None => known = Some(ParsedHeader { header, value }),
            }
        }
    }
    Ok(known)
}

#[cfg(test)]
#[path = "../../../tests/unit/api/messages/retry_headers.rs"]
mod tests;
