//! Confirms mass prunes: checks results before they are settled, and defers deliveries whose push service may be wrong about
//! their subscriptions. All replicas share its state through the database.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::PgPool;
use tracing::warn;

use super::fair::FairQueue;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::id::{LaneId, MessageId};
use bellwire_rules::policy::hold::reopens_at;
use bellwire_rules::policy::mass_gone::AnswerSum;
use bellwire_store::outcomes::ledger::{ClaimableAt, End, Fate, Settlement};
use bellwire_store::queue::gone_watches::{self, GoneAnswer, Reviewed};
use bellwire_telemetry::metrics::Metrics;
use bellwire_vault::Vault;

/// Guard of one process.
pub(super) struct PruneGuard {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    metrics: Arc<Metrics>,
    queue: Arc<FairQueue>,
    lanes: Mutex<HashMap<LaneId, LaneWatch>>,
}

/// This process's state of a monitored lane.
#[derive(Default, Clone, Copy)]
struct LaneWatch {
    /// Acceptances that are not yet part of the shared score.
    before: AnswerSum,
    suspected_until: Option<Timestamp>,
}

impl LaneWatch {
    fn suspects(&self, now: Timestamp) -> bool {
        self.suspected_until.is_some_and(|until| now < until)
    }
}

impl PruneGuard {
    pub(super) fn new(pool: PgPool, vault: Vault, clock: Clock, metrics: Arc<Metrics>, queue: Arc<FairQueue>) -> Self {
        Self { pool, vault, clock, metrics, queue, lanes: Mutex::default() }
    }

    /// Reads the lanes suspected by all replicas.
    pub(super) async fn read(&self, now: Timestamp) -> sqlx::Result<()> {
        let suspected = gone_watches::suspected(&self.pool, now).await?;
        let mut lanes = self.lanes.lock();
        for (lane, until) in suspected {
            lanes.entry(lane).or_default().suspected_until = Some(until);
        }
        Ok(())
    }

    /// Returns whether all settlements may be written unchanged. If so, their acceptances are counted; otherwise call
    /// [`review`](Self::review).
    pub(super) fn passes<'a>(&self, settlements: impl Iterator<Item = &'a Settlement> + Clone) -> bool {
        let now = self.clock.now();
        let mut lanes = self.lanes.lock();
        let suspects = |lane: &LaneId| lanes.get(lane).is_some_and(|watch| watch.suspects(now));
        if settlements.clone().any(|settlement| settlement.is_called_gone() || suspects(&settlement.delivery().lane)) {
            return false;
        }
        for settlement in settlements.filter(|settlement| matches!(settlement.end(), Some(End::Accepted))) {
            lanes.entry(settlement.delivery().lane).or_default().before.accepted();
        }
        true
    }

    /// Defers deliveries that must not end as gone yet, and counts the others.
    pub(super) async fn review(&self, settlements: &mut [&mut Settlement]) -> sqlx::Result<()> {
        let now = self.clock.now();
        let mut by_lane: BTreeMap<LaneId, Vec<(Timestamp, usize)>> = BTreeMap::new();
        for (i, settlement) in settlements.iter().enumerate() {
            if let Some(at) = answered_at(settlement) {
                by_lane.entry(settlement.delivery().lane).or_default().push((at, i));
            }
        }
        for (lane, mut places) in by_lane {
            places.sort_unstable();
            let answer = |(_, i): &(Timestamp, usize)| {
                let (gone, of) = (settlements[*i].is_called_gone(), settlements[*i].delivery());
                GoneAnswer { subscription: of.subscription, gone, proven: of.proven }
            };
            let answers: Vec<GoneAnswer> = places.iter().map(answer).collect();
            if let Some(before) = self.watch(lane, &answers, now) {
                let reviewed = gone_watches::review(&self.pool, &self.vault, lane, before, &answers, now).await?;
                self.follow(lane, &reviewed);
                let gone: Vec<usize> =
                    places.iter().zip(&answers).filter(|(_, answer)| answer.gone).map(|((_, i), _)| *i).collect();
                if !reviewed.waiting.is_empty() {
                    let messages: Vec<_> = gone.iter().map(|i| settlements[*i].delivery().message).collect();
                    let expiries = gone_watches::expiries(&self.pool, &messages).await?;
                    gone.iter().for_each(|i| self.apply(&reviewed, &expiries, settlements[*i], now));
                }
            }
        }
        for settlement in settlements.iter().filter(|settlement| settlement.is_called_gone()) {
            self.metrics.ended(Ending::Gone, settlement.delivery().tier, 1);
        }
        Ok(())
    }

    /// Returns the acceptances before these responses if the lane must be reviewed; otherwise counts these.
    fn watch(&self, lane: LaneId, answers: &[GoneAnswer], now: Timestamp) -> Option<AnswerSum> {
        let mut lanes = self.lanes.lock();
        let watch = lanes.entry(lane).or_default();
        if watch.suspects(now) || answers.iter().any(|answer| answer.gone && answer.proven) {
            return Some(std::mem::take(&mut watch.before));
        }
        answers.iter().filter(|answer| !answer.gone).for_each(|_| watch.before.accepted());
        None
    }

    fn follow(&self, lane: LaneId, reviewed: &Reviewed) {
        self.lanes.lock().entry(lane).or_default().suspected_until = reviewed.suspected_until;
        if let Some(state) = &reviewed.state {
            warn!(lane = lane.0, "many subscriptions are suddenly gone: the lane is held, and none is pruned yet");
            self.queue.adopt(state.clone());
        }
    }

    /// Defers a delivery whose subscription is not pruned yet: until the lane reopens, or until the confirmation. If its time
    /// to live ends before, it expires.
    fn apply(
        &self, reviewed: &Reviewed, expiries: &HashMap<MessageId, Timestamp>, settlement: &mut Settlement,
        now: Timestamp,
    ) {
        let of = settlement.delivery();
        let Some(confirms_at) = reviewed.waiting.get(&of.subscription) else { return };
        let expires_at = expiries.get(&of.message).copied().unwrap_or(now);
        let spread = |until| reopens_at(until, of.tier == Tier::Transactional, self.clock.randomness()).min(expires_at);
        let due = match reviewed.held_until {
            Some(until) => ClaimableAt::Reopening(spread(until)),
            None => ClaimableAt::At(spread(*confirms_at)),
        };
        settlement.defer(due, now);
    }
}

/// Returns the time of a response that accepted a push or reported the subscription as gone.
fn answered_at(settlement: &Settlement) -> Option<Timestamp> {
    match settlement.fate() {
        Fate::Ended(attempt, End::Accepted) => Some(attempt.at),
        Fate::Ended(attempt, End::Gone) if settlement.is_called_gone() => Some(attempt.at),
        _ => None,
    }
}
