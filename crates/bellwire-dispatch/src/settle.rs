//! Last stage: counts the result of each admitted delivery and passes it to the settler.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{Span, debug};
use uuid::Uuid;

use super::batch::{OpenBatch, Recorded};
use super::conclude::unsent_attempt;
use super::job::{Job, Ticket};
use super::prepare::SUBSCRIPTION_GONE;
use super::settler::Settler;
use super::shared::EngineContext;
use super::stops::Stopped;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_rules::policy::hold::{DEFER_MAX, reopens_at};
use bellwire_rules::policy::reliability::{Accepted, ReliabilityCount};
use bellwire_store::outcomes::ledger::unsent::STOPPED;
use bellwire_store::outcomes::ledger::{ClaimableAt, Delivery, End, Fate, RowSettlement, Settlement};
use bellwire_store::queue::claims::Unopened;

/// The stage that settles, with the open batches.
pub(super) struct Settling {
    shared: Arc<EngineContext>,
    pub settler: Arc<Settler>,
    batches: Mutex<HashMap<Uuid, Arc<OpenBatch>>>,
}

impl Settling {
    pub(super) fn new(shared: Arc<EngineContext>, settler: Arc<Settler>) -> Self {
        Self { shared, settler, batches: Mutex::default() }
    }

    /// Passes the result of a delivery to its batch or to the settler of rows.
    pub(super) fn settle(&self, job: &mut Job, fate: Fate) {
        let fate = self.if_stopped(job, fate);
        if let Fate::Ended(_, End::Dead(death)) = &fate {
            debug!(subscription = self.shared.label(job.subscription), reason = death.reason.name(), "a delivery died");
        }
        let settlement = job.settle(fate, self.shared.clock.now());
        debug!(outcome = settlement.outcome(), "a delivery's turn is over");
        self.tally(job, &settlement);
        // The guard counts an answer that prunes, once it lets it through.
        let is_counted = |ending: &Ending| *ending != Ending::Gone || !settlement.is_called_gone();
        for ending in settlement.attempts().map(|(_, ending)| ending).filter(is_counted) {
            self.shared.metrics.ended(ending, job.message.tier, 1);
        }
        match &job.ticket {
            Ticket::Row(lease) => self.row(*lease, settlement),
            Ticket::Batch(batch, place) => self.place(batch, *place, settlement),
        }
        self.shared.progress.finished(1);
    }

    /// Settles a claimed row that never became a job.
    pub(super) fn settle_row(&self, lease: Uuid, settlement: Settlement) {
        self.count_sla(&settlement);
        self.row(lease, settlement);
        self.shared.progress.finished(1);
    }

    pub(super) fn settle_place(&self, batch: &Arc<OpenBatch>, place: usize, settlement: Settlement) {
        self.count_sla(&settlement);
        self.place(batch, place, settlement);
        self.shared.progress.finished(1);
    }

    fn row(&self, lease: Uuid, settlement: Settlement) {
        self.settler.row(RowSettlement { lease, settlement });
    }

    fn place(&self, batch: &Arc<OpenBatch>, place: usize, settlement: Settlement) {
        match batch.record(place, settlement) {
            Recorded::Kept => {}
            Recorded::Last => self.close(batch),
            Recorded::Row(settlement) => self.row(batch.lease, settlement),
        }
    }

    /// Requeues deliveries that were not sent: they are due at once.
    pub(super) fn put_back(&self, jobs: Vec<Box<Job>>, now: Timestamp) {
        for mut job in jobs {
            self.in_its_span(&mut job, |settling, job| settling.settle(job, Fate::Deferred(ClaimableAt::At(now))));
        }
    }

    /// Requeues rows that could not be read: they are due at once.
    pub(super) fn give_back(&self, rows: Vec<(SubscriptionId, MessageId)>, lease: Uuid) {
        let n = rows.len();
        if n > 0 {
            self.settler.give_back(lease, Unopened::Rows(rows));
            self.shared.progress.finished(n);
        }
    }

    /// Defers deliveries of a shut lane. When the lane opens, urgent ones are due at once, and others spread over time.
    /// Deliveries that only wait for flow control stay due.
    pub(super) fn defer(&self, jobs: Vec<Box<Job>>, until: Timestamp) {
        let clock = &self.shared.clock;
        let now = clock.now();
        let until = until.min(now + DEFER_MAX);
        for mut job in jobs {
            let due = match job.message.tier {
                _ if until <= now => ClaimableAt::At(now),
                tier => ClaimableAt::Reopening(reopens_at(until, tier == Tier::Transactional, clock.randomness())),
            };
            self.in_its_span(&mut job, |settling, job| settling.settle(job, Fate::Deferred(due)));
        }
    }

    /// Settles a delivery within its trace span.
    fn in_its_span(&self, job: &mut Job, settle: impl FnOnce(&Self, &mut Job)) {
        let span = if Span::current().is_none() { self.shared.span(job) } else { Span::none() };
        span.in_scope(|| settle(self, job));
    }

    /// Returns another result for a delivery that would continue to wait, but was stopped meanwhile: it ends now, or moves to a
    /// successor.
    fn if_stopped(&self, job: &mut Job, fate: Fate) -> Fate {
        if let Fate::Ended(..) | Fate::InFlight { .. } = fate {
            return fate;
        }
        let now = self.shared.clock.now();
        let (end, why) = match (self.shared.stops.check(&job.target()), fate) {
            (Some(Stopped::Replaced), Fate::Retry { failed, retries, .. }) => {
                return Fate::Retry { failed, retries, due: now };
            }
            (Some(Stopped::Replaced), _) => return Fate::Deferred(ClaimableAt::At(now)),
            (Some(Stopped::Paused) | None, fate) => return fate,
            (Some(stopped), fate) => {
                if let Fate::Retry { failed, retries, .. } = fate {
                    job.attempts.push(failed);
                    job.retries = retries;
                }
                if stopped == Stopped::Gone { (End::Gone, SUBSCRIPTION_GONE) } else { (End::Cancelled, STOPPED) }
            }
        };
        Fate::Ended(unsent_attempt(job.retries, why, now), end)
    }

    /// Counts the result of a delivery, for the reliability metrics.
    fn tally(&self, job: &Job, settlement: &Settlement) {
        let (&Delivery { lane, tier, .. }, reliability) = (settlement.delivery(), &self.shared.reliability);
        let retries = settlement.attempts().filter(|(attempt, _)| attempt.number > 0 && attempt.took_ms.is_some());
        for (retry, _) in retries {
            reliability.retried(lane, tier, retry.number);
        }
        self.count_sla(settlement);
        let Fate::Ended(last, end) = settlement.fate() else { return };
        let since = |from: Timestamp, to: Timestamp| (to - from).to_std().unwrap_or_default();
        match end {
            End::Accepted => {
                let stretch = job.planned.filter(|_| settlement.attempts().count() == 1);
                let stretch = stretch.map(|(failed_at, due)| (since(failed_at, last.at), since(failed_at, due)));
                let delay = since(job.free_at, last.at);
                reliability.accepted(lane, tier, &Accepted { retries: last.number, delay, stretch });
            }
            End::Expired if last.number > 0 || last.took_ms.is_some() => {
                reliability.count(lane, Some(tier), ReliabilityCount::RetriesExpired, 1)
            }
            _ => {}
        }
    }

    /// Counts a delivery that missed its SLA.
    fn count_sla(&self, settlement: &Settlement) {
        if settlement.sla_missed_s().is_some() {
            let &Delivery { lane, tier, .. } = settlement.delivery();
            self.shared.reliability.count(lane, Some(tier), ReliabilityCount::SlaMissed, 1);
        }
    }

    pub(super) fn open(&self, batch: Arc<OpenBatch>) {
        self.batches.lock().insert(batch.id, batch);
        self.shared.metrics.batches_open.inc();
    }

    /// Returns the ids of batches that are open, or closed and not written yet.
    pub(super) fn unsettled(&self) -> Vec<Uuid> {
        let open: Vec<Uuid> = self.batches.lock().keys().copied().collect();
        open.into_iter().chain(self.settler.waiting_batches().iter().map(|batch| batch.id)).collect()
    }

    pub(super) fn close_due(&self, now: tokio::time::Instant) {
        let due: Vec<_> = self.batches.lock().values().filter(|batch| batch.close_if_due(now)).cloned().collect();
        due.iter().for_each(|batch| self.close(batch));
    }

    /// Passes a closed batch to the settler.
    fn close(&self, batch: &Arc<OpenBatch>) {
        self.settler.batch(batch.clone());
        self.batches.lock().remove(&batch.id);
        self.shared.metrics.batches_open.dec();
    }
}
