//! Classifies a push service's response: status, headers and body, or a transport failure, become one outcome.
//!
//! The status decides first (RFC 8030 section 5, RFC 9110 section 15). Headers or the body of a known push service refine it;
//! an empty or invalid body changes nothing. [`crate::policy::decide`] then turns the outcome into a verdict.

mod detail;
pub mod retry_after;

use std::time::Duration;

use http::HeaderMap;
use serde::Deserialize;

use bellwire_core::clock::Timestamp;
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// Maximum wait after one throttling response: an hour.
const THROTTLED_MAX: Duration = Duration::from_secs(3_600);

named! {
    /// Transport failure of a POST. The gateway client creates it, and [`classify`] reads it.
    pub enum Failure {
        /// The endpoint's host has no address at present, or no DNS resolver responded.
        Resolve = "resolve",
        /// The endpoint's host has no address permanently: DNS did not find it for hours, or it ends in `.invalid` (RFC 6761
        /// section 6.4). Chrome uses `permanently-removed.invalid` for subscriptions that it revoked.
        InvalidHost = "invalid_host",
        /// Connections to the endpoint's host are forbidden, or it resolves to an address that is not public.
        Forbidden = "forbidden",
        /// No TCP connection was established.
        Connect = "connect",
        /// The outbound proxy provided no connection. The cause is on the sender's side, with any response of the proxy.
        Proxy = "proxy",
        /// No TLS session: invalid certificate or failed handshake.
        Tls = "tls",
        /// The push service did not process the request: REFUSED_STREAM, or a stream above GOAWAY's last id (RFC 9113 section
        /// 8.7). Repeating it cannot duplicate the push.
        Unprocessed = "unprocessed",
        /// The sender cancelled the request before it had a stream. Nothing was sent.
        Withdrawn = "withdrawn",
        /// The connection or stream failed after the request may have been read.
        Reset = "reset",
        /// The peer violated the HTTP protocol.
        Protocol = "protocol",
        /// No complete response within the deadline.
        Deadline = "deadline",
    }
}

impl Failure {
    /// Returns the failure for a host without an address: [`InvalidHost`](Self::InvalidHost) if its name is never valid.
    pub fn unresolved(host: &str) -> Self {
        let host = host.strip_suffix('.').unwrap_or(host);
        match host.rsplit('.').next() {
            Some(last) if last.eq_ignore_ascii_case("invalid") => Failure::InvalidHost,
            _ => Failure::Resolve,
        }
    }

    /// Whether no push service was reached. The cause may be local: this machine's network, or its clock, with which
    /// certificates are invalid.
    pub fn is_unreached(self) -> bool {
        matches!(self, Failure::Resolve | Failure::Connect | Failure::Proxy | Failure::Tls)
    }
}

/// Result of a POST, borrowed from the connection.
#[derive(Debug, Clone, Copy)]
pub enum PostResult<'a> {
    /// Response of the gateway.
    Response {
        /// Status as received. Any number, valid or not.
        status: u16,
        /// Headers of the response.
        headers: &'a HeaderMap,
        /// Beginning of the body, as far as it was read.
        body: &'a [u8],
    },
    /// No response.
    Failure(Failure),
}

named! {
    /// Reason for which a delivery is dead. Each
    /// reason leaves an open dead letter and an event of the app.
    pub enum DeadReason {
        /// 400: the push service rejects the request itself. Set by [`classify`] for the first such response.
        BadRequest = "bad_request",
        /// 401 or 403, or Apple's 400 for a VAPID key that does not match the subscription. Set by [`classify`]. If a key is
        /// refused for many subscriptions, the lane is held instead, with an alert.
        Unauthorized = "unauthorized",
        /// 413, and the payload cannot be reduced further. Set by [`decide`](crate::policy::decide), or by dispatch if nothing
        /// can be omitted.
        PayloadTooLarge = "payload_too_large",
        /// 489 with the header that forbids a retry. Set by [`classify`].
        NonRetryable = "non_retryable",
        /// 3xx: redirects are never followed. Set by [`classify`].
        Redirected = "redirected",
        /// Any other 4xx; the status is stored. Set by [`classify`].
        Http4xx = "http_4xx",
        /// Connections to the endpoint's host are forbidden: its push service is not allowed, or it resolves to a private
        /// network. Set by the gateway client.
        EndpointForbidden = "endpoint_forbidden",
        /// All retries of the policy failed, or its window of 24 hours ended. Set by [`decide`](crate::policy::decide).
        RetriesExhausted = "retries_exhausted",
        /// Claimed five times without an ending, because its workers crashed. Set by dispatch at the next claim.
        LeaseExhausted = "lease_exhausted",
        /// The retry token does not match the row, which was changed outside Bellwire. Set by dispatch at the claim, with an
        /// alert.
        Tampered = "tampered",
        /// This attempt was made already, and its row was inserted again. Set by dispatch at the claim, with an alert.
        Replayed = "replayed",
        /// Keys or payload could not be decrypted or encrypted. Set by dispatch before the request.
        Unsealable = "unsealable",
        /// Rendering the template failed: a variable is undefined, or the result violates a rule, such as that for links. Set
        /// by dispatch before the request.
        Unrenderable = "unrenderable",
        /// The rendered template is too long for a push and must not be truncated, or truncating was not enough. Set by
        /// dispatch before the request.
        TooLong = "too_long",
    }
}

/// Meaning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// The push service accepted the message.
    Accepted {
        /// Granted `TTL` in seconds, if the response has one (RFC 8030 section 5.2).
        ttl_granted_s: Option<u32>,
    },
    /// The push service refuses pushes to this subscription for a while: the subscription waits.
    Throttled,
    /// The push service refuses pushes of this sender for a while: the lane is held.
    SenderThrottled,
    /// The push service was unreachable or overloaded.
    Unavailable {
        /// Whether the response invites an immediate retry (Mozilla's errno 202).
        retry_now: bool,
    },
    /// The outbound proxy prevented the request. A retry costs no attempt, but the lane must wait.
    CutOff,
    /// The push service did not process the request. A retry costs no attempt.
    Unprocessed,
    /// The payload is too large for this push service.
    TooLarge,
    /// The subscription no longer exists: it is pruned.
    Gone,
    /// The push service will never accept this message. The subscription is not pruned.
    Refused {
        /// Reason for the dead letter.
        reason: DeadReason,
    },
}

impl ResponseKind {
    /// Whether the push service throttles the subscription or the sender.
    pub fn is_throttling(self) -> bool {
        matches!(self, ResponseKind::Throttled | ResponseKind::SenderThrottled)
    }
}

/// Health of the push service according to a response, for the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It responded properly, even if it refused.
    Alive,
    /// It failed.
    Failing,
    /// Unknown: the request did not reach it.
    Unknown,
}

/// Classified response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Kind of the outcome.
    pub kind: ResponseKind,
    /// HTTP status. `None`: no response.
    pub status: Option<u16>,
    /// Time after which the push service accepts a retry: at most an hour if it throttles, otherwise at most a day. Read only
    /// for kinds that lead to a retry.
    pub retry_after: Option<Duration>,
    /// Error text of the push service, or name of the failure: at most 500 bytes, without NUL and URLs. `None` if accepted.
    pub detail: Option<Box<str>>,
}

impl Outcome {
    /// Limits the requested wait to `until`, the end of the hold.
    pub fn bound_wait(&mut self, now: Timestamp, until: Timestamp) {
        let longest = (until - now).to_std().unwrap_or_default();
        self.retry_after = self.retry_after.map(|wait| wait.min(longest));
    }

    /// Returns what this outcome shows about the push service's health.
    pub fn health(&self) -> Health {
        match (self.kind, self.status) {
            (ResponseKind::Unavailable { .. } | ResponseKind::CutOff, _) => Health::Failing,
            (ResponseKind::Unprocessed, _) | (_, None) => Health::Unknown,
            _ => Health::Alive,
        }
    }

    /// Whether the push service refused the VAPID key or token.
    pub fn refuses_key(&self) -> bool {
        self.kind == ResponseKind::Refused { reason: DeadReason::Unauthorized }
    }

    /// Whether the outcome shows that the push service accepts or refuses the VAPID key.
    /// [`KeyWatch`](crate::policy::hold::KeyWatch) counts these.
    pub fn judges_key(&self) -> bool {
        self.refuses_key() || matches!(self.kind, ResponseKind::Accepted { .. })
    }
}

/// Classifies a response of `gateway`, received at `now`. Total: every status from 0 to 65,535 and every failure has a meaning.
/// Allocates nothing for an accepted response.
pub fn classify(gateway: Gateway, answer: &PostResult<'_>, now: Timestamp) -> Outcome {
    match *answer {
        PostResult::Failure(failure) => {
            let detail = Some(failure.name().into());
            Outcome { kind: of_failure(failure), status: None, retry_after: None, detail }
        }
        PostResult::Response { status, headers, body } => {
            let kind = of_response(gateway, status, headers, body);
            if let ResponseKind::Accepted { .. } = kind {
                return Outcome { kind, status: Some(status), retry_after: None, detail: None };
            }
            let retry_after = match kind {
                ResponseKind::Throttled | ResponseKind::SenderThrottled => {
                    retry_after::from_headers(headers, now).map(|wait| wait.min(THROTTLED_MAX))
                }
                ResponseKind::Unavailable { .. } => retry_after::from_headers(headers, now),
                _ => None,
            };
            Outcome { kind, status: Some(status), retry_after, detail: detail::of_response(gateway, headers, body) }
        }
    }
}

fn of_failure(failure: Failure) -> ResponseKind {
    match failure {
        Failure::Forbidden => ResponseKind::Refused { reason: DeadReason::EndpointForbidden },
        Failure::InvalidHost => ResponseKind::Gone,
        Failure::Unprocessed | Failure::Withdrawn => ResponseKind::Unprocessed,
        Failure::Proxy => ResponseKind::CutOff,
        Failure::Resolve | Failure::Connect | Failure::Tls | Failure::Reset | Failure::Protocol | Failure::Deadline => {
            ResponseKind::Unavailable { retry_now: false }
        }
    }
}

fn of_response(gateway: Gateway, status: u16, headers: &HeaderMap, body: &[u8]) -> ResponseKind {
    let kind = of_status(status, headers);
    match gateway {
        Gateway::Wns => refined_by_wns(kind, status, headers),
        Gateway::Mozilla if status >= 400 => refined_by_errno(kind, status, body),
        Gateway::Apple if matches!(status, 400 | 429) => refined_by_reason(kind, status, body),
        _ => kind,
    }
}

fn of_status(status: u16, headers: &HeaderMap) -> ResponseKind {
    let refused = |reason| ResponseKind::Refused { reason };
    match status {
        200..=299 => ResponseKind::Accepted { ttl_granted_s: number(headers, "ttl") },
        300..=399 => refused(DeadReason::Redirected),
        400 => refused(DeadReason::BadRequest),
        401 | 403 => refused(DeadReason::Unauthorized),
        404 | 410 => ResponseKind::Gone,
        408 => ResponseKind::Unavailable { retry_now: false },
        413 => ResponseKind::TooLarge,
        429 => ResponseKind::Throttled,
        489 if forbids_retry(headers) => refused(DeadReason::NonRetryable),
        _ if (400..500).contains(&status) => refused(DeadReason::Http4xx),
        _ => ResponseKind::Unavailable { retry_now: false },
    }
}

/// Refines responses of WNS, which throttles with 406 or 429. A header names the scope, even in a 2xx that was not a delivery:
/// `dropped` and `channelthrottled` mean one device, `appthrottled` the sender, like 406 alone.
fn refined_by_wns(kind: ResponseKind, status: u16, headers: &HeaderMap) -> ResponseKind {
    let said = |word: &str| {
        ["x-wns-status", "x-wns-notificationstatus"]
            .into_iter()
            .filter_map(|name| headers.get(name))
            .any(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    };
    match status {
        200..=299 | 406 | 429 if said("channelthrottled") => ResponseKind::Throttled,
        200..=299 | 406 | 429 if said("appthrottled") => ResponseKind::SenderThrottled,
        200..=299 if said("dropped") => ResponseKind::Throttled,
        406 => ResponseKind::SenderThrottled,
        _ => kind,
    }
}

/// Refines responses by Mozilla's `errno`: 103, 105 and 106 mean a gone subscription, 201 a backoff, and 202 an immediate
/// retry. Statuses that must never prune (refused keys, throttling, server errors) do not prune with any body.
fn refined_by_errno(kind: ResponseKind, status: u16, body: &[u8]) -> ResponseKind {
    #[derive(Deserialize)]
    struct AutopushError {
        errno: u32,
    }
    let may_prune = status < 500 && !matches!(status, 401 | 403 | 406 | 408 | 429);
    match serde_json::from_slice(body) {
        Ok(AutopushError { errno: 103 | 105 | 106 }) if may_prune => ResponseKind::Gone,
        Ok(AutopushError { errno: 201 }) if status != 429 => ResponseKind::Unavailable { retry_now: false },
        Ok(AutopushError { errno: 202 }) if status != 429 => ResponseKind::Unavailable { retry_now: true },
        _ => kind,
    }
}

/// Refines responses by Apple's reason: 400 also covers VAPID keys that do not match the subscription, and requests that it did
/// not read in time. 429 means a device, unless the reason names the sender's tokens.
fn refined_by_reason(kind: ResponseKind, status: u16, body: &[u8]) -> ResponseKind {
    #[derive(Deserialize)]
    struct ApnsError<'a> {
        #[serde(borrow)]
        reason: std::borrow::Cow<'a, str>,
    }
    match (status, serde_json::from_slice::<ApnsError<'_>>(body).as_ref().map(|body| body.reason.as_ref())) {
        (400, Ok("VapidPkHashMismatch" | "BadVapidPublicKey" | "BadAuthorizationHeader" | "BadJwtToken")) => {
            ResponseKind::Refused { reason: DeadReason::Unauthorized }
        }
        (400, Ok("IdleTimeout")) => ResponseKind::Unavailable { retry_now: false },
        (429, Ok("TooManyProviderTokenUpdates")) => ResponseKind::SenderThrottled,
        _ => kind,
    }
}

fn forbids_retry(headers: &HeaderMap) -> bool {
    ["bellwire-nonretryable", "upstash-nonretryable-error"]
        .into_iter()
        .filter_map(|name| headers.get(name))
        .any(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"true"))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}
