//! State shared by all stages, and the amount of work in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tracing::{Span, debug_span};

use super::DispatchConfig;
use super::idle::Rest;
use super::job::Job;
use super::last_errors::LastWords;
use super::life::Life;
use super::stops::StopSet;
use super::subscription_holds::SubscriptionHolds;
use bellwire_core::clock::Clock;
use bellwire_core::id::SubscriptionId;
use bellwire_rules::policy::reliability::ReliabilityTally;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_vault::delivery_token::delivery_id;
use bellwire_vault::{Purpose, Vault};

/// State shared by all stages.
pub(super) struct EngineContext {
    pub pool: PgPool,
    pub vault: Vault,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub tracer: Tracer,
    pub settings: DispatchConfig,
    pub life: Life,
    pub progress: EngineActivity,
    /// Idle state of the process.
    pub rest: Arc<Rest>,
    pub stops: StopSet,
    /// Holds of subscriptions that their push service throttles.
    pub holds: SubscriptionHolds,
    /// Reliability counts.
    pub reliability: ReliabilityTally,
    /// Last errors of push services.
    pub words: LastWords,
}

impl EngineContext {
    /// Returns a short, stable pseudonym of a subscription for logs.
    pub(super) fn label(&self, subscription: SubscriptionId) -> String {
        let mac = self.vault.mac(Purpose::LogLabel, &[subscription.0.as_bytes()]);
        mac[..6].iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// Returns the log span of a delivery, with the id that the service worker gets. Disabled, at no cost, above level `debug`.
    pub(super) fn span(&self, job: &Job) -> Span {
        debug_span!(
            "delivery",
            message_id = %job.message.id,
            delivery = URL_SAFE_NO_PAD.encode(delivery_id(&self.vault, job.message.root, job.origin_id)),
            attempt = job.retries + 1,
            lane = job.lane.id.0,
        )
    }
}

/// Number of deliveries between claim and settlement, and whether the engine runs.
#[derive(Default)]
pub(super) struct EngineActivity {
    alive: AtomicUsize,
    idle: Notify,
    stopping: AtomicBool,
}

impl EngineActivity {
    /// Adds claimed deliveries.
    pub(super) fn started(&self, n: usize) {
        self.alive.fetch_add(n, Ordering::SeqCst);
    }

    /// Removes deliveries that were passed to the settler, or no longer belong to this worker.
    pub(super) fn finished(&self, n: usize) {
        if self.alive.fetch_sub(n, Ordering::SeqCst) == n {
            self.idle.notify_waiters();
        }
    }

    /// Whether no delivery is in memory.
    pub(super) fn is_idle(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0
    }

    /// Waits until no delivery is in memory. Create the future before checking.
    pub(super) fn idle(&self) -> Notified<'_> {
        self.idle.notified()
    }

    /// Stops claims and the start of POSTs.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
