//! Background tasks of a process, by role.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::info;

use super::context::Context;
use super::maintenance::{self, Retention};
use super::{campaigns, keys, measuring, triggers};
use crate::config::Config;
use crate::hooks;
use bellwire_dispatch::idle::Rest;
use bellwire_dispatch::{self as dispatch, Dispatcher};
use bellwire_gateway::Gateways;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::outcomes::rollups::MetricsKept;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_telemetry::panics::begun_again;
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
    let (every, source) = ((pool.clone(), vault.clone(), clock.clone()), config.master_key_source());
    let rest = rest(dispatcher.as_ref());
    let resting = rest.clone();
    let watch =
        move || keys::watch_on(every.0.clone(), every.1.clone(), every.2.clone(), source.clone(), resting.clone());
    engines.spawn(begun_again("watching seal keys", watch));
    let counted = (pool.clone(), vault.clone());
    engines.spawn(begun_again("counting sealed values", move || keys::count_on(counted.0.clone(), counted.1.clone())));
    if config.roles.maintenance {
        maintain(context, config, metrics, &rest, &mut engines);
        let (receivers, metrics) = (receivers.clone(), metrics.clone());
        let sender = hooks::Sender::new(pool.clone(), vault.clone(), clock.clone(), receivers, metrics);
        if let Some(dispatcher) = dispatcher.clone() {
            sender.lease_by(move || dispatcher.lease_beside());
        }
        engines.spawn(begun_again("sending to webhooks", move || hooks::send_on(sender.clone(), rest.clone())));
    }
    (dispatcher, engines)
}

/// Returns the idle state of this process. A process without dispatch is never idle.
pub(super) fn rest(dispatcher: Option<&Arc<Dispatcher>>) -> Arc<Rest> {
    dispatcher.map_or_else(Arc::default, |dispatcher| dispatcher.rest())
}

/// Starts maintenance. Each task keeps its state in the database, so a task that panics restarts while the others
/// continue.
fn maintain(context: &Context, config: &Config, metrics: &Arc<Metrics>, rest: &Arc<Rest>, engines: &mut JoinSet<()>) {
    let every = || (context.pool.clone(), context.vault.clone(), context.clock.clone());
    let (guard, kept) = (guard(config), retention(config));
    let (pool, vault, clock) = every();
    let reseal = move || maintenance::reseal_on(pool.clone(), vault.clone(), clock.clone());
    engines.spawn(begun_again("sealing anew", reseal));
    let (pool, vault, clock) = every();
    let (metrics, resting) = (metrics.clone(), rest.clone());
    let sweep =
        move || maintenance::sweep_on(pool.clone(), vault.clone(), metrics.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("sweeping", sweep));
    let (pool, _, clock) = every();
    let resting = rest.clone();
    let fold = move || maintenance::fold_on(pool.clone(), clock.clone(), guard, resting.clone());
    engines.spawn(begun_again("folding", fold));
    let (pool, _, clock) = every();
    engines.spawn(begun_again("keeping house", move || maintenance::keep_on(pool.clone(), clock.clone(), kept)));
    let (pool, vault, clock) = every();
    let resting = rest.clone();
    let forget = move || maintenance::forget_on(pool.clone(), vault.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("erasing and deleting", forget));
    let (pool, vault, clock) = every();
    let resting = rest.clone();
    let advance = move || campaigns::advance_on(pool.clone(), vault.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("moving campaigns on", advance));
    let (pool, vault, clock) = every();
    let resting = rest.clone();
    let send = move || triggers::send_on(pool.clone(), vault.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("sending for triggers", send));
    let (pool, vault, clock) = every();
    let resting = rest.clone();
    let measure = move || measuring::measure_on(pool.clone(), vault.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("measuring campaigns", measure));
    let (pool, vault, clock) = every();
    let resting = rest.clone();
    let pack = move || hooks::pack_on(pool.clone(), vault.clone(), clock.clone(), resting.clone());
    engines.spawn(begun_again("packing for webhooks", pack));
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
