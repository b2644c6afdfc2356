//! Rules for faults of a gateway, as they are written in JSON.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::responses::ResponseCase;
use bellwire_core::lane::Gateway;

/// Condition and action. Absent members match everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Host that the rule applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Gateway whose hosts the rule applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// Indices of the endpoints that the rule applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<BTreeSet<u32>>,
    /// Range `[from, to)` of endpoints by their fraction: `[0.01, 0.03]` is 2 % of them, and disjoint from `[0.0,
    /// 0.01]`. Seed, host and index determine the fraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<[f64; 2]>,
    /// Range of requests to each endpoint, from 1, both ends included. Counted since the rule was added, among the
    /// requests that match the members above within the time window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<[u32; 2]>,
    /// Start in milliseconds after the rule was added.
    pub after_ms: u64,
    /// Duration in milliseconds after the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Maximum number of hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Delay of the action in milliseconds.
    pub delay_ms: u64,
    /// Action of the rule.
    pub action: RuleAction,
}

/// Action of a rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RuleAction {
    /// Check the request, and accept or refuse it as usual. With `delay_ms` this adds latency; before other rules it
    /// exempts requests from them.
    #[default]
    Behave,
    /// Respond exactly as given.
    Answer {
        /// Status, 200 to 599.
        status: u16,
        /// Names and values of headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// Body of the response, sent unchanged.
        #[serde(default)]
        body: String,
    },
    /// 410 in the form of the gateway.
    Gone,
    /// 404 in the form of the gateway.
    NotFound,
    /// 429, or 406 from WNS.
    Throttled {
        /// Seconds for `Retry-After`; without them the header is absent.
        retry_after_s: Option<u64>,
    },
    /// 503 in the form of the gateway.
    Unavailable {
        /// Seconds for `Retry-After`; without them the default of the gateway applies.
        retry_after_s: Option<u64>,
    },
    /// 500 in the form of the gateway.
    ServerError,
    /// 413 in the form of the gateway.
    TooLarge,
    /// 401 or 403 (Apple: 400) as for a wrong VAPID key.
    Unauthorized,
    /// 400 as for an invalid TTL.
    BadRequest,
    /// 307 to another URL.
    Redirect {
        /// Value of the `Location` header.
        to: String,
    },
    /// Read the request, but never respond.
    Hang,
    /// Hold the request until [`release`](super::Simulator::release), then behave as usual.
    Hold,
    /// RST_STREAM with this code (RFC 9113 section 7; 7 is REFUSED_STREAM). HTTP/1.1: close.
    Reset {
        /// Error code of the reset.
        code: u32,
    },
    /// Close the connection without a response; the message is not accepted.
    Close,
    /// Accept the message, then close the connection without a response.
    LoseAnswer,
    /// Start a response with this status and end the connection within its body.
    Truncate {
        /// Status that is still sent.
        status: u16,
    },
    /// Send a body one octet at a time.
    SlowBody {
        /// Status, sent at once.
        status: u16,
        /// Length of the body in octets.
        octets: u32,
        /// Milliseconds before each octet.
        every_ms: u64,
    },
    /// Send a body without an end.
    EndlessBody {
        /// Status, sent at once.
        status: u16,
    },
    /// Behave as usual, and send a GOAWAY. HTTP/1.1: `Connection: close`.
    GoAway,
    /// GOAWAY whose last stream id is below that of this request, which never gets a response. The client may repeat it
    /// on another connection (RFC 9113 section 6.8). Earlier streams get their responses. HTTP/1.1: close.
    GoAwayBelow,
    /// Connections: announce this SETTINGS_MAX_CONCURRENT_STREAMS.
    StreamLimit {
        /// Announced limit of streams.
        streams: u32,
    },
    /// Connections: refused, and the open ones are cut. Counts as one hit.
    RefuseTcp,
    /// Connections: accepted and closed within the TLS handshake.
    RefuseTls,
    /// Connections: accepted, then without any response.
    Stall,
}

impl RuleAction {
    /// Whether the action applies to connections instead of requests.
    pub(super) fn concerns_connections(&self) -> bool {
        matches!(self, Self::StreamLimit { .. } | Self::RefuseTcp | Self::RefuseTls | Self::Stall)
    }

    /// Returns the response in the form of the gateway, if the action consists of one.
    pub(super) fn case(&self) -> Option<ResponseCase> {
        Some(match *self {
            Self::Gone => ResponseCase::Gone,
            Self::NotFound => ResponseCase::NotFound,
            Self::Throttled { retry_after_s } => ResponseCase::Throttled(retry_after_s),
            Self::Unavailable { retry_after_s } => ResponseCase::Unavailable(retry_after_s),
            Self::ServerError => ResponseCase::ServerError,
            Self::TooLarge => ResponseCase::TooLarge,
            Self::Unauthorized => ResponseCase::Unauthorized,
            Self::BadRequest => ResponseCase::BadRequest,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    #[error("status must be between 200 and 599")]
    Status,
    /// A header name or value that HTTP does not allow.
    #[error("a header's name or value is invalid")]
    Header,
    /// A share outside [0, 1], or with its ends in the wrong order.
    #[error("share must be two fractions of 1, the smaller first")]
    Share,
    #[error("no such host")]
    Host,
}

impl Rule {
    /// Returns a rule that acts on every request.
    pub fn always(action: RuleAction) -> Self {
        Self { action, ..Self::default() }
    }

    /// Refuses a rule with invalid values.
    pub(super) fn validate(&self) -> Result<(), InvalidRule> {
        match &self.action {
            RuleAction::Answer { status, .. }
            | RuleAction::Truncate { status }
            | RuleAction::SlowBody { status, .. }
            | RuleAction::EndlessBody { status }
                if !(200..600).contains(status) =>
            {
                return Err(InvalidRule::Status);
            }
            RuleAction::Answer { headers, .. } => {
                for (name, value) in headers {
                    name.parse::<http::HeaderName>().map_err(|_| InvalidRule::Header)?;
                    value.parse::<http::HeaderValue>().map_err(|_| InvalidRule::Header)?;
                }
            }
            RuleAction::Redirect { to } => {
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
#[path = "../../../../tests/crates/simulator/unit/gateways/rule.rs"]
mod tests;
