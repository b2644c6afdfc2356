//! Path of a delivery after the fair queue: prepare → seal → post → conclude → settle.

use std::sync::Arc;

use tracing::{Instrument as _, error};

use super::admit::Admission;
use super::conclude::{Conclusion, dead_unsent};
use super::fair::turn::{NextTurn, Permit, Turn};
use super::fair::{FairQueue, Taker};
use super::job::Job;
use super::post::Posting;
use super::prepare::Preparation;
use super::seal::{SealedDelivery, Unsealed, seal_all};
use super::settle::Settling;
use super::shared::EngineContext;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_gateway::Post;
use bellwire_rules::classify::DeadReason;
use bellwire_telemetry::otlp::Stage;
use bellwire_telemetry::panics::{self, Panicked};

/// Maximum deliveries of one message that the admitting thread also encrypts. One takes some 100 µs; with an accelerator all of
/// them together do.
pub(super) const SEALED_HERE_MAX: usize = 4;

/// Stages in their order.
pub(super) struct Pipeline {
    pub shared: Arc<EngineContext>,
    pub queue: Arc<FairQueue>,
    pub preparation: Arc<Preparation>,
    pub posting: Posting,
    pub settling: Arc<Settling>,
    pub admission: Arc<Admission>,
}

impl Pipeline {
    /// Waits for the next delivery, and prepares it up to the encryption. `None`: there will be no POST.
    pub(super) async fn next(&self, taker: Taker) -> Option<Unsealed> {
        self.prepare_next(self.queue.next(taker, || self.shared.clock.now()).await)
    }

    fn prepare_next(&self, next: NextTurn) -> Option<Unsealed> {
        match next {
            NextTurn::Turn(turn) => self.prepare(turn),
            NextTurn::Deferred(jobs, until) => {
                self.settling.defer(jobs, until);
                None
            }
        }
    }

    /// Adds deliveries inserted leased, and encrypts a few of them at once: on a busy machine, scheduling the reserved thread
    /// takes longer than encrypting one. With an accelerator they share a pass. Deliveries without a permit wait.
    pub(super) fn line_up_born(self: &Arc<Self>, jobs: Vec<Box<Job>>) {
        let n = jobs.len();
        if n > SEALED_HERE_MAX {
            return self.admission.line_up(jobs);
        }
        self.admission.line_up_untold(jobs);
        let turns = std::iter::from_fn(|| self.queue.try_next(Taker::Transactional, self.shared.clock.now()));
        let ready = turns.take(n).filter_map(|next| self.prepare_next(next));
        let sealer = self.shared.settings.sealer;
        if sealer.is_accelerated() {
            seal_all(sealer, ready.collect()).into_iter().for_each(|sealed| self.begin(sealed));
        } else {
            ready.for_each(|unsealed| self.begin(unsealed.seal()));
        }
        self.queue.tell();
    }

    /// Prepares a delivery. If that panics, only this delivery is dropped, as in [`deliver`](Self::deliver).
    fn prepare(&self, mut turn: Turn) -> Option<Unsealed> {
        let (mut permit, which) = (Some(turn.permit()), (turn.job.message.id, turn.job.subscription));
        let span = self.shared.span(&turn.job);
        let prepared = panics::caught_now(|| {
            let _in_span = span.enter();
            panics::point("prepare", which.0.0);
            turn.job.enter(Stage::Seal);
            match self.preparation.prepare(turn) {
                Ok(unsealed) => Some(unsealed),
                Err((turn, conclusion)) => {
                    permit = None;
                    self.withdraw(turn, conclusion);
                    None
                }
            }
        });
        prepared.unwrap_or_else(|Panicked| {
            self.lost(which, permit);
            None
        })
    }

    /// Starts the POST of an encrypted delivery in a separate task.
    pub(super) fn begin(self: &Arc<Self>, mut sealed: SealedDelivery) {
        sealed.turn.job.enter(Stage::Post);
        match sealed {
            SealedDelivery { turn, post: Ok(post) } => drop(tokio::spawn(self.clone().deliver(turn, post))),
            SealedDelivery { turn, post: Err(error) } => {
                let (subscription, clock) = (self.shared.label(turn.job.subscription), &self.shared.clock);
                error!(%error, subscription, message_id = %turn.job.message.id, "a payload cannot be sealed");
                let conclusion =
                    dead_unsent(&turn.job, DeadReason::Unsealable, None, clock.now(), DeadLetterId(clock.uuid()));
                self.withdraw(turn, conclusion);
            }
        }
    }

    /// Sends a delivery. If its POST or its conclusion panics, only this delivery is dropped: its lease expires, it is claimed
    /// again, and a maximum of leases limits how often.
    async fn deliver(self: Arc<Self>, turn: Turn, post: Post) {
        let (mut permit, which) = (Some(turn.permit()), (turn.job.message.id, turn.job.subscription));
        let span = self.shared.span(&turn.job);
        let delivered = panics::caught(async {
            let (job, conclusion) = self.posting.post(turn, post, &mut permit).await;
            self.write(job, conclusion);
        });
        if delivered.instrument(span).await.is_err() {
            self.lost(which, permit);
        }
    }

    /// Drops a delivery that panicked, and returns its permit if it still had it.
    fn lost(&self, (message, subscription): (MessageId, SubscriptionId), permit: Option<Permit>) {
        let subscription = self.shared.label(subscription);
        error!(message_id = %message, subscription, "a delivery panicked and is given up for now; its lease will run out");
        if let Some(permit) = permit {
            self.queue.take_back(&permit, self.shared.clock.now());
        }
        self.shared.progress.finished(1);
    }

    /// Returns an unused permit.
    fn withdraw(&self, turn: Turn, conclusion: Conclusion) {
        let Turn { slot, job, probe, .. } = turn;
        self.queue.release(slot, &job, probe, self.shared.clock.now());
        self.write(job, conclusion);
    }

    /// Executes the conclusion: settles the delivery or sends it again.
    fn write(&self, mut job: Box<Job>, conclusion: Conclusion) {
        match conclusion {
            Conclusion::Settle(fate) => self.settling.settle(&mut job, fate),
            Conclusion::Defer(until) => self.settling.defer(vec![job], until),
            Conclusion::Again => self.admission.line_up(vec![job]),
            Conclusion::Void => self.shared.progress.finished(1),
        }
    }
}
