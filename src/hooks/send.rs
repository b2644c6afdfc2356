//! Sends requests to receivers: a task for each webhook that something is due for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::signature::Secret;
use crate::classify::{Health, retry_after};
use crate::dispatch::rest::Rest;
use crate::gateway::{Call, Gateways, Reply};
use crate::metrics::Metrics;
use crate::model::clock::{Clock, Timestamp, uuid_of};
use crate::model::hook::{DeliveryState, DisabledWhy};
use crate::model::id::WebhookId;
use crate::model::subscription::Endpoint;
use crate::policy::breaker::{Breaker, Permission, State};
use crate::policy::{Layer, Phased, Place, Preset, Retry, Settings, Terms};
use crate::store::hooks::deliveries::{self, Claimed, Settled};
use crate::store::hooks::webhooks::{self, Target};
use crate::vault::{Unopenable, Vault, WEBHOOK_BODY, WEBHOOK_SECRET, WEBHOOK_URL};

/// When a webhook without a policy of its own is tried again: Amazon SNS's timetable of 50 retries in over six hours.
const DEFAULT_POLICY: Preset = Preset::CustomerManaged;

/// How often it is looked for what is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The same while the process rests and nothing is under way.
const LOOK_AT_REST: Duration = Duration::from_secs(5);
/// Requests of one webhook in flight, at most.
const AT_ONCE: usize = 8;
/// Requests in flight of all webhooks together, at most: so much of their bodies is in memory.
const AT_ONCE_OF_ALL: usize = 512;
/// How long a receiver may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// What this process knows of a webhook is forgotten when nothing was due for it for so long. Where its breaker stands is in the
/// database.
const FORGOTTEN_AFTER: TimeDelta = TimeDelta::hours(1);
/// A webhook that has taken nothing for so long is disabled.
const DISABLED_AFTER: TimeDelta = TimeDelta::days(5);
/// Characters of an answer that are kept.
const REASON_MAX: usize = 300;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Sends for ever.
pub(crate) async fn send_on(sender: Sender, rest: Arc<Rest>) {
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        match sender.begin().await {
            Ok(lines) => lines.into_iter().for_each(|line| drop(running.spawn(line))),
            Err(error) => warn!(%error, "what is due for webhooks could not be read; it is tried again"),
        }
        rest.pause(LOOK_EVERY, LOOK_AT_REST).await;
    }
}

/// This process's sender. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Sender(Arc<Inner>);

struct Inner {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    gateways: Gateways,
    metrics: Arc<Metrics>,
    /// Each with when something was last due for it.
    lines: Mutex<HashMap<WebhookId, (Arc<Line>, Timestamp)>>,
    places: Semaphore,
    /// Makes leases that pass on to others when this process dies, if it has a worker, who is missed.
    lessor: OnceLock<Lessor>,
}

/// Makes leases.
type Lessor = Box<dyn Fn() -> Uuid + Send + Sync>;

/// What this process knows of a webhook.
struct Line {
    breaker: Mutex<Breaker>,
    /// Whether a task sends to it.
    is_busy: AtomicBool,
    /// Since when it fails, as far as is known here.
    failing_since: Mutex<Option<Timestamp>>,
}

/// A webhook, opened.
struct Receiver {
    target: Target,
    endpoint: Endpoint,
    retry: Retry,
    content_type: HeaderValue,
    /// The present one, and the former one while it signs still.
    secrets: Vec<Secret>,
    line: Arc<Line>,
}

/// A right to make a request, to be used or given back.
#[derive(Debug, Clone, Copy)]
enum Permit {
    Ordinary(u64),
    Probe,
}

/// A request that was made, and what came back.
struct Answered {
    settled: Settled,
    permit: Permit,
    posted_at: Timestamp,
}

impl Sender {
    /// Nothing is sent before somebody asks for it.
    pub fn new(pool: PgPool, vault: Vault, clock: Clock, gateways: Gateways, metrics: Arc<Metrics>) -> Self {
        let places = Semaphore::new(AT_ONCE_OF_ALL);
        let (lines, lessor) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(Inner { pool, vault, clock, gateways, metrics, lines, places, lessor }))
    }

    /// Claims under leases that are made so, which others take over when this process's worker dies.
    pub(crate) fn lease_by(&self, lessor: impl Fn() -> Uuid + Send + Sync + 'static) {
        let _ = self.0.lessor.set(Box::new(lessor)); // nobody else sets it
    }

    /// How many webhooks this process remembers something of.
    pub fn remembered(&self) -> usize {
        self.0.lines.lock().len()
    }

    /// Sends everything that is due now, and waits for what comes of it.
    pub async fn run_until_idle(&self) -> sqlx::Result<()> {
        loop {
            let mut lines = JoinSet::from_iter(self.begin().await?);
            if lines.is_empty() {
                return Ok(());
            }
            while lines.join_next().await.is_some() {}
        }
    }

    /// Looks for what is due. Returns a task for each webhook that something is due for, that may be sent to, and that no task
    /// of this process sends to yet.
    pub async fn begin(&self) -> sqlx::Result<Vec<BoxFuture<'static, ()>>> {
        let now = self.0.clock.now();
        let due = webhooks::due(&self.0.pool, now).await?;
        let mut begun = Vec::new();
        for target in due {
            let line = self.line(&target, now);
            let may_send = match line.breaker.lock().snapshot().state {
                State::Open { until } => until <= now,
                State::Closed | State::HalfOpen => true,
            };
            if !may_send || line.is_busy.swap(true, Ordering::AcqRel) {
                continue;
            }
            let busy = Busy(line.clone());
            match self.open(target, line) {
                Ok(receiver) => begun.push(send_all(self.0.clone(), receiver, busy).boxed()),
                Err(error) => error!(%error, "a webhook cannot be opened; what is due for it waits"),
            }
        }
        let is_of_use = |line: &Line, due_at| line.is_busy.load(Ordering::Acquire) || now - due_at < FORGOTTEN_AFTER;
        self.0.lines.lock().retain(|_, (line, due_at)| is_of_use(line, *due_at));
        Ok(begun)
    }

    /// What is known of a webhook here, with what others found out of it.
    fn line(&self, target: &Target, now: Timestamp) -> Arc<Line> {
        let mut lines = self.0.lines.lock();
        let (line, due_at) = lines.entry(target.id).or_insert_with(|| {
            let breaker = target.breaker().map_or_else(|| Breaker::closed(now), Breaker::restore);
            let (is_busy, failing_since) = (AtomicBool::new(false), Mutex::default());
            (Arc::new(Line { breaker: Mutex::new(breaker), is_busy, failing_since }), now)
        });
        *due_at = now;
        if let Some(stored) = target.breaker() {
            line.breaker.lock().adopt(stored);
        }
        *line.failing_since.lock() = target.failing_since;
        line.clone()
    }

    fn open(&self, target: Target, line: Arc<Line>) -> Result<Receiver, Unopenable> {
        let vault = &self.0.vault;
        let url = String::from_utf8(vault.open(WEBHOOK_URL, target.id, &target.url)?).unwrap_or_default();
        let sealed = std::iter::once(&target.secret).chain(&target.former_secret);
        let secrets = sealed.map(|secret| vault.open(WEBHOOK_SECRET, target.id, secret).map(Secret::from_octets));
        let secrets = secrets.collect::<Result<_, _>>()?;
        let terms = Terms { place: Place::Message, max_retries: u32::try_from(target.max_retries).unwrap_or(0) };
        let layer = target.policy.as_ref().and_then(|policy| Layer::restore(policy, &terms).ok());
        let layer = layer.map(|parsed| parsed.layer).unwrap_or_default();
        let content_type = layer.request.and_then(|request| HeaderValue::from_str(&request.header_content_type).ok());
        Ok(Receiver {
            endpoint: Endpoint::parse(&url).map_err(|_| Unopenable::of(WEBHOOK_URL))?,
            retry: layer.retry.unwrap_or_else(|| Retry::Phased(Phased::preset(DEFAULT_POLICY))),
            content_type: content_type.unwrap_or(HeaderValue::from_static("application/json")),
            secrets,
            target,
            line,
        })
    }
}

/// Held by the task that sends to a webhook; lets another one do so however it ends.
struct Busy(Arc<Line>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

/// Sends what is due for a webhook, until nothing is or its breaker opens.
async fn send_all(inner: Arc<Inner>, receiver: Receiver, _busy: Busy) {
    let mut in_flight = FuturesUnordered::new();
    let mut may_be_more = true;
    loop {
        if may_be_more && in_flight.len() <= AT_ONCE / 2 {
            match inner.claim(&receiver, AT_ONCE - in_flight.len()).await {
                Ok(claimed) => {
                    may_be_more = !claimed.is_empty();
                    in_flight
                        .extend(claimed.into_iter().map(|(claimed, permit)| inner.send(&receiver, claimed, permit)));
                }
                Err(error) => {
                    warn!(%error, webhook = %receiver.target.id, "what is due for a webhook could not be claimed");
                    may_be_more = false;
                }
            }
        }
        let Some(first) = in_flight.next().await else { return };
        let mut answered = vec![first];
        while let Some(Some(next)) = in_flight.next().now_or_never() {
            answered.push(next);
        }
        if let Err(error) = inner.settle(&receiver, answered).await {
            // Their leases run out, and they are sent once more under the same ids.
            warn!(%error, webhook = %receiver.target.id, "what a webhook's receiver said could not be written down");
            may_be_more = false;
        }
    }
}

impl Inner {
    fn lease(&self, now: Timestamp) -> Uuid {
        self.lessor.get().map_or_else(|| uuid_of(now), |lessor| lessor())
    }

    /// Claims what is due, as many as the breaker lets through.
    async fn claim(&self, receiver: &Receiver, most: usize) -> sqlx::Result<Vec<(Claimed, Permit)>> {
        let now = self.clock.now();
        let mut permits = {
            let mut breaker = receiver.line.breaker.lock();
            std::iter::repeat_with(|| breaker.permit(now, true)).take(most).map_while(permit).collect::<Vec<_>>()
        };
        let claimed = match permits.len() {
            0 => Ok(Vec::new()),
            n => deliveries::claim(&self.pool, receiver.target.id, n, self.lease(now), now).await,
        };
        let n = claimed.as_ref().map_or(0, Vec::len);
        let mut breaker = receiver.line.breaker.lock();
        for unused in permits.drain(n..) {
            match unused {
                Permit::Ordinary(number) => breaker.withdraw(number, now),
                Permit::Probe => drop(breaker.record_probe(now, Health::Unknown, &Settings::DEFAULT)),
            }
        }
        Ok(claimed?.into_iter().zip(permits).collect())
    }

    async fn send(&self, receiver: &Receiver, claimed: Claimed, permit: Permit) -> Answered {
        let _place = self.places.acquire().await.expect("it is never closed");
        let (posted_at, began) = (self.clock.now(), Instant::now());
        let reply = self.post(receiver, &claimed, posted_at).await;
        let (now, took) = (self.clock.now(), began.elapsed());
        let mut settled = Settled {
            id: claimed.id,
            lease: claimed.lease,
            state: DeliveryState::Delivered,
            due_at: now,
            at: now,
            status: reply.as_ref().ok().map(|reply| reply.status),
            took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
            reason: None,
        };
        let wait = match reply {
            Ok(Reply { status: 200..300, .. }) => return Answered { settled, permit, posted_at },
            Ok(reply) => {
                settled.reason = words(&reply.body);
                retry_after::from_headers(&reply.headers, now)
            }
            Err(why) => {
                settled.reason = Some(why);
                None
            }
        };
        let retries = u32::try_from(claimed.retries).unwrap_or(u32::MAX);
        match receiver.retry.delay(retries, self.clock.randomness()) {
            Some(delay) => {
                settled.state = DeliveryState::Pending;
                settled.due_at = now + delay.max(wait.unwrap_or_default());
            }
            None => settled.state = DeliveryState::Failed,
        }
        Answered { settled, permit, posted_at }
    }

    async fn post(&self, receiver: &Receiver, claimed: &Claimed, now: Timestamp) -> Result<Reply, String> {
        let body = self.vault.open(WEBHOOK_BODY, claimed.id, &claimed.body).map_err(|error| error.to_string())?;
        let (id, timestamp_s) = (claimed.id.to_string(), now.timestamp());
        let signatures: Vec<_> = receiver.secrets.iter().map(|secret| secret.sign(&id, timestamp_s, &body)).collect();
        let header = |text: String| HeaderValue::try_from(text).expect("ASCII without control characters");
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(ID, header(id));
        headers.insert(TIMESTAMP, timestamp_s.into());
        headers.insert(SIGNATURE, header(signatures.join(" ")));
        headers.insert(CONTENT_TYPE, receiver.content_type.clone());
        headers.insert(CONTENT_LENGTH, body.len().into());
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION"))));
        let (endpoint, body) = (receiver.endpoint.clone(), Bytes::from(body));
        // Rules may have changed since it was stored; addresses are checked at each connect.
        self.gateways.recognise(&endpoint).map_err(|refused| refused.to_string())?;
        let call = Call { endpoint, headers, body, deadline: Instant::now() + PATIENCE };
        self.gateways.call(call).await.map_err(|failure| failure.name().to_owned())
    }

    /// Writes down what came back, and draws conclusions for the webhook.
    async fn settle(&self, receiver: &Receiver, answered: Vec<Answered>) -> sqlx::Result<()> {
        let now = self.clock.now();
        let (target, line) = (&receiver.target, &receiver.line);
        let is_gone = answered.iter().any(|it| it.settled.status == Some(410));
        let took_any = answered.iter().any(|it| it.settled.state == DeliveryState::Delivered);
        let changed = {
            let mut breaker = line.breaker.lock();
            let states = answered.iter().filter_map(|it| record(&mut breaker, it, now));
            states.last().map(|state| (state, breaker.snapshot()))
        };
        let settled: Vec<Settled> = answered.into_iter().map(|it| it.settled).collect();
        deliveries::settle(&self.pool, &settled).await?;
        settled.iter().for_each(|it| self.metrics.webhook_request(it.state));
        if let Some((state, snapshot)) = changed {
            info!(webhook = %target.id, state = state.name(), "a webhook's breaker changed");
            webhooks::share_breaker(&self.pool, target.id, snapshot).await?;
        }
        let failing_since = *line.failing_since.lock();
        match (took_any, failing_since) {
            (true, None) => {}
            (true, Some(_)) => {
                webhooks::set_failing(&self.pool, target.id, None).await?;
                *line.failing_since.lock() = None;
            }
            (false, None) => {
                webhooks::set_failing(&self.pool, target.id, Some(now)).await?;
                *line.failing_since.lock() = Some(now);
            }
            (false, Some(since)) if now - since >= DISABLED_AFTER => {
                webhooks::disable(&self.pool, target.app, target.id, DisabledWhy::Failing, now).await?;
            }
            (false, Some(_)) => {}
        }
        if is_gone {
            webhooks::disable(&self.pool, target.app, target.id, DisabledWhy::Gone, now).await?;
        }
        Ok(())
    }
}

/// The right that a breaker gives, if it does.
fn permit(permission: Permission) -> Option<Permit> {
    match permission {
        Permission::Go(number) => Some(Permit::Ordinary(number)),
        Permission::Probe => Some(Permit::Probe),
        Permission::Wait(_) => None,
    }
}

/// Tells a breaker what came back. Returns its new state if that changed.
fn record(breaker: &mut Breaker, answered: &Answered, now: Timestamp) -> Option<State> {
    let took = answered.settled.state == DeliveryState::Delivered;
    let health = if took { Health::Alive } else { Health::Failing };
    match answered.permit {
        Permit::Ordinary(number) => breaker.record(number, answered.posted_at, now, health, &Settings::DEFAULT),
        Permit::Probe => breaker.record_probe(now, health, &Settings::DEFAULT),
    }
}

/// The first words of an answer, on one line; none: it has none.
fn words(body: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(body).chars().take(REASON_MAX).collect();
    let text = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    Some(text.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answers_words_are_short_and_on_one_line() {
        assert_eq!(words(b""), None);
        assert_eq!(words(b" \r\n\0 "), None);
        assert_eq!(words(b"no\r\n\tsuch\0thing ").as_deref(), Some("no such thing"));
        assert_eq!(words("ä".repeat(4_096).as_bytes()).map(|text| text.chars().count()), Some(REASON_MAX));
        assert!(words(&[0xff; 9]).is_some());
    }
}
