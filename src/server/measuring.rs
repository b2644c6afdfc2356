//! Measures what campaigns achieve: assigns the audiences of runs to groups, and closes measurements whose time is over. All replicas
//! with the maintenance role do it. Both can be repeated, so replicas that meet do some work twice.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;
use tracing::{error, warn};

use super::planned;
use crate::results;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::CampaignState;
use bellwire_store::measurement::enrolment::{self, Enrolment};
use bellwire_store::measurement::periods::{self, Measurement};
use bellwire_store::{campaigns, measurement, transactions};
use bellwire_vault::Vault;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Wait after a failure. Another replica may succeed meanwhile.
const AGAIN: Duration = Duration::from_secs(10);
/// Delay of a measurement that could not be closed.
const LATER: TimeDelta = TimeDelta::minutes(10);

pub(crate) async fn measure_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    loop {
        let (look, at_rest) = match measure(&pool, &vault, &clock).await {
            Ok(true) => (LOOK_EVERY, wait(&pool, &clock).await),
            Ok(false) => (AGAIN, AGAIN),
            Err(error) => {
                warn!(%error, "results of campaigns could not be measured; it is tried again");
                (AGAIN, AGAIN)
            }
        };
        rest.pause(look, at_rest).await;
    }
}

/// Returns the time until the next measurement ends.
async fn wait(pool: &PgPool, clock: &Clock) -> Duration {
    let next = periods::next_due(pool).await.ok().flatten();
    next.map_or(AT_REST, |at| (at - clock.now()).to_std().unwrap_or_default()).clamp(LOOK_EVERY, AT_REST)
}

/// Assigns the audiences of runs to groups, and closes measurements whose time is over. One that fails delays no other. Returns whether
/// all succeeded.
pub async fn measure(pool: &PgPool, vault: &Vault, clock: &Clock) -> sqlx::Result<bool> {
    let mut is_well = true;
    for next in enrolment::waiting(pool).await? {
        if let Err(error) = enrol(pool, vault, &next, clock.now()).await {
            warn!(%error, campaign = %next.campaign, "the audience of a campaign could not be assigned to groups; it is tried again");
            is_well = false;
        }
    }
    for next in periods::to_close(pool, clock.now()).await? {
        if let Err(error) = close(pool, vault, &next, clock.now()).await {
            warn!(%error, campaign = %next.campaign, "the result of a campaign could not be computed; it is tried again");
            periods::put_off(pool, next.id, clock.now() + LATER).await?;
        }
    }
    Ok(is_well)
}

async fn enrol(pool: &PgPool, vault: &Vault, next: &Enrolment, now: Timestamp) -> sqlx::Result<()> {
    // A plan of a newer version: its server can open it.
    let plan = planned::open(vault, next.campaign, &next.plan).ok_or(sqlx::Error::RowNotFound)?;
    enrolment::enrol(pool, next, &plan, now).await?;
    let mut tx = transactions::begin(pool).await?;
    enrolment::done(&mut tx, next, now).await?;
    tx.commit().await
}

/// Computes the final result of a measurement, and stores it. A campaign that was paused, or that sends at
/// a low rate, is measured until the window after its end.
async fn close(pool: &PgPool, vault: &Vault, of: &Measurement, now: Timestamp) -> sqlx::Result<()> {
    let row = campaigns::find(pool, of.app, Some(of.campaign), None).await?;
    let plan = row.as_ref().and_then(|row| planned::open(vault, row.id, &row.plan));
    let Some((row, plan)) = row.zip(plan) else {
        error!(campaign = %of.campaign, "the plan of a campaign cannot be opened; its result waits");
        return periods::put_off(pool, of.id, now + LATER).await;
    };
    if !matches!(plan.when, When::Cron(_) | When::Trigger(_)) {
        let window_s = measurement::rule(pool, of.app).await?.and_then(|rule| rule.window_s);
        let has_ended = matches!(row.state, CampaignState::Done | CampaignState::Cancelled);
        let ended_at = if has_ended { row.changed_at } else { now };
        let closes_at = ended_at + window_s.map_or(LATER, TimeDelta::seconds);
        if closes_at > now {
            return periods::put_off(pool, of.id, closes_at).await;
        }
    }
    let result = serde_json::json!(results::read(pool, &plan, of, now).await?.closed());
    let mut tx = transactions::begin(pool).await?;
    periods::close(&mut tx, of.id, &result).await?;
    tx.commit().await
}
