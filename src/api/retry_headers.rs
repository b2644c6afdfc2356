//! Request headers that set the retries of one message, in our spelling and in QStash's.

use aws_lc_rs::digest::{Context, Digest, SHA256};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use super::problem::{Faults, Problem};
use bellwire_rules::policy::{Layer, Terms};

const RETRIES: [&str; 2] = ["Bellwire-Retries", "Upstash-Retries"];
const DELAY: [&str; 2] = ["Bellwire-Retry-Delay", "Upstash-Retry-Delay"];
/// Members of QStash's form, which the headers replace.
const TIMETABLE: [&str; 2] = ["retries", "retryDelay"];
/// Members that stay next to a timetable from headers, in any form of the body.
const BESIDE: [&str; 2] = ["throttlePolicy", "requestPolicy"];

#[derive(Debug, PartialEq, Eq)]
struct ParsedHeader<T> {
    header: &'static str,
    value: T,
}

/// The headers of one request, read but not yet checked as a policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryHeaders {
    retries: Option<ParsedHeader<u32>>,
    delay: Option<ParsedHeader<String>>,
}

impl RetryHeaders {
    /// Reads them. Refused: what is no number or no text, and spellings that contradict each other.
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

    /// The body's policy as it stands with the headers: they replace QStash's members; of a policy in another form what
    /// does not concern retries stays.
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

    /// Checks the timetable of the headers together with the body's policy. Faults of headers are returned as a problem, those of
    /// the body go to `faults` with a pointer. Returns whether this covers the body's policy, because it has only members that
    /// the headers replace or complete.
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

    /// The header that a member of the timetable stems from.
    fn named(&self, pointer: &str) -> Option<&'static str> {
        match pointer {
            "/retries" => self.retries.as_ref().map(|said| said.header),
            "/retryDelay" => self.delay.as_ref().map(|said| said.header),
            _ => None,
        }
    }

    /// Returns the digest that identifies a request: its body, and the values of its headers. JSON contains no NUL.
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

/// One value out of all headers of these names, if there is one.
fn read<T: PartialEq>(
    headers: &HeaderMap,
    names: [&'static str; 2],
    rule: &str,
    parse: impl Fn(&str) -> Option<T>,
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
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> Result<RetryHeaders, Problem> {
        let pair = |(name, value): &(&str, &'static str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value))
        };
        RetryHeaders::read(&given.iter().map(pair).collect())
    }

    fn header_at_fault(problem: &Problem) -> &str {
        assert_eq!(problem.status.as_u16(), 400);
        problem.errors[0].header.as_deref().unwrap()
    }

    #[test]
    fn both_spellings_agree_or_conflict() {
        for names in [["Bellwire-Retries", "Bellwire-Retry-Delay"], ["upstash-retries", "upstash-retry-delay"]] {
            let read = headers(&[(names[0], " 3 "), (names[1], "pow(2, retried) * 1000")]).unwrap();
            let policy = json!({"retries": 3, "retryDelay": "pow(2, retried) * 1000"});
            assert_eq!(read.over(None), Some(policy));
        }
        assert!(headers(&[("Bellwire-Retries", "3"), ("Upstash-Retries", "03")]).is_ok());
        for given in [
            [("Bellwire-Retries", "3"), ("Upstash-Retries", "4")],
            [("Bellwire-Retry-Delay", "1"), ("Upstash-Retry-Delay", "2")],
        ] {
            let problem = headers(&given).unwrap_err();
            assert_eq!(header_at_fault(&problem), given[1].0);
            assert!(problem.detail.contains(given[0].0), "{}", problem.detail);
        }
        assert!(headers(&[]).unwrap().is_empty());
    }

    #[test]
    fn invalid_value_names_its_header() {
        for (name, value) in [
            ("Bellwire-Retries", ""),
            ("Bellwire-Retries", "-1"),
            ("Bellwire-Retries", "+1"),
            ("Upstash-Retries", "1.5"),
            ("Upstash-Retries", "three"),
            ("Upstash-Retries", "4294967296"),
            ("Bellwire-Retry-Delay", " "),
            ("Upstash-Retry-Delay", "\t"),
        ] {
            assert_eq!(header_at_fault(&headers(&[(name, value)]).unwrap_err()), name, "{value:?}");
        }
    }

    #[test]
    fn header_overrides_only_the_timetable() {
        let two = headers(&[("Bellwire-Retries", "2")]).unwrap();
        for (body, expected) in [
            (json!({}), json!({"retries": 2})),
            (json!({"retries": 4, "retryDelay": "1000"}), json!({"retries": 2, "retryDelay": "1000"})),
            (json!({"maxAttempts": 9}), json!({"retries": 2})),
            (json!({"preset": "sns-aws-managed"}), json!({"retries": 2})),
            (
                json!({"healthyRetryPolicy": {}, "throttlePolicy": {"maxReceivesPerSecond": 1}, "requestPolicy": {}}),
                json!({"retries": 2, "throttlePolicy": {"maxReceivesPerSecond": 1}, "requestPolicy": {}}),
            ),
        ] {
            let stands = two.over(Some(body)).unwrap();
            assert_eq!(stands, expected);
            let layer = Layer::restore(&stands, &Terms::default()).unwrap().layer;
            assert_eq!(layer.retry.unwrap().retries(), 2);
            assert_eq!(layer.throttle.is_some(), expected.get("throttlePolicy").is_some());
        }
        assert_eq!(RetryHeaders::default().over(None), None);
        assert_eq!(RetryHeaders::default().over(Some(json!({"maxAttempts": 9}))), Some(json!({"maxAttempts": 9})));
    }

    #[test]
    fn header_faults_differ_from_body_faults() {
        let check = |given: &[(&'static str, &'static str)], body: Value| {
            let mut faults = Faults::default();
            let checked = headers(given).unwrap().check(Some(&body), &Terms::default(), &mut faults)?;
            faults.finish().map(|()| checked)
        };
        let problem = check(&[("Upstash-Retries", "6")], json!({})).unwrap_err();
        assert_eq!(header_at_fault(&problem), "Upstash-Retries");
        assert!(problem.detail.contains("maximum, 5"), "{}", problem.detail);
        let problem = check(&[("Bellwire-Retry-Delay", "1000 *")], json!({"maxAttempts": 2})).unwrap_err();
        assert_eq!(header_at_fault(&problem), "Bellwire-Retry-Delay");
        assert!(problem.detail.contains("at character 7"), "{}", problem.detail);
        // The body's expression fails for a retry that the header allows.
        let problem = check(&[("Bellwire-Retries", "4")], json!({"retryDelay": "1000 * (2 - retried)"})).unwrap_err();
        assert_eq!(problem.errors[0].pointer.as_deref(), Some("/policy/retryDelay"));
        // And is fine once the header allows fewer.
        assert!(check(&[("Bellwire-Retries", "3")], json!({"retryDelay": "1000 * (2 - retried)"})).unwrap());
        assert!(!check(&[("Bellwire-Retries", "3")], json!({"maxAttempts": 2})).unwrap());
        assert!(!check(&[], json!({"retries": 99})).unwrap());
    }

    #[test]
    fn another_header_makes_another_request() {
        let digest = |given: &[(&'static str, &'static str)]| headers(given).unwrap().digest(b"{}").as_ref().to_vec();
        let three = digest(&[("Bellwire-Retries", "3")]);
        assert_eq!(three, digest(&[("Upstash-Retries", "3")]));
        for other in [
            digest(&[]),
            digest(&[("Bellwire-Retries", "2")]),
            digest(&[("Bellwire-Retry-Delay", "3")]),
            digest(&[("Bellwire-Retries", "3"), ("Bellwire-Retry-Delay", "3")]),
        ] {
            assert_ne!(three, other);
        }
    }
}
