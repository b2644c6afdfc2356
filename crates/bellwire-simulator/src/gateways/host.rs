//! One simulated gateway: examines a request, chooses the response, and records both. Independent of the protocol of
//! [`super::http2`] or [`super::http1`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::browsers::{self, Browsers, Push};
use super::check::{self, RequestFault, Verified, VerifiedToken};
use super::decrypt::{Unreadable, open};
use super::logbook::{Counters, Logbook, Sample};
use super::responses;
use super::rule::RuleAction;
use super::script::{self, Live, Rules, Script, Subject};
use super::subscriptions::{MintResolution, MintTarget, Minter, fingerprint};
use bellwire_core::clock::Clock;
use bellwire_core::lane::Gateway;

/// Maximum bytes of a body that are read: more than every limit, so that a larger body is refused by its size.
pub(super) const BODY_MAX: usize = 16 * 1024;
/// Verified VAPID headers that are cached, for each host.
const TOKENS_MAX: usize = 4_096;

/// The state of one host, shared by its connections.
pub(super) struct Host {
    pub id: u16,
    pub name: String,
    pub gateway: Gateway,
    pub minter: Minter,
    pub body_limit: usize,
    /// One endpoint in this number is decrypted and recorded.
    pub sample: u32,
    pub counters: Counters,
    pub browsers: Option<Browsers>,
    pub logbook: Arc<Logbook>,
    pub script: Arc<Script>,
    pub clock: Clock,
    pub tokens: Mutex<HashMap<HeaderValue, Verified>>,
    pub serial: AtomicU64,
}

/// Current time, read once for all requests handled together.
pub(super) struct Moment {
    pub unix_ms: i64,
    pub instant: Instant,
    date: HeaderValue,
    date_of: i64,
}

impl Moment {
    pub(super) fn new(clock: &Clock) -> Self {
        let mut moment =
            Self { unix_ms: 0, instant: Instant::now(), date: HeaderValue::from_static(""), date_of: i64::MIN };
        moment.renew(clock);
        moment
    }

    pub(super) fn renew(&mut self, clock: &Clock) {
        let now = clock.now();
        self.unix_ms = now.timestamp_millis();
        self.instant = Instant::now();
        if self.date_of != now.timestamp() {
            self.date_of = now.timestamp();
            let date = now.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
            self.date = HeaderValue::from_str(&date).expect("a date is printable ASCII");
        }
    }
}

/// State shared by all requests of a connection.
pub(super) struct Desk {
    pub host: Arc<Host>,
    pub now: Moment,
    rules: Rules,
    rules_version: u64,
    /// The last VAPID header and its result.
    token: Option<(HeaderValue, Verified)>,
}

pub(super) struct Exchange {
    target: Option<MintTarget>,
    discovery: bool,
    refusal: Option<RequestFault>,
    gone: bool,
    ttl: u64,
    sample: Option<Sample>,
    /// Message for a real browser, if the request has no fault.
    push: Option<Push>,
}

pub(super) enum Plan {
    Answer(Response<Bytes>),
    Act(Arc<Live>, Exchange),
}

impl Desk {
    pub(super) fn new(host: Arc<Host>) -> Self {
        let (rules_version, rules) = (host.script.version(), host.script.current());
        Self { now: Moment::new(&host.clock), rules, rules_version, token: None, host }
    }

    /// Updates the time and the rules.
    pub(super) fn renew(&mut self) {
        self.now.renew(&self.host.clock);
        let version = self.host.script.version();
        if version != self.rules_version {
            self.rules_version = version;
            self.rules = self.host.script.current();
        }
    }

    /// Examines a request and chooses its treatment.
    pub(super) fn plan(&mut self, head: &http::request::Parts, body: &Bytes) -> Plan {
        let exchange = self.examine(head, body);
        let host = &self.host;
        let rule = match self.rules.is_empty() {
            true => None,
            false => script::for_request(&self.rules, &host.subject(exchange.target), self.now.instant),
        };
        let response = match &rule {
            None => host.answer(&exchange),
            Some(live) if live.rule.delay_ms > 0 => return Plan::Act(Arc::clone(live), exchange),
            Some(live) => match host.scripted(&live.rule.action, &exchange) {
                Some(response) => response,
                None => return Plan::Act(Arc::clone(live), exchange),
            },
        };
        Plan::Answer(host.send(exchange, response, &self.now))
    }

    fn examine(&mut self, head: &http::request::Parts, body: &Bytes) -> Exchange {
        let host = Arc::clone(&self.host);
        let mut faults = Vec::new();
        let mut exchange = Exchange {
            target: None,
            discovery: head.method == Method::GET,
            refusal: None,
            gone: false,
            ttl: 0,
            sample: None,
            push: None,
        };
        let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match host.minter.resolve(path) {
            MintResolution::Known(target) => exchange.target = Some(target),
            MintResolution::Escaped => faults.push(RequestFault::EscapedToken),
            MintResolution::Unknown => faults.push(RequestFault::UnknownEndpoint),
        }
        if head.method != Method::POST {
            faults.insert(0, RequestFault::Method);
        } else if let Some(target) = exchange.target {
            self.check_vapid(head, target, &mut faults);
            match check::ttl(host.gateway, &head.headers) {
                Ok(ttl) => exchange.ttl = ttl,
                Err(fault) => faults.push(fault),
            }
            check::headers(host.gateway, &head.headers, !body.is_empty(), &mut faults);
            if body.len() > host.body_limit {
                faults.push(RequestFault::TooLarge);
            }
            if let Some(browsers) = host.browsers_of(target) {
                exchange.gone = !browsers.knows(target.index);
                let topic = check::text(&head.headers, "topic");
                exchange.push = Some(Push { body: body.clone(), ttl_s: exchange.ttl, topic });
            } else if host.minter.sampled(target.index, host.sample) && !body.is_empty() {
                exchange.sample = host.open(head, target, body, &mut faults);
            }
        }
        for fault in faults.iter().filter(|_| !exchange.discovery) {
            let place = || match exchange.target {
                Some(target) => format!("{} #{}", host.name, target.index),
                None => format!("{} (no endpoint)", host.name),
            };
            host.logbook.fault(*fault, place);
        }
        exchange.refusal = faults.into_iter().find(|fault| responses::refusal(host.gateway, *fault).is_some());
        exchange.push.take_if(|_| exchange.refusal.is_some());
        exchange
    }

    fn check_vapid(&mut self, head: &http::request::Parts, target: MintTarget, faults: &mut Vec<RequestFault>) {
        let Some(authorization) = head.headers.get(header::AUTHORIZATION) else {
            if target.bound.is_some() || responses::demands_vapid(self.host.gateway) {
                faults.push(RequestFault::VapidMissing);
            }
            return;
        };
        let verified = match &self.token {
            Some((last, verified)) if last == authorization => verified,
            _ => {
                let verified = self.host.verified(authorization);
                &self.token.insert((authorization.clone(), verified)).1
            }
        };
        match verified.as_ref() {
            Err(fault) => faults.push(*fault),
            Ok(token) => {
                let (host, now_s) = (&self.host, self.now.unix_ms.div_euclid(1000));
                token.check(host.gateway, host.minter.origin(), target, now_s, faults);
            }
        }
    }
}

impl Host {
    /// Returns the current time in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().timestamp_millis()
    }

    /// Returns the browsers, if the endpoint belongs to one of them.
    fn browsers_of(&self, target: MintTarget) -> Option<&Browsers> {
        self.browsers.as_ref().filter(|_| target.index >= browsers::FIRST_INDEX)
    }

    /// Returns the subject of rules for a request, or for a connection without an endpoint.
    pub(super) fn subject(&self, target: Option<MintTarget>) -> Subject<'_> {
        let endpoint = target.map(|target| (target.index, self.minter.fraction(target.index)));
        Subject { host: (self.id, &self.name), gateway: self.gateway, endpoint }
    }

    fn verified(&self, authorization: &HeaderValue) -> Verified {
        if let Some(verified) = self.tokens.lock().get(authorization) {
            return Arc::clone(verified);
        }
        let verified = Arc::new(VerifiedToken::read(authorization));
        let mut tokens = self.tokens.lock();
        if tokens.len() >= TOKENS_MAX {
            tokens.clear();
        }
        tokens.insert(authorization.clone(), Arc::clone(&verified));
        verified
    }

    fn open(
        &self, head: &http::request::Parts, target: MintTarget, body: &Bytes, faults: &mut Vec<RequestFault>,
    ) -> Option<Sample> {
        let opened = match open(&self.minter.subscriber(target.index), body) {
            Ok(opened) => opened,
            Err(unreadable) => {
                faults.push(match unreadable {
                    Unreadable::Header(_) | Unreadable::Delimiter => RequestFault::Sealing,
                    Unreadable::Sealed => RequestFault::Unsealable,
                });
                return None;
            }
        };
        let secret = fingerprint(&[&body[..16], &opened.sender].concat());
        if self.logbook.sender_reused(secret, (self.id, target.index)) {
            faults.push(RequestFault::SenderKeyReused);
        }
        Some(Sample {
            id: delivery_id(&opened.plaintext),
            plaintext: opened.plaintext.into(),
            ttl: check::ttl(self.gateway, &head.headers).ok(),
            urgency: check::text(&head.headers, "urgency"),
            topic: check::text(&head.headers, "topic"),
        })
    }

    pub(super) fn answer(&self, exchange: &Exchange) -> Response<Bytes> {
        if exchange.discovery {
            return responses::discovery(self.gateway);
        }
        match exchange.refusal.and_then(|fault| responses::refusal(self.gateway, fault)) {
            Some(refusal) => refusal,
            None if exchange.gone => responses::said(self.gateway, responses::ResponseCase::Gone),
            None => {
                let serial = self.serial.fetch_add(1, Ordering::Relaxed);
                responses::accepted(self.gateway, self.minter.origin(), serial, exchange.ttl)
            }
        }
    }

    /// Returns the response of an action that consists of a response only.
    pub(super) fn scripted(&self, action: &RuleAction, exchange: &Exchange) -> Option<Response<Bytes>> {
        let respond = |status: u16, headers: &[(String, String)], body: &str| {
            let mut builder = Response::builder().status(status);
            for (name, value) in headers {
                builder = builder.header(name, value);
            }
            builder.body(Bytes::copy_from_slice(body.as_bytes())).ok()
        };
        match action {
            RuleAction::Behave => Some(self.answer(exchange)),
            RuleAction::Answer { status, headers, body } => respond(*status, headers, body),
            RuleAction::Redirect { to } => respond(307, &[("location".to_owned(), to.clone())], ""),
            other => other.case().map(|case| responses::said(self.gateway, case)),
        }
    }

    /// Records a response and completes its headers.
    pub(super) fn send(&self, exchange: Exchange, mut response: Response<Bytes>, now: &Moment) -> Response<Bytes> {
        response.headers_mut().insert(header::DATE, now.date.clone());
        let status = response.status();
        self.settle(exchange, Some(status.as_u16()), status.is_success(), now.unix_ms);
        response
    }

    /// Records the result of a request. `accepted`: a real browser receives the message.
    pub(super) fn settle(&self, exchange: Exchange, status: Option<u16>, accepted: bool, now_ms: i64) {
        self.counters.decided(status, accepted && !exchange.discovery);
        if let (true, Some(target), Some(push)) = (accepted, exchange.target, exchange.push) {
            self.browsers_of(target).inspect(|browsers| browsers.push(target.index, push, now_ms));
        }
        if let (Some(target), Some(sample)) = (exchange.target, exchange.sample) {
            self.logbook.record((self.id, &self.name), target.index, sample, status, accepted, now_ms);
        }
    }
}

/// Counts a request while it is held.
struct HeldRequest<'a>(&'a Live);

impl Drop for HeldRequest<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Host {
    /// Waits until the rule releases this request or is removed.
    pub(super) async fn hold(&self, live: &Live) {
        live.held.fetch_add(1, Ordering::Relaxed);
        let _held = HeldRequest(live);
        self.logbook.touch(self.now_ms());
        if let Ok(permit) = live.gate.acquire().await {
            permit.forget();
        }
    }
}

/// Returns the delivery id of a Bellwire plaintext, declarative or raw.
fn delivery_id(plaintext: &[u8]) -> Option<Box<str>> {
    let json: serde_json::Value = serde_json::from_slice(plaintext).ok()?;
    let id = json.pointer("/notification/data/bellwire/id").or_else(|| json.pointer("/bellwire/id"))?;
    id.as_str().map(Into::into)
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/host.rs"]
mod tests;
