//! All series of `/metrics`, each named once. Names and labels are an interface: dashboards and alerts depend on them.
//!
//! Counters of the delivery path are resolved to their series when the registry is created: counting is one atomic addition,
//! without a lookup by labels.

mod labels;
mod process;
mod registry;
mod series;

use std::cmp::Reverse;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::Method;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use crate::panics;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::fact::StatusClass;
use bellwire_core::hook::DeliveryState;
use bellwire_core::lane::Gateway;
use bellwire_core::named;
use bellwire_core::opt_in::OptInStep;
use bellwire_rules::policy::reliability::{self, LaneSums, MetricReading, Sli};
pub use labels::Labels;
use labels::{
    AttemptLabels, EndingLabels, FaultLabel, GatewayLabel, KindLabel, OutcomeLabel, PoolLabels, RequestLabels,
    SliLabels, StepLabel, TierLabel,
};
use process::Process;
use registry::Registry;
pub use registry::{Registered, Value};
pub use series::Histogram;
use series::{Build, Family, plain, seconds};

/// Lanes that have series of their own, at most.
const LANES_MAX: usize = 100;

named! {
    /// Faults of a retry token.
    pub enum TokenFault {
        /// The token does not match its row: the row was changed outside Bellwire. The delivery is dead.
        Tampered = "tampered",
        /// The token's attempt was made already: the row was inserted again. The delivery is dead.
        Replayed = "replayed",
        /// The token is valid, but late. The row's state was read again.
        Late = "late",
    }
}

/// Counter of slow statements. Global, because the log that counts them starts before the metrics.
static SLOW_STATEMENTS: LazyLock<Counter> = LazyLock::new(Counter::default);

pub fn slow_statements() -> &'static Counter {
    &SLOW_STATEMENTS
}

type Attempts = [[[Counter; Tier::ALL.len()]; StatusClass::ALL.len()]; Gateway::ALL.len()];
type Endings = [[Counter; Tier::ALL.len()]; Ending::ALL.len()];
type FloatGauge = Gauge<f64, AtomicU64>;

/// Declares the series by field, name and help.
macro_rules! metrics {
    ($($vis:vis $field:ident: $Series:ty = $make:ident($name:literal, $help:literal);)+) => {
        /// All series of a process. Share it as an `Arc`.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            process: Process,
            /// Registry of the metrics without our prefix that describe the HTTP server.
            http: Registry,
            request_seconds: Family<RequestLabels, Histogram>,
            $(#[doc = $help] $vis $field: $Series,)+
        }

        impl Metrics {
            /// Creates and registers all series.
            pub fn new() -> Arc<Self> {
                let mut registry = Registry::with_prefix("bellwire");
                let r = &mut registry;
                r.add("panics", "Panics, including caught ones", None, panics::count().clone());
                let slow = "Statements that took longer than BELLWIRE_SLOW_STATEMENT_MS; the log has them";
                r.add("slow_statements", slow, None, SLOW_STATEMENTS.clone());
                let _ = plain::<Build>(r, "build", "What runs");
                let mut http = Registry::with_prefix("http_server");
                let help = "Time from a request to the head of its response, by route and status";
                let family = Family::created_by(Histogram::of_requests);
                let request_seconds = http.add("request_duration", help, Some(Unit::Seconds), family);
                let process = Process::new();
                Arc::new(Self { $($field: $make(r, $name, $help),)+ process, http, request_seconds, registry })
            }
        }
    };
}

metrics! {
    attempts: Attempts = attempts("attempts", "POSTs by push service, tier and status");
    endings: Endings = endings("deliveries_ended", "Deliveries by how they ended, and attempts that a retry follows");
    attempt_seconds: [Histogram; Gateway::ALL.len()] =
        by_gateway("attempt", "Time from the start of a POST to its answer");
    lag_seconds: [Histogram; Tier::ALL.len()] = by_tier("queue_lag", "How much later than scheduled a POST began");
    slis: Family<SliLabels, FloatGauge> = plain("sli", "Reliability of retries over the last hour, by lane and tier");
    sli_states: Family<SliLabels, Gauge> = plain("sli_state", "State of the reliability metric: 0 unknown, 1 ok, 2 warn, 3 alert");
    token_faults: [Counter; TokenFault::ALL.len()] =
        token_faults("retry_token_faults", "Queue rows whose retry token was wrong, used, or late");
    pub throttled: Counter = plain("throttled", "Deliveries that had to wait for their subscription's throttle");
    opt_in_steps: Family<StepLabel, Counter> =
        opt_in_steps("opt_in_steps", "Steps from visitors to subscribers, and whether those are still there after 7 and 30 days");
    pub messages_accepted: Counter = plain("messages_accepted", "Messages that the API took");
    pub batches_taken: Counter = plain("batches_taken", "Batches taken off cursors");
    pub batches_open: Gauge = plain("batches_open", "Batches that this process holds open");
    pub claims: Counter = plain("claims", "Queue rows claimed");
    pub settle_fenced: Counter = plain("settle_fenced", "Rows that were already settled or taken over");
    pub workers_ended: Counter = plain("workers_ended", "Workers that missed their heartbeat and whose work this one took over");
    pub settle_retries: Counter = plain("settle_retries", "Settling transactions that failed and are tried again");
    pub settle_seconds: Histogram = seconds("settle", "Time that a settling transaction took");
    pub lanes_held: Gauge = plain("lanes_held", "Lanes held by a gateway's throttling");
    pub lanes_open: Gauge = plain("lanes_open", "Lanes whose breaker is open or half open");
    pub breaker_trips: Counter = plain("breaker_trips", "Times that a breaker opened");
    alerts_open: Family<KindLabel, Gauge> =
        plain("alerts_open", "Unresolved alerts of the whole server");
    pub in_flight: Gauge = plain("in_flight", "POSTs without an answer yet");
    pub multi_buffer: Gauge = plain("multi_buffer", "Whether payloads are sealed eight at a time: 1 or 0");
    pub clock_offset_s: FloatGauge = seconds("clock_offset", "How far the database's clock is ahead of this host's");
    pub certificate_expires_s: FloatGauge =
        seconds("tls_certificate_expiry_timestamp", "When the certificate expires; 0: none");
    connections: Family<PoolLabels, Gauge> = plain("database_connections", "Connections of this process to Postgres");
    pub database_writable: Gauge = plain("database_writable", "Whether a host of the database takes writes");
    pub database_failovers: Counter = plain("database_failovers", "Times that another primary was found");
    pub commits_unconfirmed: Gauge =
        plain("commits_unconfirmed", "Whether Postgres waits for standbys that are not there");
    read_replica_active: Gauge = plain("read_replica_active", "Whether a standby is read from");
    read_replica_lag_s: FloatGauge = seconds("read_replica_lag", "How far that standby lags, as far as is known");
    subscriptions_active: Family<GatewayLabel, Gauge> =
        plain("subscriptions_active", "Active subscriptions by gateway");
    webhook_requests: [Counter; DeliveryState::ALL.len()] =
        webhook_requests("webhook_requests", "Requests to receivers of webhooks: delivered, retried later, or failed for good");
    webhooks_pending: Gauge = plain("webhooks_pending", "Requests to receivers of active webhooks that are to be made");
    webhooks_oldest_pending_s: FloatGauge = seconds("webhooks_oldest_pending", "Age of the oldest of them");
    due: Gauge = plain("deliveries_due", "Deliveries in the queue that are due; 10,000 of a lane and tier at most");
    oldest_due_s: FloatGauge = seconds("oldest_due", "For how long the oldest of them has been due");
}

impl Metrics {
    /// Counts a POST and the time until its response.
    pub fn attempt(&self, gateway: Gateway, tier: Tier, status: Option<u16>, took: Duration) {
        self.attempts[gateway as usize][StatusClass::of(status) as usize][place(tier.code())].inc();
        self.attempt_seconds[gateway as usize].observe(took.as_secs_f64());
    }

    /// Counts deliveries that ended, or attempts followed by a retry.
    pub fn ended(&self, ending: Ending, tier: Tier, n: u64) {
        self.endings[place(ending.code())][place(tier.code())].inc_by(n);
    }

    /// Counts steps of visitors, or checks of subscribers.
    pub fn opt_in_step(&self, step: &'static str, n: u64) {
        self.opt_in_steps.of(StepLabel { step }).inc_by(n);
    }

    /// Counts queue rows whose retry token had a fault.
    pub fn token_fault(&self, fault: TokenFault, n: u64) {
        self.token_faults[fault as usize].inc_by(n);
    }

    /// Records the delay between due time and start of a POST.
    pub fn lag(&self, tier: Tier, lag: Duration) {
        self.lag_seconds[place(tier.code())].observe(lag.as_secs_f64());
    }

    /// Counts a request to the API and its duration. `route` is the pattern, such as `/v1/apps/{app}/messages`, never
    /// the path: paths contain ids, and each would be a series.
    pub fn request(&self, method: &Method, route: String, scheme: &'static str, status: u16, took: Duration) {
        let labels = RequestLabels { method: method_name(method), route, status, scheme };
        self.request_seconds.of(labels).observe(took.as_secs_f64());
    }

    /// Replaces the reliability metrics by those of the last hour. Only the lanes in the worst state get series, so that their
    /// number does not grow with the apps.
    pub fn show_slis(&self, lanes: &[LaneSums]) {
        self.slis.clear();
        self.sli_states.clear();
        let read = |lane: &LaneSums| -> Vec<(Option<Tier>, MetricReading)> {
            let readings = lane.tiers.iter().map(|(tier, sums)| (*tier, reliability::read(sums, 1)));
            readings.flat_map(|(tier, readings)| readings.map(|reading| (tier, reading))).collect()
        };
        let mut lanes: Vec<_> = lanes.iter().map(|lane| (lane, read(lane))).collect();
        lanes.sort_by_key(|(_, readings)| Reverse(readings.iter().map(|(_, reading)| reading.state).max()));
        for (lane, readings) in lanes.into_iter().take(LANES_MAX) {
            readings.into_iter().for_each(|(tier, reading)| self.show_sli(lane, tier, reading));
        }
    }

    fn show_sli(&self, lane: &LaneSums, tier: Option<Tier>, reading: MetricReading) {
        // What is of the lane has no tier, and what is of a tier is not the lane's.
        let (Some(value), true) = (reading.value, tier.is_none() == (reading.sli == Sli::BreakerTrips)) else {
            return;
        };
        let labels = SliLabels {
            sli: reading.sli.name(),
            lane: lane.lane.0,
            gateway: lane.gateway.name(),
            tier: tier.map_or("", Tier::name),
        };
        self.slis.of(labels.clone()).set(value);
        self.sli_states.of(labels).set(reading.state as i64);
    }

    /// Sets the number of open and of idle connections of a pool.
    pub fn show_pool(&self, pool: &'static str, open: u32, idle: usize) {
        let idle = i64::try_from(idle).unwrap_or(i64::MAX);
        for (state, n) in [("idle", idle), ("used", (i64::from(open) - idle).max(0))] {
            self.connections.of(PoolLabels { pool, state }).set(n);
        }
    }

    /// Sets whether a standby is used for reads, and its lag.
    pub fn read_replica(&self, is_usable: bool, lag: Option<Duration>) {
        self.read_replica_active.set(is_usable.into());
        if let Some(lag) = lag {
            self.read_replica_lag_s.set(lag.as_secs_f64());
        }
    }

    /// Sets the number of active subscriptions by push service. Those not in the list have none.
    pub fn show_subscriptions(&self, by_gateway: &[(Gateway, i64)]) {
        for gateway in Gateway::ALL {
            let n = by_gateway.iter().find(|(known, _)| *known == gateway).map_or(0, |(_, n)| *n);
            self.subscriptions_active.of(GatewayLabel { gateway: gateway.name() }).set(n);
        }
    }

    /// Sets the number of due deliveries, and the time since the oldest was due.
    pub fn show_due(&self, deliveries: i64, oldest: Duration) {
        self.due.set(deliveries);
        self.oldest_due_s.set(oldest.as_secs_f64());
    }

    /// Counts a webhook request by its new state.
    pub fn webhook_request(&self, stands: DeliveryState) {
        self.webhook_requests[stands as usize].inc();
    }

    /// Sets the number of waiting webhook requests and the age of the oldest one. Both cover all webhooks, so that the number of series
    /// does not grow.
    pub fn show_webhooks(&self, pending: i64, oldest: Duration) {
        self.webhooks_pending.set(pending);
        self.webhooks_oldest_pending_s.set(oldest.as_secs_f64());
    }

    /// Sets the number of open alerts of a kind.
    pub fn alerts_open(&self, kind: &'static str, n: i64) {
        self.alerts_open.of(KindLabel { kind }).set(n);
    }

    /// Returns all series in the text format of Prometheus (OpenMetrics).
    pub fn render(&self) -> String {
        let mut text = String::new();
        let written = encode_registry(&mut text, &self.registry.text)
            .and_then(|()| encode_registry(&mut text, &self.http.text))
            .and_then(|()| encode_registry(&mut text, &self.process.look().text))
            .and_then(|()| encode_eof(&mut text));
        written.expect("a string takes everything");
        text
    }

    /// Returns all series to read.
    pub fn registered(&self) -> impl Iterator<Item = &Registered> {
        self.registry.metrics.iter().chain(&self.http.metrics).chain(&self.process.look().metrics)
    }
}

/// Name of every method that is not standard. Callers could invent any number of them.
pub(crate) const OTHER_METHOD: &str = "_OTHER";

/// Returns the name of a standard method, or [`OTHER_METHOD`].
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER_METHOD,
    }
}

fn attempts(registry: &mut Registry, name: &str, help: &str) -> Attempts {
    let attempts: Family<_, Counter> = plain(registry, name, help);
    let of = |gateway: Gateway, status: StatusClass, tier: Tier| AttemptLabels {
        gateway: gateway.name(),
        status: status.name(),
        tier: tier.name(),
    };
    Gateway::ALL
        .map(|gateway| StatusClass::ALL.map(|status| Tier::ALL.map(|tier| attempts.of(of(gateway, status, tier)))))
}

fn endings(registry: &mut Registry, name: &str, help: &str) -> Endings {
    let endings: Family<_, Counter> = plain(registry, name, help);
    let of = |ending: Ending, tier: Tier| EndingLabels { ending: ending.name(), tier: tier.name() };
    Ending::ALL.map(|ending| Tier::ALL.map(|tier| endings.of(of(ending, tier))))
}

fn by_gateway(registry: &mut Registry, name: &str, help: &str) -> [Histogram; Gateway::ALL.len()] {
    let family: Family<_, Histogram> = seconds(registry, name, help);
    Gateway::ALL.map(|gateway| family.of(GatewayLabel { gateway: gateway.name() }))
}

fn by_tier(registry: &mut Registry, name: &str, help: &str) -> [Histogram; Tier::ALL.len()] {
    let family: Family<_, Histogram> = seconds(registry, name, help);
    Tier::ALL.map(|tier| family.of(TierLabel { tier: tier.name() }))
}

fn token_faults(registry: &mut Registry, name: &str, help: &str) -> [Counter; TokenFault::ALL.len()] {
    let family: Family<_, Counter> = plain(registry, name, help);
    TokenFault::ALL.map(|fault| family.of(FaultLabel { fault: fault.name() }))
}

fn opt_in_steps(registry: &mut Registry, name: &str, help: &str) -> Family<StepLabel, Counter> {
    let family: Family<_, Counter> = plain(registry, name, help);
    OptInStep::ALL.iter().for_each(|step| drop(family.of(StepLabel { step: step.name() })));
    family
}

fn webhook_requests(registry: &mut Registry, name: &str, help: &str) -> [Counter; DeliveryState::ALL.len()] {
    let requests: Family<_, Counter> = plain(registry, name, help);
    DeliveryState::ALL.map(|state| {
        let outcome = match state {
            DeliveryState::Pending => "retried",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
        };
        requests.of(OutcomeLabel { outcome })
    })
}

/// Returns the index of a tier or an ending, whose codes begin at 1.
fn place(code: i16) -> usize {
    usize::try_from(code - 1).expect("numbers begin at 1")
}

#[cfg(test)]
#[path = "../../../tests/crates/telemetry/unit/metrics.rs"]
mod tests;
