//! Measures what campaigns achieve: assigns the audiences of runs to groups, and closes measurements whose time is over. All replicas
//! with the maintenance role do it. Both can be repeated, so replicas that meet do some work twice.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tracing::{error, warn};

use super::planned;
use crate::results;
use bellwire_core::clock::Clock;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_store::measurement::enrolment::{self, Enrolment};
use bellwire_store::measurement::periods::{self, Measurement};
use bellwire_store::{campaigns, transactions};
use bellwire_vault::Vault;

const LOOK_EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn measure_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    loop {
        let wait = match measure(&pool, &vault, &clock).await {
            Ok(()) => wait(&pool, &clock).await,
            Err(error) => {
                warn!(%error, "results of campaigns could not be measured; it is tried again");
                LOOK_EVERY
            }
        };
        rest.pause(LOOK_EVERY, wait).await;
    }
}

/// Returns the time until the next measurement ends.
async fn wait(pool: &PgPool, clock: &Clock) -> Duration {
    let next = periods::next_due(pool).await.ok().flatten();
    next.map_or(AT_REST, |at| (at - clock.now()).to_std().unwrap_or_default()).clamp(LOOK_EVERY, AT_REST)
}

/// Assigns the audiences of runs to groups, and closes measurements whose time is over.
pub async fn measure(pool: &PgPool, vault: &Vault, clock: &Clock) -> sqlx::Result<()> {
    while let Some(next) = enrolment::next(pool).await? {
        enrol(pool, vault, &next, clock).await?;
    }
    while let Some(next) = periods::to_close(pool, clock.now()).await? {
        close(pool, vault, &next, clock).await?;
    }
    Ok(())
}

async fn enrol(pool: &PgPool, vault: &Vault, next: &Enrolment, clock: &Clock) -> sqlx::Result<()> {
    match planned::open(vault, next.campaign, &next.plan) {
        Some(plan) => enrolment::enrol(pool, next, &plan, clock.now()).await?,
        None => {
            error!(campaign = %next.campaign, "the plan of a campaign cannot be opened; its groups are not measured")
        }
    }
    enrolment::done(pool, next).await
}

/// Computes the final result of a measurement, and stores it.
async fn close(pool: &PgPool, vault: &Vault, of: &Measurement, clock: &Clock) -> sqlx::Result<()> {
    let row = campaigns::find(pool, of.app, Some(of.campaign), None).await?;
    let plan = row.and_then(|row| planned::open(vault, row.id, &row.plan));
    let result = match plan {
        Some(plan) => serde_json::json!(results::read(pool, &plan, of, clock.now()).await?),
        None => {
            error!(campaign = %of.campaign, "the plan of a campaign cannot be opened; it has no result");
            serde_json::json!({})
        }
    };
    let mut tx = transactions::begin(pool).await?;
    periods::close(&mut tx, of.id, &result).await?;
    tx.commit().await
}
