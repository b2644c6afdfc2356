//! Sends requests to receivers, in one task for each webhook with due requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::signature::Secret;
use bellwire_core::clock::{Clock, Timestamp, uuid_of};
use bellwire_core::hook::{DeliveryState, WebhookDisabledReason};
use bellwire_core::id::{WebhookDeliveryId, WebhookId};
use bellwire_core::subscription::Endpoint;
use bellwire_dispatch::idle::Rest;
use bellwire_gateway::{Call, Gateways, Reply};
use bellwire_rules::classify::{Failure, Health, retry_after};
use bellwire_rules::policy::breaker::{Breaker, BreakerState, Permission};
use bellwire_rules::policy::{Layer, Phased, PolicyLevel, Preset, Retry, Terms, TierSettings};
use bellwire_store::hooks::deliveries::{self, Claimed, Settled};
use bellwire_store::hooks::webhooks::{self, WebhookTarget};
use bellwire_telemetry::metrics::Metrics;
use bellwire_vault::{Unopenable, Vault, WEBHOOK_BODY, WEBHOOK_SECRET, WEBHOOK_URL};

/// Retry policy of a webhook that names none: Amazon SNS's schedule of 50 retries in over six hours.
const DEFAULT_POLICY: Preset = Preset::CustomerManaged;

/// Interval of the search for due events.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Poll interval while the process is idle.
const LOOK_AT_REST: Duration = Duration::from_secs(5);
/// Maximum requests in flight of one webhook.
const AT_ONCE: usize = 8;
/// Maximum requests in flight of all webhooks together, whose bodies are in memory.
const AT_ONCE_OF_ALL: usize = 512;
/// Response timeout of a receiver, from the time the request has a connection.
const PATIENCE: Duration = Duration::from_secs(15);
/// Maximum time from a claim to the start of a request, so that its response arrives within the lease.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Delay of a request that had no connection in time. It uses up no retry.
const UNSENT_WAIT: Duration = Duration::from_secs(1);
/// Time without an accepted request after which a receiver's failures count for its breaker. A receiver that accepts some
/// requests gets them all.
const SPARED_AFTER: TimeDelta = TimeDelta::seconds(30);
/// Breakers of receivers open for a shorter time than those of push services.
const BREAKER: TierSettings = TierSettings {
    circuit_open: Duration::from_secs(10),
    circuit_open_max: Duration::from_secs(60),
    ..TierSettings::DEFAULT
};
/// Idle time after which this process drops its state of a webhook. The circuit breaker's state is in the database.
const FORGOTTEN_AFTER: TimeDelta = TimeDelta::hours(1);
/// Time without an accepted request after which a webhook is disabled.
const DISABLED_AFTER: TimeDelta = TimeDelta::days(5);
/// Maximum stored characters of a response.
const REASON_MAX: usize = 300;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
/// Header with the number of retries so far, 0 at the first attempt.
const RETRY_COUNT: &str = "webhook-retry-count";

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
pub struct Sender(Arc<SenderInner>);

struct SenderInner {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    gateways: Gateways,
    metrics: Arc<Metrics>,
    lines: Mutex<HashMap<WebhookId, (Arc<WebhookQueue>, Timestamp)>>,
    places: Semaphore,
    /// Function that creates leases of this process's worker, which others take over if it crashes. Not set without a worker.
    lessor: OnceLock<Lessor>,
}

type Lessor = Box<dyn Fn() -> Uuid + Send + Sync>;

/// State that this process keeps of a webhook.
struct WebhookQueue {
    breaker: Mutex<Breaker>,
    is_busy: AtomicBool,
    /// Time of the first failure since the last success, as far as this process observed it.
    failing_since: Mutex<Option<Timestamp>>,
}

struct Receiver {
    target: WebhookTarget,
    endpoint: Endpoint,
    retry: Retry,
    content_type: HeaderValue,
    /// Current secret, and the previous one while it is valid.
    secrets: Vec<Secret>,
    line: Arc<WebhookQueue>,
}

/// Permission for one request. Used by the request, or returned unused.
#[derive(Debug, Clone, Copy)]
enum Permit {
    Ordinary(u64),
    Probe,
}

/// A request and its response. The response is `None` if the request was not sent.
struct Answered {
    id: WebhookDeliveryId,
    lease: Uuid,
    settled: Option<Settled>,
    permit: Permit,
    posted_at: Timestamp,
}

enum NoAnswer {
    /// The request was not sent, or the receiver refused it.
    Unsent,
    Failed(String),
}

impl Sender {
    /// Builds the sender. It sends nothing before [`Self::begin`].
    pub fn new(pool: PgPool, vault: Vault, clock: Clock, gateways: Gateways, metrics: Arc<Metrics>) -> Self {
        let places = Semaphore::new(AT_ONCE_OF_ALL);
        let (lines, lessor) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(SenderInner { pool, vault, clock, gateways, metrics, lines, places, lessor }))
    }

    /// Sets the function that creates leases. Other processes take them over when this process's worker crashes.
    pub(crate) fn lease_by(&self, lessor: impl Fn() -> Uuid + Send + Sync + 'static) {
        let _ = self.0.lessor.set(Box::new(lessor)); // set only here
    }

    /// Number of webhooks for which this process holds state.
    pub fn remembered(&self) -> usize {
        self.0.lines.lock().len()
    }

    /// Sends all due requests, and waits for the results.
    pub async fn run_until_idle(&self) -> sqlx::Result<()> {
        loop {
            let mut lines = JoinSet::from_iter(self.begin().await?);
            if lines.is_empty() {
                return Ok(());
            }
            while lines.join_next().await.is_some() {}
        }
    }

    /// Returns a task for each webhook that has due requests, may be sent to, and has no task in this process.
    pub async fn begin(&self) -> sqlx::Result<Vec<BoxFuture<'static, ()>>> {
        let now = self.0.clock.now();
        let due = webhooks::due(&self.0.pool, now).await?;
        let mut begun = Vec::new();
        for target in due {
            let line = self.line(&target, now);
            let may_send = match line.breaker.lock().snapshot().state {
                BreakerState::Open { until } => until <= now,
                BreakerState::Closed | BreakerState::HalfOpen => true,
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
        let is_of_use =
            |line: &WebhookQueue, due_at| line.is_busy.load(Ordering::Acquire) || now - due_at < FORGOTTEN_AFTER;
        self.0.lines.lock().retain(|_, (line, due_at)| is_of_use(line, *due_at));
        Ok(begun)
    }

    /// Returns the state of a webhook, updated by what other processes recorded.
    fn line(&self, target: &WebhookTarget, now: Timestamp) -> Arc<WebhookQueue> {
        let mut lines = self.0.lines.lock();
        let (line, due_at) = lines.entry(target.id).or_insert_with(|| {
            let breaker = target.breaker().map_or_else(|| Breaker::closed(now), Breaker::restore);
            let (is_busy, failing_since) = (AtomicBool::new(false), Mutex::default());
            (Arc::new(WebhookQueue { breaker: Mutex::new(breaker), is_busy, failing_since }), now)
        });
        *due_at = now;
        if let Some(stored) = target.breaker() {
            line.breaker.lock().adopt(stored);
        }
        *line.failing_since.lock() = target.failing_since;
        line.clone()
    }

    fn open(&self, target: WebhookTarget, line: Arc<WebhookQueue>) -> Result<Receiver, Unopenable> {
        let vault = &self.0.vault;
        let url = String::from_utf8(vault.open(WEBHOOK_URL, target.id, &target.url)?).unwrap_or_default();
        let sealed = std::iter::once(&target.secret).chain(&target.former_secret);
        let secrets = sealed.map(|secret| vault.open(WEBHOOK_SECRET, target.id, secret).map(Secret::from_octets));
        let secrets = secrets.collect::<Result<_, _>>()?;
        let terms = Terms { place: PolicyLevel::Message, max_retries: u32::try_from(target.max_retries).unwrap_or(0) };
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

/// Marks a webhook as being sent to. Dropping it allows another task.
struct Busy(Arc<WebhookQueue>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

/// Sends due requests of a webhook until there are none or its breaker opens.
async fn send_all(inner: Arc<SenderInner>, receiver: Receiver, _busy: Busy) {
    let mut in_flight = FuturesUnordered::new();
    let mut may_be_more = true;
    loop {
        if may_be_more && in_flight.len() <= AT_ONCE / 2 {
            match inner.claim(&receiver, AT_ONCE - in_flight.len()).await {
                Ok(claimed) => {
                    may_be_more = !claimed.is_empty();
                    in_flight.extend(claimed.into_iter().map(|claimed| inner.send(&receiver, claimed)));
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
            warn!(%error, webhook = %receiver.target.id, "the response of a webhook's receiver could not be recorded");
            may_be_more = false;
        }
    }
}

impl SenderInner {
    fn lease(&self, now: Timestamp) -> Uuid {
        self.lessor.get().map_or_else(|| uuid_of(now), |lessor| lessor())
    }

    /// Claims due requests, up to the number that the breaker allows.
    async fn claim(&self, receiver: &Receiver, most: usize) -> sqlx::Result<Vec<(Claimed, Permit, Instant)>> {
        let now = self.clock.now();
        let claimed_at = Instant::now();
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
            record(&mut breaker, unused, Health::Unknown, now, now);
        }
        Ok(claimed?.into_iter().zip(permits).map(|(claimed, permit)| (claimed, permit, claimed_at)).collect())
    }

    async fn send(&self, receiver: &Receiver, (claimed, permit, claimed_at): (Claimed, Permit, Instant)) -> Answered {
        let _place = self.places.acquire().await.expect("it is never closed");
        let (posted_at, began) = (self.clock.now(), Instant::now());
        let reply = self.post(receiver, &claimed, posted_at, claimed_at + START_WITHIN).await;
        let (now, took) = (self.clock.now(), began.elapsed());
        let (id, lease) = (claimed.id, claimed.lease);
        let answered = |settled| Answered { id, lease, settled, permit, posted_at };
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
            Ok(Reply { status: 200..300, .. }) => return answered(Some(settled)),
            Ok(reply) => {
                settled.reason = words(&reply.body, receiver.endpoint.expose());
                retry_after::from_headers(&reply.headers, now)
            }
            Err(NoAnswer::Unsent) => return answered(None),
            Err(NoAnswer::Failed(why)) => {
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
        answered(Some(settled))
    }

    async fn post(
        &self, receiver: &Receiver, claimed: &Claimed, now: Timestamp, start_before: Instant,
    ) -> Result<Reply, NoAnswer> {
        let failed = |why: String| NoAnswer::Failed(why);
        let body = self.vault.open(WEBHOOK_BODY, claimed.id, &claimed.body).map_err(|why| failed(why.to_string()))?;
        let (id, timestamp_s) = (claimed.id.to_string(), now.timestamp());
        let signatures: Vec<_> = receiver.secrets.iter().map(|secret| secret.sign(&id, timestamp_s, &body)).collect();
        let header = |text: String| HeaderValue::try_from(text).expect("ASCII without control characters");
        let mut headers = HeaderMap::with_capacity(7);
        headers.insert(ID, header(id));
        headers.insert(TIMESTAMP, timestamp_s.into());
        headers.insert(RETRY_COUNT, claimed.retries.into());
        headers.insert(SIGNATURE, header(signatures.join(" ")));
        headers.insert(CONTENT_TYPE, receiver.content_type.clone());
        headers.insert(CONTENT_LENGTH, body.len().into());
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION"))));
        let (endpoint, body) = (receiver.endpoint.clone(), Bytes::from(body));
        // Rules may have changed since it was stored; addresses are checked at each connect.
        self.gateways.recognise(&endpoint).map_err(|refused| failed(refused.to_string()))?;
        let call = Call { method: Method::POST, endpoint, headers, body, patience: PATIENCE };
        let reply = self.gateways.call_if(call, || Instant::now() <= start_before).await;
        reply.map_err(|failure| match failure {
            Failure::Unprocessed | Failure::Withdrawn => NoAnswer::Unsent,
            failure => failed(failure.name().to_owned()),
        })
    }

    /// Records responses, and updates the webhook's circuit breaker and state.
    async fn settle(&self, receiver: &Receiver, answered: Vec<Answered>) -> sqlx::Result<()> {
        let now = self.clock.now();
        let (target, line) = (&receiver.target, &receiver.line);
        let of_settled = |test: fn(&Settled) -> bool| answered.iter().filter_map(|it| it.settled.as_ref()).any(test);
        let is_gone = of_settled(|settled| settled.status == Some(410));
        let took_any = of_settled(|settled| settled.state == DeliveryState::Delivered);
        let failing_since = *line.failing_since.lock();
        let takes_nothing = !took_any && failing_since.is_some_and(|since| now - since >= SPARED_AFTER);
        let changed = {
            let mut breaker = line.breaker.lock();
            let states = answered
                .iter()
                .filter_map(|it| record(&mut breaker, it.permit, health(it, takes_nothing), it.posted_at, now));
            states.last().map(|state| (state, breaker.snapshot()))
        };
        let unsent = answered.iter().filter(|it| it.settled.is_none()).map(|it| (it.id, it.lease));
        let unsent = unsent.collect::<Vec<_>>();
        let settled: Vec<Settled> = answered.into_iter().filter_map(|it| it.settled).collect();
        if !unsent.is_empty() {
            deliveries::give_back(&self.pool, &unsent, now + UNSENT_WAIT).await?;
        }
        deliveries::settle(&self.pool, &settled).await?;
        settled.iter().for_each(|it| self.metrics.webhook_request(it.state));
        if let Some((state, snapshot)) = changed {
            info!(webhook = %target.id, state = state.name(), "a webhook's breaker changed");
            webhooks::share_breaker(&self.pool, target.id, snapshot).await?;
        }
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
                webhooks::disable(&self.pool, target.app, target.id, WebhookDisabledReason::Failing, now).await?;
            }
            (false, Some(_)) => {}
        }
        if is_gone {
            webhooks::disable(&self.pool, target.app, target.id, WebhookDisabledReason::Gone, now).await?;
        }
        Ok(())
    }
}

/// Converts a breaker's permission. `None`: no request may be sent.
fn permit(permission: Permission) -> Option<Permit> {
    match permission {
        Permission::Go(number) => Some(Permit::Ordinary(number)),
        Permission::Probe => Some(Permit::Probe),
        Permission::Wait(_) => None,
    }
}

/// Returns the health of a receiver shown by a response. A failed probe always counts.
fn health(answered: &Answered, takes_nothing: bool) -> Health {
    let counts = takes_nothing || matches!(answered.permit, Permit::Probe);
    match &answered.settled {
        Some(settled) if settled.state == DeliveryState::Delivered => Health::Alive,
        Some(_) if counts => Health::Failing,
        _ => Health::Unknown,
    }
}

/// Records a response, or withdraws the permission if the response shows nothing. Returns the breaker's new state if it
/// changed.
fn record(
    breaker: &mut Breaker, permit: Permit, health: Health, posted_at: Timestamp, now: Timestamp,
) -> Option<BreakerState> {
    match permit {
        Permit::Ordinary(number) => breaker.record(number, posted_at, now, health, &BREAKER),
        Permit::Probe => breaker.record_probe(now, health, &BREAKER),
    }
}

/// Minimum length of a URL part that may be a secret.
const SECRET_MIN: usize = 8;

/// Returns the beginning of a response on one line, without the URL's long parts. Many receivers repeat the URL, and readers of
/// the reason may not see its secrets.
fn words(body: &[u8], url: &str) -> Option<String> {
    let mut text = String::from_utf8_lossy(body).into_owned();
    let behind_host = url.split(['/', '?', '&', '=']).skip(3);
    for secret in behind_host.filter(|part| part.len() >= SECRET_MIN) {
        text = text.replace(secret, "…");
    }
    let text: String = text.chars().take(REASON_MAX).collect();
    let text = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    Some(text.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "../../tests/unit/hooks/send.rs"]
mod tests;
