//! What has to be done now and then, by any one replica: partitions, sweeps, retention, erasures and removals. Every step is
//! idempotent and locks what it touches, so that replicas that do the same at the same time only waste a little.
//!
//! What is long (a day's messages, a whole app) is done in transactions of a fraction of a second each. Between them
//! maintenance rests, so that it never takes more than a part of one connection; where it breaks off, it goes on from what is
//! left.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};
use uuid::Uuid;

use crate::dispatch::rest::{AT_REST, Rest};
use crate::model::clock::{Clock, Timestamp};
use crate::model::id::{AppId, MessageId, SubscriptionId};
use crate::policy::runaway::Guard;
use crate::store::audience::erasures::Erasure;
use crate::store::hooks::deliveries as hooks;
use crate::store::operations::removal::Step as Removed;
use crate::store::outcomes::rollups::{MetricsKept, Step};
use crate::store::outcomes::stream;
use crate::store::{
    self, Progress, audience::audience_counts, audience::erasures, audience::habits, audience::refusals,
    audience::topics, audience::user_shards, keys::audit, keys::data_keys, keys::passkeys, keys::resealing,
    keys::sessions, operations::backups, operations::partitions, operations::removal, operations::restoring,
    operations::retention, operations::statistics, operations::sweeps, outcomes::reliability, outcomes::rollups,
    queue::caps, queue::guards, queue::steering,
};
use crate::vault::Vault;

/// How often overdue work is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How often notes are folded into metrics over time. Each row that is added to is written anew, three times: by the minute, the
/// hour and the day; the more notes come to one, the less each costs.
const FOLD_EVERY: Duration = Duration::from_secs(10);
/// How often reliability metrics are compared with their alert lines.
const WATCH_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made and dropped and old rows cleared.
const KEEP_EVERY: Duration = Duration::from_secs(3600);
/// When they are tried again after a failure. Partitions that somebody reads are not fought for: each try holds up
/// everybody for a moment.
const KEEP_AGAIN: Duration = Duration::from_secs(60);
/// How often it is looked whether there is something to be sealed anew.
const RESEAL_EVERY: Duration = Duration::from_secs(60);
/// Chunks that one kind of sweep does in a round, at most: there are never so many, unless one leaves what it finds as it was.
const CHUNKS_MAX: u32 = 1_000;
/// How many times as long as a chunk took maintenance rests before the next one: it never takes more than a fifth of a
/// connection. A chunk of 2,000 messages with their counts takes 80 ms on two busy cores, so that 5,000 go in a second: 400
/// million a day, where 230 codes a second make 20 million.
const REST_FACTOR: u32 = 4;
/// How long the search for messages that name an erased user may take.
const SEARCH_MAX: Duration = Duration::from_secs(600);

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Messages, attempts and receipts; longer than the longest time to live.
    pub history: Duration,
    /// Dead letters, the trail of what was done with them, events, resolved alerts, completed erasures.
    pub archive: Duration,
    /// Subscriptions that have ended; not less than `history`.
    pub subscriptions: Duration,
    /// Metrics over time.
    pub metrics: MetricsKept,
    /// When a webhook's receiver took what; what it did not take is in the archive.
    pub webhooks: Duration,
    /// What is known of what people click, after the last receipt of theirs.
    pub habits: Duration,
    /// The audit log; none: for ever.
    pub audit_log: Option<Duration>,
}

/// Work that is due every so often, and sooner after it failed.
#[derive(Debug, Clone, Copy)]
struct Chore {
    due_at: Timestamp,
    every: Duration,
    again_after: Duration,
}

impl Chore {
    /// Due at once.
    fn new(now: Timestamp, every: Duration, again_after: Duration) -> Self {
        Self { due_at: now, every, again_after }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at
    }

    /// Takes in what became of it, and logs a failure.
    fn tried<T>(&mut self, name: &str, result: &sqlx::Result<T>, now: Timestamp) {
        self.due_at = now + if result.is_ok() { self.every } else { self.again_after };
        match result {
            Ok(_) => {}
            Err(error) if store::is_lock_timeout(error) => {
                info!(chore = name, "deferred: somebody is reading what it would change, such as a backup");
            }
            Err(error) => warn!(%error, chore = name, "maintenance failed; it is tried again"),
        }
    }
}

/// Looks for what is overdue, for ever.
pub(crate) async fn sweep_on(pool: PgPool, clock: Clock, rest: Arc<Rest>) {
    let mut sweeping = Chore::new(clock.now(), Duration::ZERO, Duration::ZERO);
    let mut watching = Chore::new(clock.now(), WATCH_EVERY, Duration::ZERO);
    let mut analyzing = Chore::new(clock.now(), Duration::ZERO, KEEP_AGAIN);
    loop {
        let now = clock.now();
        if analyzing.is_due(now) {
            analyzing.tried("analyzing tables that have grown", &refresh_statistics(&pool).await, now);
        }
        let swept = sweep(&pool, now).await;
        sweeping.tried("sweeping", &swept, now);
        if watching.is_due(now) {
            let watched = reliability::watch(&pool, now).await;
            watching.tried("watching slis", &watched, now);
        }
        rest.pause(SWEEP_EVERY, AT_REST).await;
    }
}

/// Folds notes of all kinds for ever, and looks for runaways in what is folded: apart from [`sweep_on`], since what was noted while nobody folded
/// takes long, and nothing else waits for it.
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

/// Keeps house for ever: apart from [`sweep_on`], since it may take hours.
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

/// One round of sweeps: everything that can be swept now is.
pub async fn sweep(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    for message in sweeps::half_turned(pool, now).await? {
        let go_on = || async move { Ok(steering::go_on(pool, message, now).await? == Progress::More) };
        sweep_up("turning messages", go_on).await?;
    }
    sweep_up("expiring what is parked", || async { Ok(sweeps::expire_parked(pool, now).await? > 0) }).await?;
    sweep_up("expiring subscriptions", || async { Ok(sweeps::expire_subscriptions(pool, now).await? > 0) }).await?;
    sweep_up("suspending subscriptions", || async { Ok(refusals::suspend(pool, now).await? > 0) }).await?;
    sweep_up("ending campaigns", || async { Ok(stream::end_campaigns(pool, now).await? > 0) }).await?;
    sweep_up("deleting contents", || async { Ok(sweeps::delete_contents(pool, now).await? > 0) }).await?;
    sweep_up("clearing topics", || async { Ok(topics::clear_removed(pool).await? > 0) }).await?;
    sweep_up("counting audiences", || async { Ok(audience_counts::fold(pool).await? == Progress::More) }).await
}

/// Does chunk after chunk for as long as there may be more. After [`CHUNKS_MAX`] the rest waits for the next round: whatever one
/// kind of sweep does not come to an end of, the others have their turn.
async fn sweep_up<F: Future<Output = sqlx::Result<bool>>>(
    name: &str,
    mut chunk: impl FnMut() -> F,
) -> sqlx::Result<()> {
    for _ in 0..CHUNKS_MAX {
        if !chunk().await? {
            return Ok(());
        }
    }
    warn!(sweep = name, chunks = CHUNKS_MAX, "a sweep did not come to its end; it goes on in the next round");
    Ok(())
}

/// Lets Postgres know of tables that have just begun to grow.
pub async fn refresh_statistics(pool: &PgPool) -> sqlx::Result<()> {
    statistics::refresh(pool).await
}

/// Folds all notes there are into metrics over time, and rests after each chunk.
pub async fn fold_metrics(pool: &PgPool) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if !rollups::fold(pool).await? {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Adds all notes there are to what is known of people, and rests after each chunk.
pub async fn fold_habits(pool: &PgPool, clock: &Clock) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if !habits::fold(pool, clock.now()).await? {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Makes the partitions of days to come and drops those of days that are past their retention. Fails, having held up nobody
/// for longer than a tenth of a second, while somebody reads them; then it should not be tried again at once.
pub async fn tend_partitions(pool: &PgPool, now: Timestamp, kept: Retention) -> sqlx::Result<()> {
    partitions::ensure(pool, now).await?;
    let dropped = partitions::drop_before(pool, now - kept.history).await?;
    if dropped > 0 {
        info!(dropped, "dropped partitions of history that is past its retention");
    }
    Ok(())
}

/// Clears away all rows that are past their retention, in chunks.
pub async fn keep_house(pool: &PgPool, now: Timestamp, kept: Retention) -> sqlx::Result<()> {
    let history = now - kept.history;
    until_none(|| partitions::clear_defaults(pool, history)).await?;
    until_none(|| retention::clear_brief(pool, now)).await?;
    until_none(|| topics::clear_unused(pool, now)).await?;
    until_none(|| hooks::clear(pool, now - kept.webhooks, now - kept.archive)).await?;
    until_none(|| retention::clear_archive(pool, now - kept.archive)).await?;
    for step in Step::ALL {
        until_none(|| retention::clear_rollups(pool, step, now - kept.metrics.of(step) - step.slack())).await?;
    }
    if let Some(audit_log) = kept.audit_log {
        until_none(|| audit::clear(pool, now - audit_log)).await?;
    }
    until_none(|| sessions::clear(pool, now)).await?;
    until_none(|| backups::clear(pool, now - kept.archive)).await?;
    until_none(|| restoring::clear(pool)).await?;
    until_none(|| passkeys::clear_challenges(pool, now)).await?;
    until_none(|| retention::clear_subscriptions(pool, now - kept.subscriptions, now)).await?;
    until_none(|| user_shards::clear(pool)).await?;
    through_all(MessageId(Uuid::nil()), |after| retention::clear_messages(pool, history, after)).await?;
    through_all((i16::MIN, SubscriptionId(Uuid::nil())), |after| retention::clear_throttles(pool, now, after)).await?;
    through_all(caps::Place::START, |after| caps::clear(pool, now, after)).await?;
    through_all(habits::Place::START, |after| habits::clear(pool, now - kept.habits, after)).await
}

/// Clears away chunk after chunk until there is nothing left, and rests after each.
async fn until_none<F: Future<Output = sqlx::Result<u64>>>(mut chunk: impl FnMut() -> F) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if chunk().await? == 0 {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

/// Goes through a table chunk after chunk, each after the last row of the one before, and rests after each.
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

/// Goes on with erasures and deletions of apps, for ever. Neither waits for the other, which may take hours.
pub(crate) async fn forget_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    let erasing = for_ever(&clock, &rest, "erasing users", |now| erase(&pool, &vault, now));
    let removing = for_ever(&clock, &rest, "deleting apps", |now| remove_apps(&pool, now));
    tokio::join!(erasing, removing);
}

/// Seals anew what was sealed under keys of before, whenever another seal key has taken over, for ever.
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

/// Seals anew all that is kept for good, if a seal key has taken over since that was done last. By then every server has sealed under
/// it for as long as it took to be heard of, so that nothing follows.
pub async fn reseal(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    let Some(number) = resealing::due(pool, now - data_keys::TAKES_OVER_AFTER).await? else { return Ok(()) };
    if u16::try_from(number) != Ok(vault.seal_keys().1) {
        return Ok(()); // this process has not heard of it yet
    }
    for column in resealing::SEALED {
        through_all(resealing::Place::START, |after| resealing::reseal(pool, vault, column, after)).await?;
    }
    resealing::done(pool, number, now).await?;
    info!(seal_key = number, "everything that is kept for good is sealed under the newest key");
    Ok(())
}

async fn for_ever<F: Future<Output = sqlx::Result<()>>>(
    clock: &Clock,
    rest: &Rest,
    name: &str,
    work: impl Fn(Timestamp) -> F,
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

/// Completes every erasure that the request for it has not. One that fails holds up none of the others; the last error is
/// returned.
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

/// Does what can be done now of deleting apps. One that fails holds up none of the others; the last error is returned.
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
mod tests {
    use chrono::DateTime;

    use super::*;

    #[tokio::test]
    async fn a_sweep_comes_to_an_end_though_its_chunks_find_the_same_again_and_again() {
        let (mut endless, mut brief) = (0, 0);
        let again = || {
            endless += 1;
            async { Ok(true) }
        };
        sweep_up("endless", again).await.unwrap();
        let until_third = || {
            brief += 1;
            let is_more = brief < 3;
            async move { Ok(is_more) }
        };
        sweep_up("brief", until_third).await.unwrap();
        assert_eq!((endless, brief), (CHUNKS_MAX, 3));
    }

    #[test]
    fn a_chore_that_failed_is_not_due_again_at_once() {
        let now: Timestamp = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut chore = Chore::new(now, KEEP_EVERY, KEEP_AGAIN);
        assert!(chore.is_due(now));
        chore.tried("test", &sqlx::Result::<()>::Err(sqlx::Error::PoolTimedOut), now);
        assert!(!chore.is_due(now + Duration::from_secs(59)) && chore.is_due(now + Duration::from_secs(60)));
        chore.tried("test", &Ok(()), now);
        assert!(!chore.is_due(now + Duration::from_secs(3599)) && chore.is_due(now + KEEP_EVERY));
    }
}
