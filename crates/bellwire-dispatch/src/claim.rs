//! First stage: finds due work, claims it and passes it to admission.
//!
//! Polling finds all work, and notifications only shorten the wait. After each poll the stage pauses twenty times as long as
//! the poll took, so that polling rarely uses more than a twentieth of a connection. Lanes are drawn concurrently, in the order
//! of the [agenda](super::agenda), while the next poll runs: no lane waits for another one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock};
use tokio::time::Instant;
use tracing::{error, warn};
use uuid::Uuid;

use super::admit::Admission;
use super::agenda::{Agenda, Drawn, REST_FAILED};
use super::catalog::{Catalog, CatalogError};
use super::fair::FairQueue;
use super::fair::turn::Room;
use super::message::LaneInfo;
use super::pending_set::PendingSet;
use super::poller::Heartbeat;
use super::rate::Rates;
use super::settle::Settling;
use super::shared::EngineContext;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_store as store;
use bellwire_store::queue::claims::{DueLane, DueSpan, LEASE, TakeBatchResult, WorkTable};
use bellwire_store::queue::opening::FreshMessages;
use bellwire_telemetry::panics;

const ROWS_MAX: usize = 500;
/// Maximum deliveries of one lane and tier claimed in one draw, plus at most a batch. Then other lanes follow.
const DRAW_MAX: usize = 1_000;
/// Number of passed candidates of a fan-out that cost about as much as the claim of one delivery.
const PASSED_PER_CLAIM: usize = 8;
/// Number of leases after which a batch is split into queue rows without sending.
const BATCH_LEASES_MAX: i16 = 3;
const REST_MIN: Duration = Duration::from_millis(100);
const REST_FACTOR: u32 = 20;
/// Maximum pause between polls, and so the maximum delay of due work.
const REST_MAX: Duration = Duration::from_secs(1);
/// Minimum ratio of pause to poll after a slow poll, for example while a backup's snapshot keeps dead rows.
const REST_FACTOR_MIN: u32 = 4;
const REST_MAX_SLOW: Duration = Duration::from_secs(4);
/// Pause while the process is [idle](super::idle). A notification ends it.
const LOOK_AT_REST: Duration = Duration::from_secs(2);
/// Minimum pause between polls of lanes whose rate is used up, so that deliveries at a high rate are not claimed one by one.
const TOKENS_REST: Duration = Duration::from_millis(20);

/// A running draw, with its lane and result.
type Draw = Pin<Box<dyn Future<Output = (DueLane, sqlx::Result<usize>)> + Send>>;

/// Share of a lane's room for one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoomShare {
    /// All of it. A batch may be larger: its other deliveries wait.
    Whole,
    /// Half of it, because other work is due, too. So new messages start beside any number of retries, and retries do not wait
    /// for the end of a campaign.
    Half,
    /// The remaining half, and no more, because a large batch would occupy the lane for its whole length. Room that becomes
    /// free meanwhile is left to the next draw, so that it is not used one by one.
    Rest,
}

impl RoomShare {
    /// Returns the size of the share. With an odd room, the half is randomly the larger or the smaller part. `randomness` is in
    /// [0, 1).
    fn of(self, room: usize, randomness: f64) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Rest => room,
            Self::Half => (room + usize::from(randomness < 0.5)) / 2,
        }
    }
}

/// Deliveries claimed from one table.
#[derive(Default)]
struct Drew {
    n: usize,
    /// Whether more deliveries may be due there than its share allowed.
    is_cut: bool,
}

pub(super) struct ClaimStage {
    pub shared: Arc<EngineContext>,
    pub catalog: Arc<Catalog>,
    pub queue: Arc<FairQueue>,
    pub rates: Arc<Rates>,
    pub settling: Arc<Settling>,
    pub heartbeat: Arc<Heartbeat>,
    pub admission: Arc<Admission>,
    /// Lanes to be drawn again.
    pub refills: Arc<PendingSet<(LaneId, Tier)>>,
    /// Shared lock held by each draw. The holder of the exclusive lock can rely on all claimed deliveries being counted as in
    /// flight.
    pub claiming: RwLock<()>,
    /// Notified when deliveries become due.
    pub kicked: Arc<Notify>,
    /// Number of polls skipped because the engine was not ready.
    pub refused: AtomicUsize,
    /// Time at which the first exhausted rate limit has a token again.
    pub tokens_at: Mutex<Option<Timestamp>>,
}

pub(super) async fn run(claims: Arc<ClaimStage>) {
    let mut agenda = claims.agenda();
    let mut draws = FuturesUnordered::<Draw>::new();
    let mut looking = pin!(OptionFuture::from(None));
    let (mut is_looking, mut began) = (false, Instant::now());
    let (mut soonest, mut look_at, mut tokens_at) = (began, began, None::<Instant>);
    loop {
        while let Some(due) = agenda.next(|app| claims.queue.is_limited(app)) {
            draws.push(Box::pin(draw_beside_others(claims.clone(), due)));
        }
        let tokens_after = claims.take_tokens_at().map(|wait| Instant::now() + wait.max(TOKENS_REST));
        tokens_at = tokens_at.into_iter().chain(tokens_after).min();
        tokio::select! {
            Some((due, drawn)) = draws.next() => {
                agenda.drawn(due, note_failure(due, &drawn), Instant::now());
            }
            Some(found) = &mut looking, if is_looking => {
                is_looking = false;
                let (now, took) = (Instant::now(), began.elapsed());
                (soonest, look_at) = match found {
                    Ok(found) => {
                        agenda.found(found, now);
                        let rest = if claims.shared.rest.is_resting() { LOOK_AT_REST } else { rest_after(took) };
                        (now + took.min(REST_MAX), now + rest)
                    }
                    Err(failed) => {
                        warn!(error = %failed, "looking for due work failed");
                        (now + REST_FAILED, now + REST_FAILED)
                    }
                };
            }
            // What is born while a look is under way may be too late for it: the next one follows at once.
            () = time_to_look(&claims, soonest, look_at), if !is_looking => {
                (is_looking, began) = (true, Instant::now());
                let claims = claims.clone();
                looking.set(OptionFuture::from(Some(async move { claims.due_lanes().await })));
            }
            () = tokio::time::sleep_until(tokens_at.unwrap_or(look_at)), if tokens_at.is_some() => {
                tokens_at = None;
                agenda.refill_apps(|app| claims.queue.is_limited(app));
            }
            wanted = claims.refills.next() => wanted.into_iter().for_each(|refill| agenda.refill(refill)),
        }
    }
}

fn rest_after(took: Duration) -> Duration {
    (took * REST_FACTOR).clamp(REST_MIN, REST_MAX).max(took * REST_FACTOR_MIN).min(REST_MAX_SLOW)
}

/// Waits for the end of the pause, or for a notification of due deliveries. Polls use at most half of the time, with any number
/// of notifications.
async fn time_to_look(claims: &ClaimStage, soonest: Instant, look_at: Instant) {
    tokio::time::sleep_until(soonest).await;
    tokio::select! {
        () = tokio::time::sleep_until(look_at) => {}
        () = claims.kicked.notified() => {}
        () = claims.settling.settler.caught_up() => {}
    }
}

async fn draw_beside_others(claims: Arc<ClaimStage>, due: DueLane) -> (DueLane, sqlx::Result<usize>) {
    let _claiming = claims.claiming.read().await;
    // What it had claimed when it panicked comes back as its leases run out.
    let drawn = panics::caught(claims.draw(due)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed));
    (due, drawn)
}

/// Logs a failed draw, which affects its lane only.
fn note_failure(due: DueLane, drawn: &sqlx::Result<usize>) -> Drawn {
    let Err(failed) = drawn else { return Drawn::Done };
    warn!(error = %failed, lane = due.lane.0, tier = due.tier.name(), "due work of a lane could not be claimed");
    Drawn::Failed
}

impl ClaimStage {
    /// Whether this engine may claim: it can read stops and settle deliveries.
    pub(super) fn is_ready(&self) -> bool {
        let is_ready = !self.shared.progress.is_stopping()
            && self.heartbeat.is_informed()
            && self.shared.stops.is_fresh(Instant::now())
            && self.shared.life.is_current(Instant::now())
            && !self.settling.settler.is_failing();
        if !is_ready {
            self.refused.fetch_add(1, Ordering::AcqRel);
        }
        is_ready
    }

    /// Returns how often it was not ready. A poll in between may have missed notifications.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Acquire)
    }

    fn agenda(&self) -> Agenda {
        Agenda::new(self.shared.pool.options().get_max_connections() as usize)
    }

    /// Returns all due work. Empty while claims are not allowed.
    async fn due_lanes(&self) -> sqlx::Result<Vec<DueLane>> {
        let EngineContext { pool, clock, rest, .. } = &*self.shared;
        // At rest too little is known to claim anything: what is found ends the rest, and is claimed after the next reading.
        if !rest.is_resting() && !self.is_ready() {
            return Ok(Vec::new());
        }
        let due = store::queue::claims::due_lanes(pool, clock.now()).await?;
        if due.is_empty() {
            return Ok(due);
        }
        rest.wake();
        Ok(if self.is_ready() { due } else { Vec::new() })
    }

    /// Finds all due deliveries and claims those that fit. Returns their number, or the first failure, after all lanes were
    /// drawn. The caller must prevent concurrent claims.
    pub(super) async fn look(self: &Arc<Self>) -> sqlx::Result<usize> {
        let (mut agenda, mut draws) = (self.agenda(), FuturesUnordered::new());
        let (mut claimed, mut failure) = (0, None);
        agenda.found(self.due_lanes().await?, Instant::now());
        loop {
            while let Some(due) = agenda.next(|app| self.queue.is_limited(app)) {
                draws.push(async move { (due, self.draw(due).await) });
            }
            let Some((due, drawn)) = draws.next().await else { break };
            agenda.drawn(due, note_failure(due, &drawn), Instant::now());
            match drawn {
                Ok(n) => claimed += n,
                Err(failed) => failure = failure.or(Some(failed)),
            }
        }
        failure.map_or(Ok(claimed), Err)
    }

    /// Claims from one lane and tier until its room or its work is used up.
    async fn draw(self: &Arc<Self>, due: DueLane) -> sqlx::Result<usize> {
        let lane = match self.catalog.lane(due.lane).await {
            Ok(lane) => lane,
            Err(CatalogError::Sql(failed)) => return Err(failed),
            Err(failed) => {
                error!(error = %failed, "due work cannot be sent");
                return Ok(0);
            }
        };
        self.ask_to_probe(&lane).await?;
        let DueLane { tier, sources, .. } = due;
        let (mut rows, mut others) = (Drew::default(), 0);
        for (source, since) in sources.iter() {
            match source {
                WorkTable::Queue => {
                    let part = if sources.beside_queue() { RoomShare::Half } else { RoomShare::Whole };
                    rows = self.draw_from(source, tier, since, &lane, part).await?;
                }
                WorkTable::Batches | WorkTable::Cursors => {
                    let part = if rows.is_cut { RoomShare::Rest } else { RoomShare::Whole };
                    others += self.draw_from(source, tier, since, &lane, part).await?.n;
                }
            }
        }
        // Another worker has taken what was found beside rows, say.
        if let Some(since) = sources.queue.filter(|_| rows.is_cut && others == 0) {
            others = self.draw_from(WorkTable::Queue, tier, since, &lane, RoomShare::Whole).await?.n;
        }
        Ok(rows.n + others)
    }

    /// Claims from one table until its work or its share of the room is used up.
    async fn draw_from(
        self: &Arc<Self>, source: WorkTable, tier: Tier, since: Timestamp, lane: &LaneInfo, part: RoomShare,
    ) -> sqlx::Result<Drew> {
        let (mut drew, mut most) = (Drew::default(), None);
        while self.is_ready() && !self.is_behind(source) && drew.n < DRAW_MAX {
            let now = self.shared.clock.now();
            let room = self.queue.room(lane, tier, now);
            if room.n == 0 {
                self.note_tokens_at(room.next_at);
                break;
            }
            let left =
                most.get_or_insert_with(|| part.of(room.n, self.shared.clock.randomness())).saturating_sub(drew.n);
            if left == 0 {
                drew.is_cut = true;
                break;
            }
            let room = Room { n: room.n.min(left), ..room };
            let (wanted, span) = (room.n.min(ROWS_MAX), DueSpan { lane: lane.id, tier, since, now });
            let n = match source {
                WorkTable::Queue => self.draw_rows(span, wanted).await?,
                WorkTable::Batches => self.draw_lost_batch(span).await?,
                WorkTable::Cursors => self.draw_batch(span, room, part).await?,
            };
            drew.n += n;
            if n == 0 || source == WorkTable::Queue && n < wanted {
                break;
            }
        }
        Ok(drew)
    }

    /// Whether so many deliveries of this kind wait to be settled that no more should be claimed.
    fn is_behind(&self, source: WorkTable) -> bool {
        match source {
            WorkTable::Queue => self.settling.settler.is_behind_with_rows(),
            WorkTable::Batches | WorkTable::Cursors => self.settling.settler.is_behind_with_batches(),
        }
    }

    /// Requests the right to probe a lane's origins whose breakers opened long enough ago. One of all workers gets it.
    async fn ask_to_probe(&self, lane: &LaneInfo) -> sqlx::Result<()> {
        let now = self.shared.clock.now();
        for (slot, origin, known) in self.queue.wants_probe(lane, now) {
            let right = store::operations::workers::lease_probe(
                &self.shared.pool,
                lane.id,
                &origin,
                self.shared.life.me().id,
                known,
                now,
            )
            .await?;
            self.queue.asked_to_probe(slot, known, right, now);
        }
        Ok(())
    }

    /// Records when an exhausted rate limit has a token again.
    fn note_tokens_at(&self, at: Option<Timestamp>) {
        let mut tokens_at = self.tokens_at.lock();
        *tokens_at = tokens_at.into_iter().chain(at).min();
    }

    /// Returns and resets the time until the first of these tokens.
    fn take_tokens_at(&self) -> Option<Duration> {
        let at = self.tokens_at.lock().take()?;
        Some((at - self.shared.clock.now()).to_std().unwrap_or_default())
    }

    async fn draw_rows(self: &Arc<Self>, span: DueSpan, limit: usize) -> sqlx::Result<usize> {
        let DueSpan { lane, tier, now, .. } = span;
        let (lease, claimed_at) = (self.fresh_lease(), Instant::now());
        let mut rows = store::queue::claims::claim_rows(&self.shared.pool, span, limit, lease, now + LEASE).await?;
        rows.sort_by_key(|row| row.scheduled_at);
        let n = rows.len();
        self.shared.metrics.claims.inc_by(n as u64);
        let lags = || rows.iter().map(|row| (now - row.scheduled_at).to_std().unwrap_or_default());
        lags().for_each(|lag| self.shared.metrics.lag(tier, lag));
        self.shared.reliability.lagged(lane, tier, lags());
        let rows = rows.into_iter().map(|row| (lane, row)).collect();
        let checked = self.admission.rows(rows, FreshMessages::default(), lease, claimed_at).await;
        self.admission.line_up(checked.free);
        self.admission.throttle_rows(checked.throttled).await;
        Ok(n)
    }

    async fn draw_batch(self: &Arc<Self>, span: DueSpan, room: Room, part: RoomShare) -> sqlx::Result<usize> {
        let DueSpan { lane, now, .. } = span;
        if span.tier == Tier::Engagement && self.postpone(span).await? {
            return Ok(1); // another cursor may follow
        }
        let (wanted, taken_at) = (self.batch_size(lane), Instant::now());
        let size = if room.exact || part == RoomShare::Rest { wanted.min(room.n) } else { wanted };
        let batch = self.fresh_lease();
        match store::queue::claims::take_batch(&self.shared.pool, span, size, batch, now + LEASE).await? {
            TakeBatchResult::Nothing => Ok(0),
            TakeBatchResult::NoRecipients { passed } => Ok(1 + self.pass(span, passed)), // another cursor may follow
            TakeBatchResult::Batch(batch) => {
                self.shared.metrics.batches_taken.inc();
                let passed = self.pass(span, batch.passed);
                Ok(self.admission.batch(batch, now + LEASE, taken_at).await? + passed)
            }
        }
    }

    /// Requests another draw, after the other lanes, of a lane whose fan-out passed candidates but found few recipients.
    /// Returns the number of claims that this counts as.
    fn pass(&self, span: DueSpan, passed: usize) -> usize {
        if passed > 0 {
            self.refills.report((span.lane, span.tier));
        }
        passed / PASSED_PER_CLAIM
    }

    /// Defers the next cursor as a whole if its app's windows are closed. Returns whether it did. Deliveries that expire before
    /// the windows open are taken anyway, and end as expired.
    async fn postpone(&self, span: DueSpan) -> sqlx::Result<bool> {
        let DueSpan { lane, tier, now, .. } = span;
        let Some(next) = store::queue::claims::next_cursor(&self.shared.pool, span).await? else { return Ok(false) };
        let Ok((message, _)) = self.catalog.open_both(lane, next).await else { return Ok(false) };
        match message.calendar.window_from(tier, now).filter(|opens_at| *opens_at < message.expires_at) {
            Some(opens_at) => store::queue::claims::postpone_cursor(&self.shared.pool, next, lane, now, opens_at).await,
            None => Ok(false),
        }
    }

    async fn draw_lost_batch(self: &Arc<Self>, span: DueSpan) -> sqlx::Result<usize> {
        let now = span.now;
        let (lease, leased_at) = (self.fresh_lease(), Instant::now());
        // A batch of our own that could not be settled in time is not lost.
        let own = self.settling.unsettled();
        let leased = store::queue::claims::lease_lost_batch(&self.shared.pool, span, &own, lease, now + LEASE).await?;
        let Some(batch) = leased else { return Ok(0) };
        warn!(batch = %batch.id, leases = batch.leases, "a batch's worker was lost; its deliveries may be repeated");
        if batch.leases >= BATCH_LEASES_MAX {
            store::queue::claims::split_batch(&self.shared.pool, &self.shared.vault, &batch, now).await?;
            return Ok(batch.recipients.len());
        }
        self.admission.batch(batch, now + LEASE, leased_at).await
    }

    fn fresh_lease(&self) -> Uuid {
        self.shared.life.lease(&self.shared.clock)
    }

    /// Returns the batch size: about two seconds of the lane's recent rate.
    fn batch_size(&self, lane: LaneId) -> usize {
        (self.rates.per_second(lane) * 2).clamp(self.shared.settings.batch_min, self.shared.settings.batch_max)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/claim.rs"]
mod tests;
