//! Metrics for `/metrics` and the OpenTelemetry collector: the series of this process, and values read from the
//! database.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tracing::warn;

use super::context::Context;
use crate::api::http::remembered::Remembered;
use bellwire_core::clock::Clock;
use bellwire_rules::policy::reliability;
use bellwire_store as store;
use bellwire_store::outcomes::reliability::ReliabilityFilter;
use bellwire_telemetry::metrics::Metrics;

/// Minimum interval between reads of the database, independent of the number of requests.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Metrics of a process, and those of the database that every process shows.
#[derive(Debug)]
pub(super) struct Exposition {
    metrics: Arc<Metrics>,
    pool: PgPool,
    worker_pool: PgPool,
    clock: Clock,
    read: Remembered<()>,
}

impl Exposition {
    pub(super) fn new(context: &Context, metrics: Arc<Metrics>) -> Self {
        let Context { pool, worker_pool, clock, .. } = context;
        let (pool, worker_pool, clock) = (pool.clone(), worker_pool.clone(), clock.clone());
        Self { metrics, pool, worker_pool, clock, read: Remembered::new(READ_EVERY) }
    }

    /// Returns all current metrics. A value that cannot be read keeps its last state.
    pub(super) async fn metrics(&self) -> &Metrics {
        self.read.get(&self.clock, self.read()).await;
        for (name, pool) in [("api", &self.pool), ("worker", &self.worker_pool)] {
            self.metrics.show_pool(name, pool.size(), pool.num_idle());
        }
        &self.metrics
    }

    async fn read(&self) {
        let (pool, metrics, now) = (&self.pool, &self.metrics, self.clock.now());
        match store::outcomes::reliability::read(pool, ReliabilityFilter::default(), now - reliability::WINDOW, now)
            .await
        {
            Ok(lanes) => metrics.show_slis(&lanes),
            Err(error) => warn!(%error, "reliability metrics of retries could not be read; those before are shown"),
        }
        match store::outcomes::reliability::due(pool, now).await {
            Ok(due) => {
                metrics.show_due(due.deliveries, (now - due.oldest_at.unwrap_or(now)).to_std().unwrap_or_default())
            }
            Err(error) => warn!(%error, "the queue could not be looked at; what it was before is shown"),
        }
        match store::hooks::deliveries::backlog(pool).await {
            Ok(webhooks) => {
                let age = (now - webhooks.oldest_at.unwrap_or(now)).to_std().unwrap_or_default();
                metrics.show_webhooks(webhooks.pending, age);
            }
            Err(error) => warn!(%error, "what waits for webhooks could not be read; what it was before is shown"),
        }
        match store::audience::audience_counts::by_gateway(pool).await {
            Ok(subscriptions) => metrics.show_subscriptions(&subscriptions),
            Err(error) => warn!(%error, "subscriptions could not be counted; what they were before is shown"),
        }
    }
}
