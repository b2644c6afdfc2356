//! Periodic work of any replica: partitions, sweeps, retention, erasures and removals. Every step is idempotent and
//! locks its rows, so replicas that do the same at the same time only waste a little work.
//!
//! Long work, such as a day's messages or a whole app, is divided into transactions of a fraction of a second.
//! Maintenance sleeps between them, so that it never uses more than a part of one connection. After an interruption it
//! continues with the remaining rows.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};
use uuid::Uuid;

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::audience::erasures::Erasure;
use bellwire_store::hooks::deliveries as hooks;
use bellwire_store::measurement::enrolment;
use bellwire_store::operations::removal::RemovalProgress as Removed;
use bellwire_store::outcomes::rollups::{MetricsKept, RollupStep};
use bellwire_store::outcomes::stream;
use bellwire_store::triggers::housekeeping as triggers;
use bellwire_store::{
    self as store, ChunkProgress, audience::audience_counts, audience::engagement_stats, audience::erasures,
    audience::opt_in, audience::refusals, audience::topics, audience::user_shards, keys::audit, keys::data_keys,
    keys::passkeys, keys::resealing, keys::sessions, operations::backups, operations::partitions, operations::removal,
    operations::restoring, operations::retention, operations::statistics, operations::sweeps, outcomes::reliability,
    outcomes::rollups, queue::caps, queue::clears, queue::guards, queue::steering, queue::withdrawals,
};
use bellwire_telemetry::metrics::Metrics;
use bellwire_vault::Vault;

/// Interval of the sweeps for overdue work.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// Interval at which notes are folded into metrics over time. Each fold rewrites three rows: by minute, hour and day.
/// The more notes a row receives at once, the less each costs.
const FOLD_EVERY: Duration = Duration::from_secs(10);
/// Interval at which reliability metrics are compared with their alert limits.
const WATCH_EVERY: Duration = Duration::from_secs(60);
/// Interval at which partitions are created and dropped, and old rows deleted.
const KEEP_EVERY: Duration = Duration::from_secs(3600);
/// Delay after a failure. A partition that is being read stays, because each attempt to drop it blocks other sessions
/// for a moment.
const KEEP_AGAIN: Duration = Duration::from_secs(60);
/// Interval of the check whether values must be resealed.
const RESEAL_EVERY: Duration = Duration::from_secs(60);
/// Maximum chunks of one kind of sweep in a round. More chunks mean that a sweep does not change the rows it finds.
const CHUNKS_MAX: u32 = 1_000;
/// Factor of the pause after a chunk to the time of the chunk: maintenance uses at most a fifth of a connection. A
/// chunk of 2,000 messages with their counts takes 80 ms on two busy cores. That is 5,000 per second or 400 million a
/// day, where 230 codes a second make 20 million.
const REST_FACTOR: u32 = 4;
/// Timeout of the search for messages that name an erased user.
const SEARCH_MAX: Duration = Duration::from_secs(600);

/// Retention times of stored data.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Messages, attempts and receipts; longer than the longest time to live.
    pub history: Duration,
    /// Dead letters and their history, events, resolved alerts, completed erasures.
    pub archive: Duration,
    /// Ended subscriptions; not less than `history`.
    pub subscriptions: Duration,
    /// Rollups, for each resolution.
    pub metrics: MetricsKept,
    /// Delivered requests of webhooks. Failed ones are kept as long as `archive`.
    pub webhooks: Duration,
    /// Click statistics of a person, from the person's last receipt.
    pub habits: Duration,
    /// Events of users.
    pub user_events: Duration,
    /// Audit log; `None` keeps it for ever.
    pub audit_log: Option<Duration>,
}

/// Work that is due at an interval, and earlier after a failure.
#[derive(Debug, Clone, Copy)]
struct Chore {
    due_at: Timestamp,
    every: Duration,
    again_after: Duration,
}

impl Chore {
    fn new(now: Timestamp, every: Duration, again_after: Duration) -> Self {
        Self { due_at: now, every, again_after }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at
    }

    /// Schedules the next run of the chore, and logs a failure.
    fn tried<T>(&mut self, name: &str, result: &sqlx::Result<T>, now: Timestamp) {
        self.due_at = now + if result.is_ok() { self.every } else { self.again_after };
        match result {
            Ok(_) => {}
            Err(error) if store::is_lock_timeout(error) => {
                info!(chore = name, "deferred: another session, such as a backup, is reading the table");
            }
            Err(error) => warn!(%error, chore = name, "maintenance failed; it is tried again"),
        }
    }
}

pub(crate) async fn sweep_on(pool: PgPool, vault: Vault, metrics: Arc<Metrics>, clock: Clock, rest: Arc<Rest>) {
    let mut sweeping = Chore::new(clock.now(), Duration::ZERO, Duration::ZERO);
    let mut watching = Chore::new(clock.now(), WATCH_EVERY, Duration::ZERO);
    let mut analyzing = Chore::new(clock.now(), Duration::ZERO, KEEP_AGAIN);
    loop {
        let now = clock.now();
        if analyzing.is_due(now) {
            analyzing.tried("analyzing tables that have grown", &refresh_statistics(&pool).await, now);
        }
        let swept = sweep(&pool, &vault, &metrics, now).await;
        sweeping.tried("sweeping", &swept, now);
        if watching.is_due(now) {
            let watched = reliability::watch(&pool, now).await;
            watching.tried("watching slis", &watched, now);
        }
        rest.pause(SWEEP_EVERY, AT_REST).await;
    }
}

/// Folds notes of all kinds and looks for runaway apps, in an endless loop. Separate from [`sweep_on`], because a
/// backlog of notes takes long and must not delay other work.
pub(crate) async fn fold_on(pool: PgPool, clock: Clock, guard: Guard, rest: Arc<Rest>) {
    let mut folding = Chore::new(clock.now(), FOLD_EVERY, Duration::ZERO);
    let (mut learning, mut guarding) = (folding, folding);
    loop {
        let now = clock.now();
        if folding.is_due(now) {
            folding.tried("folding", &fold_metrics(&pool).await, now);
        }
        if learning.is_due(now) {
            learning.tried("folding habits", &fold_habits(&pool, &clock).await, now);
        }
        if guarding.is_due(now) {
            guarding.tried("guarding against runaways", &guards::watch(&pool, guard, now).await, now);
        }
        rest.pause(SWEEP_EVERY, AT_REST).await;
    }
}

/// Applies retention in an endless loop. Separate from [`sweep_on`], because it may take hours.
pub(crate) async fn keep_on(pool: PgPool, clock: Clock, kept: Retention) {
    let mut partitioning = Chore::new(clock.now(), KEEP_EVERY, KEEP_AGAIN);
    let mut keeping = Chore::new(clock.now(), KEEP_EVERY, KEEP_AGAIN);
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let now = clock.now();
        if partitioning.is_due(now) {
            let tended = tend_partitions(&pool, now, kept).await;
            partitioning.tried("partitioning", &tended, now);
        }
        if keeping.is_due(now) {
            let cleared = keep_house(&pool, now, kept).await;
            keeping.tried("keeping house", &cleared, now);
        }
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs one round of all sweeps.
pub async fn sweep(pool: &PgPool, vault: &Vault, metrics: &Metrics, now: Timestamp) -> sqlx::Result<()> {
    for message in sweeps::half_turned(pool, now).await? {
        let go_on = || async move { Ok(steering::go_on(pool, message, now).await? == ChunkProgress::More) };
        sweep_up("turning messages", go_on).await?;
    }
    for message in withdrawals::waiting(pool).await? {
        if let Err(error) = withdrawals::advance(pool, vault, message, now).await {
            warn!(%error, message_id = %message, "a withdrawal could not be continued");
        }
    }
    if let Err(error) = clears::after_clicks(pool, vault, now).await {
        warn!(%error, "messages could not be removed after clicks");
    }
    sweep_up("expiring what is parked", || async { Ok(sweeps::expire_parked(pool, now).await? > 0) }).await?;
    sweep_up("expiring subscriptions", || async { Ok(sweeps::expire_subscriptions(pool, now).await? > 0) }).await?;
    sweep_up("suspending subscriptions", || async { Ok(refusals::suspend(pool, now).await? > 0) }).await?;
    sweep_up("ending campaigns", || async { Ok(stream::end_campaigns(pool, now).await? > 0) }).await?;
    sweep_up("ending waits", || async { Ok(triggers::clear_ended(pool, now).await? > 0) }).await?;
    sweep_up("deleting contents", || async { Ok(sweeps::delete_contents(pool, now).await? > 0) }).await?;
    sweep_up("clearing topics", || async { Ok(topics::clear_removed(pool).await? > 0) }).await?;
    let check = || async {
        let checks = opt_in::check_due(pool, vault, now).await?;
        checks.iter().for_each(|(name, n)| metrics.opt_in_step(name, *n));
        Ok(checks.iter().any(|(_, n)| *n > 0))
    };
    sweep_up("checking subscribers", check).await?;
    sweep_up("counting audiences", || async { Ok(audience_counts::fold(pool).await? == ChunkProgress::More) }).await
}

/// Runs chunks until none is left, at most [`CHUNKS_MAX`]. The next round continues, so that no kind of sweep blocks
/// the others.
async fn sweep_up<F: Future<Output = sqlx::Result<bool>>>(
    name: &str, mut chunk: impl FnMut() -> F,
) -> sqlx::Result<()> {
    for _ in 0..CHUNKS_MAX {
        if !chunk().await? {
            return Ok(());
        }
    }
    warn!(sweep = name, chunks = CHUNKS_MAX, "a sweep is not complete; it continues in the next round");
    Ok(())
}

/// Analyses tables that have just begun to grow, so that Postgres plans with current statistics.
pub async fn refresh_statistics(pool: &PgPool) -> sqlx::Result<()> {
    statistics::refresh(pool).await
}

/// Folds all notes into metrics over time, with a pause after each chunk.
pub async fn fold_metrics(pool: &PgPool) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if !rollups::fold(pool).await? {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Adds all notes to the engagement statistics of persons, with a pause after each chunk.
pub async fn fold_habits(pool: &PgPool, clock: &Clock) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if !engagement_stats::fold(pool, clock.now()).await? {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Creates the partitions of the coming days and drops those past their retention. While a partition is being read it
/// fails after at most a tenth of a second of blocking; the caller must not retry at once.
pub async fn tend_partitions(pool: &PgPool, now: Timestamp, kept: Retention) -> sqlx::Result<()> {
    partitions::ensure(pool, now).await?;
    let dropped = partitions::drop_before(pool, now - kept.history).await?;
    if dropped > 0 {
        info!(dropped, "dropped partitions of history that is past its retention");
    }
    Ok(())
}

/// Deletes all rows past their retention, in chunks.
pub async fn keep_house(pool: &PgPool, now: Timestamp, kept: Retention) -> sqlx::Result<()> {
    let history = now - kept.history;
    until_none(|| partitions::clear_defaults(pool, history)).await?;
    until_none(|| retention::clear_brief(pool, now)).await?;
    until_none(|| topics::clear_unused(pool, now)).await?;
    until_none(|| hooks::clear(pool, now - kept.webhooks, now - kept.archive)).await?;
    until_none(|| retention::clear_archive(pool, now - kept.archive)).await?;
    for step in RollupStep::ALL {
        until_none(|| retention::clear_rollups(pool, step, now - kept.metrics.of(step) - step.slack())).await?;
    }
    if let Some(audit_log) = kept.audit_log {
        until_none(|| audit::clear(pool, now - audit_log)).await?;
    }
    triggers::clear_orphans(pool).await?;
    until_none(|| triggers::clear_unlimited(pool, now)).await?;
    until_none(|| triggers::clear_events(pool, now - kept.user_events)).await?;
    until_none(|| enrolment::clear(pool)).await?;
    until_none(|| opt_in::clear(pool, now)).await?;
    until_none(|| sessions::clear(pool, now)).await?;
    until_none(|| backups::clear(pool, now - kept.archive)).await?;
    until_none(|| restoring::clear(pool)).await?;
    until_none(|| passkeys::clear_challenges(pool, now)).await?;
    until_none(|| retention::clear_subscriptions(pool, now - kept.subscriptions, now)).await?;
    until_none(|| user_shards::clear(pool)).await?;
    through_all(MessageId(Uuid::nil()), |after| retention::clear_messages(pool, history, after)).await?;
    through_all((i16::MIN, SubscriptionId(Uuid::nil())), |after| retention::clear_throttles(pool, now, after)).await?;
    through_all(caps::CapKey::START, |after| caps::clear(pool, now, after)).await?;
    through_all(engagement_stats::EngagementCursor::START, |after| {
        engagement_stats::clear(pool, now - kept.habits, after)
    })
    .await
}

/// Runs chunks until one deletes no row, with a pause after each.
async fn until_none<F: Future<Output = sqlx::Result<u64>>>(mut chunk: impl FnMut() -> F) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if chunk().await? == 0 {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Walks through a table in chunks, each after the last row of the previous one, with a pause after each.
async fn through_all<K: Copy, F>(mut after: K, mut chunk: impl FnMut(K) -> F) -> sqlx::Result<()>
where
    F: Future<Output = sqlx::Result<Option<K>>>,
{
    loop {
        let began = Instant::now();
        match chunk(after).await? {
            Some(last) => after = last,
            None => return Ok(()),
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Continues erasures and deletions of apps in an endless loop. Both run concurrently, because each may take hours.
pub(crate) async fn forget_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    let erasing = for_ever(&clock, &rest, "erasing users", |now| erase(&pool, &vault, now));
    let removing = for_ever(&clock, &rest, "deleting apps", |now| remove_apps(&pool, now));
    tokio::join!(erasing, removing);
}

/// Reseals values of previous seal keys after each change of the current key, in an endless loop.
pub(crate) async fn reseal_on(pool: PgPool, vault: Vault, clock: Clock) {
    let mut resealing = Chore::new(clock.now(), RESEAL_EVERY, RESEAL_EVERY);
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let now = clock.now();
        if resealing.is_due(now) {
            resealing.tried("sealing anew", &reseal(&pool, &vault, now).await, now);
        }
    }
}

/// Reseals all permanent values if the current seal key has changed since the last run. By then every server uses the
/// new key, so that no value follows under a previous one.
pub async fn reseal(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    let Some(number) = resealing::due(pool, now - data_keys::TAKES_OVER_AFTER).await? else { return Ok(()) };
    if u16::try_from(number) != Ok(vault.seal_keys().1) {
        return Ok(()); // this process has not loaded the key yet
    }
    for column in resealing::SEALED {
        through_all(resealing::ResealCursor::START, |after| resealing::reseal(pool, vault, column, after)).await?;
    }
    resealing::done(pool, number, now).await?;
    info!(seal_key = number, "everything that is kept for good is sealed under the newest key");
    Ok(())
}

async fn for_ever<F: Future<Output = sqlx::Result<()>>>(
    clock: &Clock, rest: &Rest, name: &str, work: impl Fn(Timestamp) -> F,
) {
    let mut chore = Chore::new(clock.now(), Duration::ZERO, KEEP_AGAIN);
    loop {
        let now = clock.now();
        if chore.is_due(now) {
            chore.tried(name, &work(now).await, now);
        }
        rest.pause(SWEEP_EVERY, AT_REST).await;
    }
}

/// Completes the erasures that their requests did not finish. A failed one does not delay the others; returns the last
/// error.
pub async fn erase(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    let mut outcome = Ok(());
    for erasure in erasures::abandoned(pool, now).await? {
        outcome = complete_erasure(pool, vault, &erasure, now).await.and(outcome);
    }
    outcome
}

async fn complete_erasure(pool: &PgPool, vault: &Vault, erasure: &Erasure, now: Timestamp) -> sqlx::Result<()> {
    while erasures::erase_subscription(pool, vault, erasure, now).await?.is_some() {}
    while erasures::redact_messages(pool, erasure, SEARCH_MAX, now).await? {}
    erasures::complete(pool, vault, erasure, now).await?;
    Ok(())
}

/// Continues the deletion of apps. A failed one does not delay the others; returns the last error.
pub async fn remove_apps(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    let mut outcome = Ok(());
    for (app, begun_at) in removal::begun(pool).await? {
        outcome = remove_app(pool, app, begun_at, now).await.and(outcome);
    }
    outcome
}

async fn remove_app(pool: &PgPool, app: AppId, begun_at: Timestamp, now: Timestamp) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        match removal::step(pool, app, begun_at, now).await? {
            Removed::More => sleep(began.elapsed() * REST_FACTOR).await,
            Removed::Later => return Ok(()),
            Removed::Gone => {
                info!(%app, "an app was deleted with all that it had");
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/server/maintenance.rs"]
mod tests;
