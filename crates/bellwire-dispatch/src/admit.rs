//! Checks a claimed delivery before it enters the fair queue: retry token, states of subscription and message, frequency caps,
//! and throttle. Queue rows and batches pass the same checks. Rejected deliveries are settled here.

mod limits;
mod rows;

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry::KeyValue;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::error;
use uuid::Uuid;

use crate::batch::OpenBatch;
use crate::catalog::{Catalog, CatalogError};
use crate::conclude::unsent_attempt;
use crate::content::{PersonalContent, Wants};
use crate::fair::FairQueue;
use crate::job::{Job, START_WITHIN, Ticket, open_address};
use crate::message::{LaneInfo, Message, delivery};
use crate::prepare::SUBSCRIPTION_GONE;
use crate::settle::Settling;
use crate::shared::EngineContext;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{DeadLetterId, LaneId, SubscriptionId};
use bellwire_rules::classify::DeadReason;
use bellwire_rules::policy::caps::MUTED;
use bellwire_store as store;
use bellwire_store::outcomes::ledger::unsent::STOPPED;
use bellwire_store::outcomes::ledger::{ClaimableAt, Death, End, Fate, Settlement};
use bellwire_store::queue::claims::{Batch, ClaimedRow, Recipient, Sendability, Unopened};
use bellwire_store::queue::opening::FreshMessages;
use bellwire_telemetry::otlp::{DeliverySpan, Stage};
use bellwire_template::TemplatePerson;
use rows::ClaimedEntry;

/// Addresses of a batch decrypted before the task yields: some 100 µs.
const OPENED_AT_ONCE: usize = 50;
const ROW_LEASES_MAX: i16 = 5;

/// Template data of recipients, for messages that need them.
type People = HashMap<SubscriptionId, Arc<TemplatePerson>>;

/// Rows that passed the checks.
#[derive(Default)]
pub(super) struct CheckedRows {
    /// Rows that can be added to the fair queue by [`line_up`](Admission::line_up).
    pub free: Vec<Box<Job>>,
    /// Rows whose subscriptions have a throttle, for [`Admission::throttle_rows`].
    pub throttled: Vec<Box<Job>>,
}

/// Stage that checks claimed deliveries before they enter the fair queue.
pub(super) struct Admission {
    pub shared: Arc<EngineContext>,
    pub catalog: Arc<Catalog>,
    pub queue: Arc<FairQueue>,
    pub settling: Arc<Settling>,
    /// Notified when deliveries become due.
    pub kicked: Arc<Notify>,
}

impl Admission {
    /// Checks rows that were claimed, or inserted, under `lease`. `written` contains the messages of inserted rows. Rows that
    /// cannot be read now are requeued. Rows that cannot be admitted for another reason are claimed again after their lease; a
    /// maximum of leases limits how often.
    #[must_use]
    pub(super) async fn rows(
        &self, rows: Vec<(LaneId, ClaimedRow)>, written: FreshMessages, lease: Uuid, claimed_at: Instant,
    ) -> CheckedRows {
        self.shared.progress.started(rows.len());
        let wanted = rows.iter().map(|(_, row)| row.message).collect();
        let messages = match self.catalog.messages(wanted, written).await {
            Ok(messages) => messages,
            Err(failed) => {
                error!(error = %failed, "claimed messages could not be read; their deliveries are requeued");
                let unread = rows.into_iter().map(|(_, row)| (row.recipient.subscription, row.message));
                self.settling.give_back(unread.collect(), lease);
                return CheckedRows::default();
            }
        };
        let (mut entries, mut unread) = (Vec::with_capacity(rows.len()), Vec::new());
        for (lane, row) in rows {
            let Some(message) = messages.get(&row.message) else {
                self.shared.progress.finished(1);
                continue;
            };
            match self.catalog.lane(lane).await {
                Ok(lane) => entries.push(ClaimedEntry { row, message: message.clone(), lane }),
                Err(failed) => {
                    error!(error = %failed, "claimed work cannot be sent");
                    match failed {
                        CatalogError::Sql(_) => unread.push((row.recipient.subscription, row.message)),
                        CatalogError::Unusable(_) | CatalogError::Missing(_) => self.shared.progress.finished(1),
                    }
                }
            }
        }
        self.settling.give_back(unread, lease);
        let entries = self.without_forged(entries, lease).await;
        let entries = self.without_replaced(entries, lease).await;
        let entries = self.without_late(entries, lease).await;
        let wanted = entries.iter().map(|entry| (&entry.row.recipient, entry.message.says.wants()));
        let people = match self.people(wanted).await {
            Ok(people) => people,
            Err(failed) => {
                error!(error = %failed, "recipients of templates could not be read; their deliveries are requeued");
                self.settling.give_back(entries.iter().map(ClaimedEntry::key).collect(), lease);
                return CheckedRows::default();
            }
        };
        let (free, throttled) = entries
            .into_iter()
            .filter_map(|entry| {
                let has_turn = entry.row.has_turn;
                Some((self.job_of_row(entry, &people, lease, claimed_at)?, has_turn))
            })
            .partition::<Vec<_>, _>(|(job, has_turn)| *has_turn || job.policy.throttle.is_none());
        let only_jobs = |jobs: Vec<(Box<Job>, bool)>| jobs.into_iter().map(|(job, _)| job).collect();
        CheckedRows { free: self.without_capped(only_jobs(free)).await, throttled: only_jobs(throttled) }
    }

    /// Adds the rows with a throttle slot now to the fair queue, and defers the others.
    pub(super) async fn throttle_rows(&self, throttled: Vec<Box<Job>>) {
        self.throttle(self.without_capped(throttled).await).await;
    }

    /// Returns the job of a claimed row. `None`: the row is settled already.
    fn job_of_row(&self, entry: ClaimedEntry, people: &People, lease: Uuid, claimed_at: Instant) -> Option<Box<Job>> {
        let (now, ClaimedEntry { row, message, lane }) = (self.shared.clock.now(), entry);
        let ticket = Ticket::Row(lease);
        let settled = match row.recipient.standing {
            _ if row.leases >= ROW_LEASES_MAX => {
                dead(DeadLetterId(self.shared.clock.uuid()), &message, DeadReason::LeaseExhausted, row.retries, now)
            }
            Sendability::Sendable => {
                match self
                    .job(&row.recipient, row.retries, &message, &lane, claimed_at, ticket)
                    .and_then(|job| self.told(job, people))
                {
                    Ok(mut job) => {
                        job.planned = row.failed_at.map(|failed_at| (failed_at, row.scheduled_at));
                        return Some(job);
                    }
                    Err(settled) => settled,
                }
            }
            standing => standing_fate(standing, row.retries, now),
        };
        let to = (row.recipient.subscription, row.recipient.life);
        let settlement = Settlement::new(delivery(&message, lane.id, to, false), settled);
        self.settling.settle_row(lease, settlement);
        None
    }

    /// Admits a batch's deliveries. Returns their number.
    pub(super) async fn batch(&self, batch: Batch, lease_until: Timestamp, claimed_at: Instant) -> sqlx::Result<usize> {
        let n = batch.recipients.len();
        let (message, lane) = match self.catalog.open_both(batch.lane, batch.message).await {
            Ok(context) => context,
            Err(CatalogError::Sql(failed)) => {
                self.settling.settler.give_back(batch.lease, Unopened::Batch(batch.id));
                return Err(failed);
            }
            Err(CatalogError::Unusable(_) | CatalogError::Missing(_)) => return Ok(0),
        };
        let wants = message.says.wants();
        let people = match self.people(batch.recipients.iter().map(|recipient| (recipient, wants))).await {
            Ok(people) => people,
            Err(failed) => {
                self.settling.settler.give_back(batch.lease, Unopened::Batch(batch.id));
                return Err(failed);
            }
        };
        let open = Arc::new(OpenBatch::new(&batch, message.clone(), lane.clone(), lease_until, claimed_at));
        self.settling.open(open.clone());
        self.shared.progress.started(n);
        let now = self.shared.clock.now();
        let mut jobs = Vec::with_capacity(n);
        for (place, recipient) in batch.recipients.iter().enumerate() {
            if place % OPENED_AT_ONCE == OPENED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let ticket = Ticket::Batch(open.clone(), place);
            let fate = match recipient.standing {
                Sendability::Sendable => match self
                    .job(recipient, 0, &message, &lane, claimed_at, ticket)
                    .and_then(|job| self.told(job, &people))
                {
                    Ok(mut job) => {
                        job.free_at = message.free_at(recipient.timezone.as_deref(), batch.paced_at);
                        jobs.push(job);
                        continue;
                    }
                    Err(settled) => settled,
                },
                standing => standing_fate(standing, 0, now),
            };
            let to = (recipient.subscription, recipient.life);
            let settled = Settlement::new(delivery(&message, lane.id, to, false), fate);
            self.settling.settle_place(&open, place, settled);
        }
        let jobs = self.without_capped(jobs).await;
        let (throttled, free): (Vec<Box<Job>>, _) = jobs.into_iter().partition(|job| job.policy.throttle.is_some());
        self.line_up(free);
        self.throttle(throttled).await;
        Ok(n)
    }

    /// Reads the recipients' data that templates need, in one statement, or none if no template needs any.
    async fn people(&self, wanted: impl Iterator<Item = (&Recipient, Option<Wants>)>) -> sqlx::Result<People> {
        let (mut ids, mut most) = (Vec::new(), Wants::Locale);
        for (recipient, wants) in wanted {
            if let Some(wants) = wants.filter(|_| recipient.standing == Sendability::Sendable) {
                ids.push(recipient.subscription);
                most = most.max(wants);
            }
        }
        if ids.is_empty() {
            return Ok(People::new());
        }
        store::audience::people::of(&self.shared.pool, &ids, most == Wants::All).await
    }

    /// Adds the recipient's data to a delivery, if its template needs them. If the subscription no longer exists, the delivery
    /// is deferred, and ends at its next claim.
    fn told(&self, mut job: Box<Job>, people: &People) -> Result<Box<Job>, Fate> {
        if job.message.says.wants().is_some() {
            let person =
                people.get(&job.subscription).ok_or(Fate::Deferred(ClaimableAt::At(self.shared.clock.now())))?;
            job.own = Some(PersonalContent::Person(person.clone()));
        }
        Ok(job)
    }

    /// Returns the deferral of a delivery that may not be sent at this time of day. `None`: it may.
    fn hold(&self, message: &Message, recipient: &Recipient, retries: u32) -> Option<Fate> {
        if message.calendar.is_always_open() {
            return None;
        }
        let now = self.shared.clock.now();
        let opens_at = message.calendar.opens_at(message.tier, recipient.timezone.as_deref(), now);
        match opens_at {
            _ if opens_at <= now => None,
            _ if message.ttl_s > 0 && opens_at >= message.expires_at => {
                Some(Fate::Ended(unsent_attempt(retries, "held beyond its time to live", now), End::Expired))
            }
            _ => Some(Fate::Deferred(ClaimableAt::At(opens_at))),
        }
    }

    /// Returns the end of a delivery whose person wants only transactional messages now. Removals and updates of messages that the
    /// browser got before are sent.
    fn muted(&self, message: &Message, recipient: &Recipient, retries: u32) -> Option<Fate> {
        let until = recipient.muted_until?;
        let is_exempt = message.tier == Tier::Transactional || message.withdraws_root.is_some();
        let now = self.shared.clock.now();
        (!is_exempt && until > now).then(|| Fate::Ended(unsent_attempt(retries, MUTED, now), End::Capped))
    }

    /// Builds the job of a delivery. The error is its result if it cannot be sent now.
    fn job(
        &self, recipient: &Recipient, retries: u32, message: &Arc<Message>, lane: &Arc<LaneInfo>, claimed_at: Instant,
        ticket: Ticket,
    ) -> Result<Box<Job>, Fate> {
        if let Some(muted) = self.muted(message, recipient, retries) {
            return Err(muted);
        }
        if let Some(held) = self.hold(message, recipient, retries) {
            return Err(held);
        }
        let (keys, endpoint) =
            open_address(&self.shared.vault, recipient.subscription, &recipient.address).map_err(|why| {
                error!(error = %why, "a stored subscription cannot be used");
                dead(
                    DeadLetterId(self.shared.clock.uuid()),
                    message,
                    DeadReason::Unsealable,
                    retries,
                    self.shared.clock.now(),
                )
            })?;
        Ok(Box::new(Job {
            policy: message.policy_for(recipient.policy.as_ref()),
            message: message.clone(),
            lane: lane.clone(),
            subscription: recipient.subscription,
            life: recipient.life,
            origin_id: recipient.origin_id,
            user_id: recipient.user_id.clone(),
            endpoint,
            keys,
            retries,
            planned: None,
            free_at: message.free_at(recipient.timezone.as_deref(), None),
            proven: recipient.proven,
            start_before: claimed_at + START_WITHIN,
            attempts: Vec::new(),
            own: None,
            shrunk: None,
            limit: None,
            refused: None,
            number: 0,
            hold: None,
            ticket,
            span: self.span(retries, message, lane, claimed_at),
        }))
    }

    /// Returns the trace span of a delivery. `None`: not traced.
    fn span(&self, retries: u32, message: &Message, lane: &LaneInfo, claimed_at: Instant) -> Option<Box<DeliverySpan>> {
        let origin = message.traced.as_ref()?;
        let attributes = || {
            vec![
                KeyValue::new("bellwire.message_id", message.id.to_string()),
                KeyValue::new("bellwire.tier", message.tier.name()),
                KeyValue::new("bellwire.gateway", lane.gateway.name()),
                KeyValue::new("bellwire.lane", i64::from(lane.id.0)),
                KeyValue::new("bellwire.attempt", i64::from(retries) + 1),
            ]
        };
        self.shared.tracer.delivery(origin, self.shared.clock.now() - claimed_at.elapsed(), attributes)
    }

    /// Adds deliveries to the fair queue. Deliveries that their lane cannot accept now are deferred.
    pub(super) fn line_up(&self, jobs: Vec<Box<Job>>) {
        self.line_up_untold(jobs);
        self.queue.tell();
    }

    /// Adds deliveries to the fair queue without waking the next stages.
    pub(super) fn line_up_untold(&self, mut jobs: Vec<Box<Job>>) {
        jobs.iter_mut().for_each(|job| job.enter(Stage::Wait));
        let now = self.shared.clock.now();
        for (job, until) in self.queue.push(jobs, now) {
            self.settling.defer(vec![job], until);
        }
        // A stop may have emptied the queue a moment before these came.
        if self.shared.progress.is_stopping() {
            self.settling.put_back(self.queue.drain(), self.shared.clock.now());
        }
    }
}

/// Returns the result of a delivery that must not be sent, by the states read at its claim.
fn standing_fate(standing: Sendability, retries: u32, now: Timestamp) -> Fate {
    let ended = |end, why| Fate::Ended(unsent_attempt(retries, why, now), end);
    match standing {
        // A row is handed on before it gets here; a place in a batch is, once it has become a row.
        Sendability::Sendable | Sendability::Replaced => Fate::Deferred(ClaimableAt::At(now)),
        Sendability::Paused => Fate::Deferred(ClaimableAt::Parked),
        Sendability::Cancelled => ended(End::Cancelled, STOPPED),
        Sendability::Gone => ended(End::Gone, SUBSCRIPTION_GONE),
    }
}

fn dead(id: DeadLetterId, message: &Message, reason: DeadReason, retries: u32, now: Timestamp) -> Fate {
    let death = Death { id, reason, detail: None, policy: Some(message.policy.to_json()) };
    Fate::Ended(unsent_attempt(retries, reason.name(), now), End::Dead(Box::new(death)))
}
