//! Meaning of a gateway's response: status, headers and body, or a transport failure, become one outcome.
//!
//! The status decides first (RFC 8030 section 5, RFC 9110 section 15). Headers or the body of a known gateway refine it, and an
//! empty or unreadable body changes nothing. [`crate::policy::decide`] then turns the outcome into a verdict.

mod detail;
pub mod retry_after;

use std::time::Duration;

use http::HeaderMap;
use serde::Deserialize;

use bellwire_core::clock::Timestamp;
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// The longest wait that one throttling response is heeded for: an hour.
const THROTTLED_MAX: Duration = Duration::from_secs(3_600);

named! {
    /// Why a POST got no answer. Made by the gateway client, read by [`classify`].
    pub enum Failure {
        /// The endpoint's host has no address at present, or no resolver responded.
        Resolve = "resolve",
        /// The endpoint's host has no address and never will have one: DNS did not find it for hours, or it ends in `.invalid`
        /// (RFC 6761 section 6.4). Chrome uses `permanently-removed.invalid` for subscriptions that it revoked.
        InvalidHost = "invalid_host",
        /// The endpoint's host is not one that may be talked to, or resolves to an address that is not public.
        Forbidden = "forbidden",
        /// No TCP connection was established.
        Connect = "connect",
        /// The network's outbound proxy provided no connection. The fault is on this side, for any response of the proxy.
        Proxy = "proxy",
        /// No TLS session: bad certificate or handshake.
        Tls = "tls",
        /// The gateway did not take the request: REFUSED_STREAM, or a stream above GOAWAY's last id (RFC 9113 section 8.7).
        /// Sending it again cannot double it.
        Unprocessed = "unprocessed",
        /// The sender withdrew the request before the gateway had a stream for it. Nothing was sent.
        Withdrawn = "withdrawn",
        /// The connection or stream broke after the request may have been read.
        Reset = "reset",
        /// The peer broke the protocol.
        Protocol = "protocol",
        /// No complete answer before the deadline.
        Deadline = "deadline",
    }
}

impl Failure {
    /// Returns the failure of a host without an address: [`InvalidHost`](Self::InvalidHost) if its name is never valid.
    pub fn unresolved(host: &str) -> Self {
        let host = host.strip_suffix('.').unwrap_or(host);
        match host.rsplit('.').next() {
            Some(last) if last.eq_ignore_ascii_case("invalid") => Failure::InvalidHost,
            _ => Failure::Resolve,
        }
    }

    /// Whether no gateway was reached. The cause may be here: the network of this machine, or its clock, by which a
    /// certificate is not valid.
    pub fn is_unreached(self) -> bool {
        matches!(self, Failure::Resolve | Failure::Connect | Failure::Proxy | Failure::Tls)
    }
}

/// Result of a POST, borrowed from the connection.
#[derive(Debug, Clone, Copy)]
pub enum PostResult<'a> {
    /// Response of the gateway.
    Response {
        /// The status as it stood on the wire; any number, valid or not.
        status: u16,
        /// Headers of the response.
        headers: &'a HeaderMap,
        /// The body, as much of it as was read.
        body: &'a [u8],
    },
    /// No response.
    Failure(Failure),
}

named! {
    /// Reason why a delivery is dead. The name is stored in `dead_letters.reason` and never changes its meaning. Each reason
    /// leaves a dead letter that waits to be replayed or discarded, and an event of the app.
    pub enum DeadReason {
        /// 400: the gateway rejects the request itself. [`classify`] returns it for the first such response.
        BadRequest = "bad_request",
        /// 401 or 403, or Apple's 400 for a VAPID key that does not match the subscription. [`classify`] returns it. A key that
        /// is refused for many subscriptions is held instead, with an alert.
        Unauthorized = "unauthorized",
        /// 413, and the payload cannot shrink further. [`decide`](crate::policy::decide) returns it, or dispatch if nothing can
        /// be left out.
        PayloadTooLarge = "payload_too_large",
        /// 489 with the header that forbids a retry. [`classify`] returns it.
        NonRetryable = "non_retryable",
        /// 3xx: redirects are never followed. [`classify`] returns it.
        Redirected = "redirected",
        /// Any other 4xx, distinguished by the stored status. [`classify`] returns it.
        Http4xx = "http_4xx",
        /// The endpoint's host is forbidden: its push service is not allowed, or it leads into a private network. The gateway's
        /// guard returns it.
        EndpointForbidden = "endpoint_forbidden",
        /// All retries of the policy failed, or the guide's window of 24 hours closed. [`decide`](crate::policy::decide) returns
        /// it.
        RetriesExhausted = "retries_exhausted",
        /// Claimed five times without an ending, because its workers crashed. Dispatch sets it at the next claim.
        LeaseExhausted = "lease_exhausted",
        /// The retry token does not match the row, which was changed by hand. Dispatch sets it at the claim, and raises an alert.
        Tampered = "tampered",
        /// This attempt was already made, and its row was restored by hand. Dispatch sets it at the claim, and raises an alert.
        Replayed = "replayed",
        /// Keys or payload could not be decrypted or encrypted. Dispatch sets it before the request.
        Unsealable = "unsealable",
        /// The template could not be rendered for the recipient: a variable is undefined, or the result breaks a rule, such as that of
        /// links. Dispatch sets it before the request.
        Unrenderable = "unrenderable",
        /// The rendered template is too long for a push, and its author allows no cut, or the cut was not enough. Dispatch sets
        /// it before the request.
        TooLong = "too_long",
    }
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// The gateway took the message.
    Accepted {
        /// Granted `TTL` in seconds, if the response has one (RFC 8030 section 5.2).
        ttl_granted_s: Option<u32>,
    },
    /// It takes nothing more for this subscription for a while: the subscription waits.
    Throttled,
    /// The gateway accepts nothing from this sender for a while: the lane is held.
    SenderThrottled,
    /// It could not be reached or could not cope.
    Unavailable {
        /// Whether the response invites an immediate retry (Mozilla's errno 202).
        retry_now: bool,
    },
    /// The network's own proxy prevented the request. Another try costs no attempt, but the lane has to wait.
    CutOff,
    /// It did not take the request; another try costs no attempt.
    Unprocessed,
    /// The payload is larger than this gateway takes.
    TooLarge,
    /// The subscription no longer exists: it is pruned.
    Gone,
    /// It will never take this message; never a reason to prune.
    Refused {
        /// Reason for the dead letter.
        reason: DeadReason,
    },
}

impl ResponseKind {
    /// Whether the push service asks for patience.
    pub fn is_throttling(self) -> bool {
        matches!(self, ResponseKind::Throttled | ResponseKind::SenderThrottled)
    }
}

/// Health of the gateway shown by a response, for the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It answered sensibly, even if the answer was a refusal.
    Alive,
    /// The gateway failed.
    Failing,
    /// Nothing: the request never was the gateway's.
    Unknown,
}

/// Classified response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Kind of the outcome.
    pub kind: ResponseKind,
    /// The HTTP status; none if there was no answer.
    pub status: Option<u16>,
    /// Time after which the gateway accepts a retry: at most an hour if it throttles, at most a day otherwise. Read only for
    /// kinds that lead to a retry.
    pub retry_after: Option<Duration>,
    /// The gateway's words or the failure's name: at most 500 octets, no NUL, no URL. None for accepted.
    pub detail: Option<Box<str>>,
}

impl Outcome {
    /// Bounds the wait that the push service asks for: what it refuses is held until then.
    pub fn bound_wait(&mut self, now: Timestamp, until: Timestamp) {
        let longest = (until - now).to_std().unwrap_or_default();
        self.retry_after = self.retry_after.map(|wait| wait.min(longest));
    }

    /// Returns the health of the gateway that this outcome shows.
    pub fn health(&self) -> Health {
        match (self.kind, self.status) {
            (ResponseKind::Unavailable { .. } | ResponseKind::CutOff, _) => Health::Failing,
            (ResponseKind::Unprocessed, _) | (_, None) => Health::Unknown,
            _ => Health::Alive,
        }
    }

    /// Whether the gateway refused the VAPID key or token.
    pub fn refuses_key(&self) -> bool {
        self.kind == ResponseKind::Refused { reason: DeadReason::Unauthorized }
    }

    /// Whether it shows that the gateway accepts or refuses the VAPID key, which [`KeyWatch`](crate::policy::hold::KeyWatch)
    /// counts.
    pub fn judges_key(&self) -> bool {
        self.refuses_key() || matches!(self.kind, ResponseKind::Accepted { .. })
    }
}

/// Understands an answer of `gateway`, received at `now`. Total: every status from 0 to 65,535 and every failure has
/// a meaning. Allocates nothing for an accepted answer.
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

/// WNS throttles with 406 or 429, and a header names the scope, even in a 2xx that was not a delivery: `dropped` and
/// `channelthrottled` mean one device. `appthrottled` means the sender, like 406 alone.
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

/// Mozilla's `errno`: 103, 105 and 106 mean a gone subscription, 201 a backoff, and 202 an immediate retry. Statuses that must
/// never prune (refused keys, throttling, server errors) do not prune with any body.
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

/// Apple's 400 also covers VAPID keys that are not the subscription's, and requests that it did not read in time. Its 429 means a
/// device, unless the reason names the sender's tokens.
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
