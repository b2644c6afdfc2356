//! Background tasks of a process, by role.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::task::JoinSet;
use tracing::info;

use super::context::Context;
use super::maintenance::{self, Retention};
use super::{campaigns, keys, measuring, triggers};
use crate::config::Config;
use crate::hooks;
use bellwire_core::clock::Clock;
use bellwire_dispatch::idle::Rest;
use bellwire_dispatch::{self as dispatch, Dispatcher};
use bellwire_gateway::Gateways;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::outcomes::rollups::MetricsKept;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_telemetry::panics::begun_again;
use bellwire_vault::Vault;
use bellwire_webpush::sealer::Sealer;

/// Starts the engines of this process's roles. Returns the dispatcher of a worker, and the tasks that must not end by
/// themselves.
pub(super) fn start(
    context: &Context, config: &Config, gateways: &Gateways, receivers: &Gateways, metrics: &Arc<Metrics>,
    tracer: &Tracer,
) -> (Option<Arc<Dispatcher>>, JoinSet<()>) {
    let Context { pool, worker_pool, vault, clock, .. } = context;
    let (mut dispatcher, mut engines) = (None, JoinSet::new());
    if config.roles.worker {
        let settings = dispatch::DispatchConfig {
            lane_limit_max: config.lane_concurrency_max,
            batch_min: config.batch_min as usize,
            batch_max: config.batch_max as usize,
            policy: config.policy(),
            ..dispatch::DispatchConfig::sealing_by(sealer(config))
        };
        info!(sealing = %settings.sealer, "dispatching");
        let (pool, vault, clock) = (worker_pool.clone(), vault.clone(), clock.clone());
        let (gateways, metrics, tracer) = (gateways.clone(), metrics.clone(), tracer.clone());
        let (started, tasks) = Dispatcher::start(pool, vault, clock, gateways, metrics, tracer, settings);
        (dispatcher, engines) = (Some(started), tasks);
    }
    let upkeep = Upkeep {
        pool: pool.clone(),
        vault: vault.clone(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        rest: rest(dispatcher.as_ref()),
    };
    let source = config.master_key_source();
    let watch = move |u: Upkeep| keys::watch_on(u.pool, u.vault, u.clock, source.clone(), u.rest);
    upkeep.start(&mut engines, "watching seal keys", watch);
    upkeep.start(&mut engines, "counting sealed values", |u| keys::count_on(u.pool, u.vault));
    if config.roles.maintenance {
        maintain(&upkeep, config, &mut engines);
        let (receivers, metrics) = (receivers.clone(), metrics.clone());
        let sender = hooks::Sender::new(pool.clone(), vault.clone(), clock.clone(), receivers, metrics);
        if let Some(dispatcher) = dispatcher.clone() {
            sender.lease_by(move || dispatcher.lease_beside());
        }
        upkeep.start(&mut engines, "sending to webhooks", move |u| hooks::send_on(sender.clone(), u.rest));
    }
    (dispatcher, engines)
}

/// Returns the idle state of this process. A process without dispatch is never idle.
pub(super) fn rest(dispatcher: Option<&Arc<Dispatcher>>) -> Arc<Rest> {
    dispatcher.map_or_else(Arc::default, |dispatcher| dispatcher.rest())
}

/// Handles that a background task gets at each start.
#[derive(Clone)]
struct Upkeep {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    metrics: Arc<Metrics>,
    rest: Arc<Rest>,
}

impl Upkeep {
    /// Starts a task that begins again after a panic.
    fn start<W: Future<Output = ()> + Send + 'static>(
        &self, engines: &mut JoinSet<()>, name: &'static str, work: impl Fn(Self) -> W + Send + Sync + 'static,
    ) {
        let upkeep = self.clone();
        engines.spawn(begun_again(name, move || work(upkeep.clone())));
    }
}

/// Starts maintenance. Each task keeps its state in the database, so a task that panics restarts while the others
/// continue.
fn maintain(upkeep: &Upkeep, config: &Config, engines: &mut JoinSet<()>) {
    let (guard, kept) = (guard(config), retention(config));
    upkeep.start(engines, "sealing anew", |u| maintenance::reseal_on(u.pool, u.vault, u.clock));
    upkeep.start(engines, "sweeping", |u| maintenance::sweep_on(u.pool, u.vault, u.metrics, u.clock, u.rest));
    upkeep.start(engines, "folding", move |u| maintenance::fold_on(u.pool, u.clock, guard, u.rest));
    upkeep.start(engines, "keeping house", move |u| maintenance::keep_on(u.pool, u.clock, kept));
    upkeep.start(engines, "erasing and deleting", |u| maintenance::forget_on(u.pool, u.vault, u.clock, u.rest));
    upkeep.start(engines, "moving campaigns on", |u| campaigns::advance_on(u.pool, u.vault, u.clock, u.rest));
    upkeep.start(engines, "sending for triggers", |u| triggers::send_on(u.pool, u.vault, u.clock, u.rest));
    upkeep.start(engines, "measuring campaigns", |u| measuring::measure_on(u.pool, u.vault, u.clock, u.rest));
    upkeep.start(engines, "packing for webhooks", |u| hooks::pack_on(u.pool, u.vault, u.clock, u.rest));
}

fn sealer(config: &Config) -> &'static Sealer {
    if config.multi_buffer { Sealer::fastest() } else { Sealer::single() }
}

/// Returns the default limits of the runaway guard.
pub(super) fn guard(config: &Config) -> Guard {
    Guard { factor: config.runaway_factor, floor: config.runaway_floor.into() }
}

fn retention(config: &Config) -> Retention {
    let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
    Retention {
        history: days(config.retention_days),
        archive: days(config.dead_letter_retention_days),
        subscriptions: days(config.subscription_retention_days.max(config.retention_days)),
        metrics: metrics_kept(config),
        webhooks: days(config.webhook_retention_days),
        habits: days(config.habit_retention_days),
        user_events: days(config.user_event_retention_days),
        audit_log: (config.audit_log_retention_days > 0).then(|| days(config.audit_log_retention_days)),
    }
}

pub(super) fn metrics_kept(config: &Config) -> MetricsKept {
    let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
    MetricsKept {
        minutes: days(config.minute_metrics_retention_days),
        hours: days(config.hour_metrics_retention_days),
        days: days(config.day_metrics_retention_days),
    }
}
