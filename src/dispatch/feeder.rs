//! The feeder: finds due work, claims it and lets it into the fair queue.
//!
//! Polling is the truth; wake-ups only shorten the wait. After each look at everything the feeder rests twenty times
//! as long as the look took, so that finding work never costs more than a twentieth of a connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{error, warn};
use uuid::Uuid;

use super::Dispatcher;
use super::catalog::CatalogError;
use super::fair::Room;
use super::job::{Job, LaneInfo, Message, Ticket, open_address, settlement};
use super::line::unsent_attempt;
use super::page::{OpenPage, Recorded};
use crate::classify::DeadReason;
use crate::clock::Timestamp;
use crate::delivery::{Ending, Tier};
use crate::id::LaneId;
use crate::store;
use crate::store::claims::{ClaimedRow, Cut, DueLane, LEASE, Page, Recipient, Source, Standing};
use crate::store::settle::{Attempt, Death, Due, Fate, RowSettlement};

/// No POST starts so long after its claim: with the attempt's deadline it ends well within the lease.
pub const START_WITHIN: Duration = Duration::from_secs(15);
/// Rows claimed at a time.
const ROWS_MAX: usize = 500;
/// Deliveries of one lane and tier that are claimed before the others have their turn, give or take a page.
const DRAW_MAX: usize = 1_000;
/// A page leased so often is split into rows without sending.
const PAGE_LEASES_MAX: i16 = 3;
/// A row leased so often ends as dead.
const ROW_LEASES_MAX: i16 = 5;
/// The shortest rest between two looks at everything.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_FACTOR: u32 = 20;
/// The longest, so that a look that claimed a lot does not delay the next one.
const REST_MAX: Duration = Duration::from_secs(1);
/// The shortest rest between two looks at lanes whose rate is used up, so that a high one is not claimed one by one.
const TOKENS_REST: Duration = Duration::from_millis(20);
/// The rest after a failed look.
const REST_FAILED: Duration = Duration::from_secs(1);

/// A lane and tier that ran low.
pub type Hunger = (LaneId, Tier);

/// Looks, claims and rests for ever.
pub async fn feed(dispatcher: Arc<Dispatcher>, mut hungry: mpsc::UnboundedReceiver<Hunger>) {
    let (mut found, mut appetite) = (Vec::new(), Vec::new());
    loop {
        let began = Instant::now();
        let looked = dispatcher.look(&mut found).await;
        let rest = match looked {
            Ok(_) => (began.elapsed() * REST_FACTOR).clamp(REST_MIN, REST_MAX),
            Err(failed) => {
                warn!(error = %failed, "looking for due work failed");
                REST_FAILED
            }
        };
        let wake_at = Instant::now() + rest;
        loop {
            let tokens_at = dispatcher.take_tokens_at().map(|wait| Instant::now() + wait.max(TOKENS_REST));
            let by_rate = tokio::select! {
                () = tokio::time::sleep_until(wake_at) => break,
                () = dispatcher.kicked.notified() => break,
                () = tokio::time::sleep_until(tokens_at.unwrap_or(wake_at)) => true,
                received = hungry.recv_many(&mut appetite, 64) => if received == 0 { return } else { false },
            };
            appetite.sort_unstable();
            appetite.dedup();
            let _claiming = dispatcher.claiming.lock().await;
            // What the last look did not find is left to the next one.
            let wanted = |due: &&DueLane| by_rate || appetite.binary_search(&(due.lane, due.tier)).is_ok();
            for due in found.iter().filter(wanted) {
                if let Err(failed) = dispatcher.draw(*due).await {
                    warn!(error = %failed, "claiming failed");
                }
            }
            appetite.clear();
        }
    }
}

impl Dispatcher {
    /// Finds everything that is due and claims what fits. Answers how many deliveries that were.
    pub(super) async fn look(self: &Arc<Self>, found: &mut Vec<DueLane>) -> sqlx::Result<usize> {
        found.clear();
        let mut claimed = 0;
        let _claiming = self.claiming.lock().await;
        if !self.is_ready() {
            return Ok(0);
        }
        *found = store::claims::due_lanes(&self.pool, self.clock.now()).await?;
        for due in found.iter() {
            claimed += self.draw(*due).await?;
        }
        Ok(claimed)
    }

    /// Claims from one source until it or the lane's room is used up.
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
        let mut claimed = 0;
        while self.is_ready() && claimed < DRAW_MAX {
            let now = self.clock.now();
            let room = self.fair.room(&lane, due.tier, now);
            if room.n == 0 {
                self.come_back_at(room.next_at);
                break;
            }
            let n = match due.source {
                Source::Queue => self.draw_rows(due, room.n.min(ROWS_MAX), now).await?,
                Source::Pages => self.draw_lost_page(due, now).await?,
                Source::Cursors => self.draw_page(due, room, now).await?,
            };
            if n == 0 {
                break;
            }
            claimed += n;
        }
        Ok(claimed)
    }

    /// Asks for the right to probe a lane's origins whose breakers opened long enough ago. Of all workers one gets it.
    async fn ask_to_probe(&self, lane: &LaneInfo) -> sqlx::Result<()> {
        let now = self.clock.now();
        for (slot, origin, known) in self.fair.wants_probe(lane, now) {
            let right = store::workers::lease_probe(&self.pool, lane.id, &origin, self.id, known, now).await?;
            self.fair.asked_to_probe(slot, known, right, now);
        }
        Ok(())
    }

    /// Notes when a rate that is used up lets something through again.
    fn come_back_at(&self, at: Option<Timestamp>) {
        let mut tokens_at = self.tokens_at.lock();
        *tokens_at = tokens_at.into_iter().chain(at).min();
    }

    /// How long until the first of these times.
    fn take_tokens_at(&self) -> Option<Duration> {
        let at = self.tokens_at.lock().take()?;
        Some((at - self.clock.now()).to_std().unwrap_or_default())
    }

    async fn draw_rows(self: &Arc<Self>, due: DueLane, limit: usize, now: Timestamp) -> sqlx::Result<usize> {
        let (lease, claimed_at) = (self.clock.uuid(), Instant::now());
        let rows = store::claims::claim_rows(&self.pool, due.lane, due.tier, limit, lease, now, now + LEASE).await?;
        let n = rows.len();
        self.started(n);
        self.metrics.claims.inc_by(n as u64);
        let mut jobs = Vec::with_capacity(n);
        for row in rows {
            self.metrics.lag(due.tier, (now - row.scheduled_at).to_std().unwrap_or_default());
            let Some((message, lane)) = self.context(due.lane, row.message).await else {
                self.finished(1); // its lease runs out; the poison rules bound how often
                continue;
            };
            jobs.extend(self.job_of_row(row, message, lane, lease, claimed_at));
        }
        self.admit_jobs(jobs);
        Ok(n)
    }

    pub(super) async fn context(
        &self,
        lane: LaneId,
        message: crate::id::MessageId,
    ) -> Option<(Arc<Message>, Arc<LaneInfo>)> {
        match (self.catalog.message(message).await, self.catalog.lane(lane).await) {
            (Ok(message), Ok(lane)) => Some((message, lane)),
            (Err(failed), _) | (_, Err(failed)) => {
                error!(error = %failed, "claimed work cannot be sent");
                None
            }
        }
    }

    /// A job of a claimed row; none if the row has its fate already.
    pub(super) fn job_of_row(
        &self,
        row: ClaimedRow,
        message: Arc<Message>,
        lane: Arc<LaneInfo>,
        lease: Uuid,
        claimed_at: Instant,
    ) -> Option<Box<Job>> {
        let now = self.clock.now();
        let subscription = row.recipient.subscription;
        let fate = match row.recipient.standing {
            _ if row.leases >= ROW_LEASES_MAX => {
                Some(dead(self.clock.uuid(), &message, DeadReason::LeaseExhausted, row.retries, now))
            }
            Standing::Sendable => None,
            standing => Some(standing_fate(standing, row.retries, now)),
        };
        let fate = match fate {
            Some(fate) => fate,
            None => {
                let (retries, ticket) = (row.retries, Ticket::Row(lease));
                match self.job(&row.recipient, retries, message.clone(), lane.clone(), claimed_at, ticket) {
                    Ok(job) => return Some(job),
                    Err(reason) => dead(self.clock.uuid(), &message, reason, row.retries, now),
                }
            }
        };
        let settlement = settlement(&message, lane.id, subscription, fate.0.into_iter().collect(), fate.1);
        self.settler.row(RowSettlement { lease, settlement });
        self.finished(1);
        None
    }

    fn job(
        &self,
        recipient: &Recipient,
        retries: u32,
        message: Arc<Message>,
        lane: Arc<LaneInfo>,
        claimed_at: Instant,
        ticket: Ticket,
    ) -> Result<Box<Job>, DeadReason> {
        let (keys, endpoint) =
            open_address(&self.vault, recipient.subscription, &recipient.address).map_err(|why| {
                error!(error = %why, "a stored subscription cannot be used");
                DeadReason::Unsealable
            })?;
        Ok(Box::new(Job {
            message,
            lane,
            subscription: recipient.subscription,
            origin_id: recipient.origin_id,
            endpoint,
            keys,
            retries,
            start_before: claimed_at + START_WITHIN,
            attempts: Vec::new(),
            shrunk: None,
            limit: None,
            refused: None,
            ticket,
        }))
    }

    async fn draw_page(self: &Arc<Self>, due: DueLane, room: Room, now: Timestamp) -> sqlx::Result<usize> {
        let (wanted, cut_at) = (self.page_size(due.lane), Instant::now());
        let size = if room.exact { wanted.min(room.n) } else { wanted };
        let page = self.clock.uuid();
        match store::claims::cut_page(&self.pool, due.lane, due.tier, size, page, now, now + LEASE).await? {
            Cut::Nothing => Ok(0),
            Cut::Ended => Ok(1), // nobody was left, but another cursor may follow
            Cut::Page(page) => {
                self.metrics.pages_cut.inc();
                Ok(self.open_page(page, now + LEASE, cut_at).await)
            }
        }
    }

    async fn draw_lost_page(self: &Arc<Self>, due: DueLane, now: Timestamp) -> sqlx::Result<usize> {
        let (lease, leased_at) = (self.clock.uuid(), Instant::now());
        let leased = store::claims::lease_lost_page(&self.pool, due.lane, due.tier, lease, now, now + LEASE).await?;
        let Some(page) = leased else { return Ok(0) };
        warn!(page = %page.id, leases = page.leases, "a page's worker was lost; its deliveries may be repeated");
        if page.leases >= PAGE_LEASES_MAX {
            store::claims::split_page(&self.pool, &page, now).await?;
            return Ok(page.recipients.len());
        }
        Ok(self.open_page(page, now + LEASE, leased_at).await)
    }

    /// About two seconds of what the lane got through lately.
    fn page_size(&self, lane: LaneId) -> usize {
        (self.rates.per_second(lane) * 2).clamp(self.settings.page_min, self.settings.page_max)
    }

    /// Lets a page's deliveries in.
    async fn open_page(self: &Arc<Self>, page: Page, lease_until: Timestamp, claimed_at: Instant) -> usize {
        let n = page.recipients.len();
        let Some((message, lane)) = self.context(page.lane, page.message).await else { return 0 };
        let open = Arc::new(OpenPage::new(&page, message.clone(), lane.clone(), lease_until, claimed_at));
        self.pages.lock().insert(open.id, open.clone());
        self.metrics.pages_open.inc();
        self.started(n);
        let now = self.clock.now();
        let mut jobs = Vec::with_capacity(n);
        for (place, recipient) in page.recipients.iter().enumerate() {
            let ticket = Ticket::Page(open.clone(), place);
            let (attempt, fate) = match recipient.standing {
                Standing::Sendable => match self.job(recipient, 0, message.clone(), lane.clone(), claimed_at, ticket) {
                    Ok(job) => {
                        jobs.push(job);
                        continue;
                    }
                    Err(reason) => dead(self.clock.uuid(), &message, reason, 0, now),
                },
                standing => standing_fate(standing, 0, now),
            };
            let settled = settlement(&message, lane.id, recipient.subscription, attempt.into_iter().collect(), fate);
            if matches!(open.record(place, settled), Recorded::Last) {
                self.close_page(&open);
            }
            self.finished(1);
        }
        self.admit_jobs(jobs);
        n
    }

    pub(super) fn admit_jobs(self: &Arc<Self>, jobs: Vec<Box<Job>>) {
        for (job, until) in self.fair.push(jobs, self.clock.now()) {
            self.put_off(vec![job], until);
        }
        // A stop may have emptied the queue a moment before these came.
        if self.is_stopping() {
            self.put_back(self.fair.drain(), self.clock.now());
        }
    }
}

/// The fate of a delivery that must not be sent, as the database stood when it was claimed.
fn standing_fate(standing: Standing, retries: u32, now: Timestamp) -> (Option<Attempt>, Fate) {
    let ended = |ending, why| (Some(unsent_attempt(retries, ending, why, now)), Fate::Ended(ending, None));
    match standing {
        Standing::Sendable => (None, Fate::Deferred(Due::At(now))),
        Standing::Paused => (None, Fate::Deferred(Due::Parked)),
        Standing::Cancelled => ended(Ending::Cancelled, "stopped"),
        Standing::Gone => ended(Ending::Gone, "subscription gone"),
    }
}

fn dead(id: Uuid, message: &Message, reason: DeadReason, retries: u32, now: Timestamp) -> (Option<Attempt>, Fate) {
    let death = Death { id, reason: reason.name(), detail: None, policy: Some(message.policy.to_json()) };
    (Some(unsent_attempt(retries, Ending::Dead, reason.name(), now)), Fate::Ended(Ending::Dead, Some(Box::new(death))))
}
