//! Rules that make a gateway misbehave, as they are written.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::manners::Case;
use crate::model::lane::Gateway;

/// When to act, and how. Members that are absent match everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Only this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Only hosts of this gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// Only the endpoints of these indices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<BTreeSet<u32>>,
    /// Only endpoints whose fraction lies in `[from, to)`: `[0.01, 0.03]` is 2 % of them, and none of `[0.0, 0.01]`.
    /// Which ones is fixed by seed, host and index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<[f64; 2]>,
    /// Only the n-th to m-th request to each endpoint, from 1, both included, counted since the rule was made among
    /// the requests that the members above and the time window let through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<[u32; 2]>,
    /// Begins this many milliseconds after the rule was made.
    pub after_ms: u64,
    /// Ends this many milliseconds after it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Acts at most this often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Waits this many milliseconds before acting.
    pub delay_ms: u64,
    /// What to do.
    pub action: Action,
}

/// What a rule does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Behave: check the request and take or refuse it. With `delay_ms` this is latency; before other rules it makes
    /// exceptions from them.
    #[default]
    Behave,
    /// Exactly this answer.
    Answer {
        /// 200 to 599.
        status: u16,
        /// Names and values.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// Sent as it is.
        #[serde(default)]
        body: String,
    },
    /// "This subscription has ended", in the gateway's words (410).
    Gone,
    /// "No such endpoint", in the gateway's words (404).
    NotFound,
    /// 429, or 406 from WNS.
    Throttled {
        /// Seconds for `Retry-After`; absent: no such header.
        #[serde(default)]
        retry_after_s: Option<u64>,
    },
    /// 503.
    Unavailable {
        /// Seconds for `Retry-After`; absent: what the gateway itself sends, if anything.
        #[serde(default)]
        retry_after_s: Option<u64>,
    },
    /// 500.
    ServerError,
    /// 413.
    TooLarge,
    /// 401 or 403 (Apple: 400), as if the VAPID key were the wrong one.
    Unauthorized,
    /// 400, as if the TTL were invalid.
    BadRequest,
    /// 307 to that URL.
    Redirect {
        /// The value of `Location`.
        to: String,
    },
    /// Read the request and never answer.
    Hang,
    /// Park the request until [`release`](super::Simulator::release) lets it go on, then behave.
    Hold,
    /// RST_STREAM with that code (RFC 9113 section 7; 7 is REFUSED_STREAM). HTTP/1.1: close.
    Reset {
        /// The error code.
        code: u32,
    },
    /// Close the connection without an answer; the message is not taken.
    Close,
    /// Take the message, then close the connection without saying so.
    LoseAnswer,
    /// Begin an answer of that status and break off within its body.
    Truncate {
        /// The status that is still sent.
        status: u16,
    },
    /// Answer with a body that comes one octet at a time.
    SlowBody {
        /// The status, sent at once.
        status: u16,
        /// Length of the body in octets.
        octets: u32,
        /// Time before each octet.
        every_ms: u64,
    },
    /// Answer with a body that never ends.
    EndlessBody {
        /// The status, sent at once.
        status: u16,
    },
    /// Behave, and tell the client by GOAWAY to open no more streams. HTTP/1.1: `Connection: close`.
    GoAway,
    /// GOAWAY whose last stream id is below this request's, which is never answered: the client may repeat it on
    /// another connection (RFC 9113 section 6.8). Earlier streams are answered. HTTP/1.1: close.
    GoAwayBelow,
    /// Connections: announce SETTINGS_MAX_CONCURRENT_STREAMS.
    StreamLimit {
        /// The limit.
        streams: u32,
    },
    /// Connections: none is accepted (connection refused), and those that stand are cut. Counts as one hit.
    RefuseTcp,
    /// Connections: accepted and closed within the TLS handshake.
    RefuseTls,
    /// Connections: accepted, then silence.
    Stall,
}

impl Action {
    /// Whether it is matched against connections rather than requests.
    pub(super) fn concerns_connections(&self) -> bool {
        matches!(self, Self::StreamLimit { .. } | Self::RefuseTcp | Self::RefuseTls | Self::Stall)
    }

    /// The case that this action makes the gateway speak of, if it is one that has words for it.
    pub(super) fn case(&self) -> Option<Case> {
        Some(match *self {
            Self::Gone => Case::Gone,
            Self::NotFound => Case::NotFound,
            Self::Throttled { retry_after_s } => Case::Throttled(retry_after_s),
            Self::Unavailable { retry_after_s } => Case::Unavailable(retry_after_s),
            Self::ServerError => Case::ServerError,
            Self::TooLarge => Case::TooLarge,
            Self::Unauthorized => Case::Unauthorized,
            Self::BadRequest => Case::BadRequest,
            _ => return None,
        })
    }
}

/// Why a rule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// Another status than an answer can have.
    #[error("status must lie between 200 and 599")]
    Status,
    /// A header name or value that HTTP does not allow.
    #[error("a header's name or value is not one")]
    Header,
    /// A share that is not within [0, 1].
    #[error("share must be two fractions of 1, the smaller first")]
    Share,
    /// No such host here.
    #[error("no such host")]
    Host,
}

impl Rule {
    /// A rule that acts on every request.
    pub fn always(action: Action) -> Self {
        Self { action, ..Self::default() }
    }

    /// Refuses what could not be acted upon.
    pub(super) fn validate(&self) -> Result<(), InvalidRule> {
        match &self.action {
            Action::Answer { status, .. }
            | Action::Truncate { status }
            | Action::SlowBody { status, .. }
            | Action::EndlessBody { status }
                if !(200..600).contains(status) =>
            {
                return Err(InvalidRule::Status);
            }
            Action::Answer { headers, .. } => {
                for (name, value) in headers {
                    name.parse::<http::HeaderName>().map_err(|_| InvalidRule::Header)?;
                    value.parse::<http::HeaderValue>().map_err(|_| InvalidRule::Header)?;
                }
            }
            Action::Redirect { to } => {
                to.parse::<http::HeaderValue>().map_err(|_| InvalidRule::Header)?;
            }
            _ => {}
        }
        match self.share {
            Some([from, to]) if !(0.0 <= from && from <= to && to <= 1.0) => Err(InvalidRule::Share),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_json_and_checked() {
        let read = |json: &str| serde_json::from_str::<Rule>(json);
        let rule =
            read(r#"{"gateway":"fcm","share":[0,0.02],"attempts":[1,2],"action":{"unavailable":{"retry_after_s":1}}}"#);
        let rule = rule.unwrap();
        assert_eq!(rule.action, Action::Unavailable { retry_after_s: Some(1) });
        assert_eq!(read(&serde_json::to_string(&rule).unwrap()).unwrap(), rule);
        assert_eq!(read(r#"{"action":"hang"}"#).unwrap().action, Action::Hang);
        assert!(read(r#"{"actoin":"hang"}"#).is_err());
        let answer = |status| Rule::always(Action::Answer { status, headers: vec![], body: String::new() }).validate();
        assert_eq!(
            (answer(599), answer(600), answer(100)),
            (Ok(()), Err(InvalidRule::Status), Err(InvalidRule::Status))
        );
        let share = |share| Rule { share: Some(share), ..Rule::default() }.validate();
        assert_eq!((share([0.0, 1.0]), share([0.5, 0.1])), (Ok(()), Err(InvalidRule::Share)));
        let headers = vec![("a b".into(), String::new())];
        let odd = Rule::always(Action::Answer { status: 200, headers, body: String::new() });
        assert_eq!(odd.validate(), Err(InvalidRule::Header));
    }
}
