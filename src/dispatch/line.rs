//! The line a delivery follows once it has its turn: prepare → seal → post → conclude → settle.

use std::sync::Arc;

use tracing::error;

use super::admit::Admission;
use super::conclude::{Conclusion, dead_unsent};
use super::fair::turn::{Next, Turn};
use super::fair::{FairQueue, Taker};
use super::job::Job;
use super::post::Posting;
use super::prepare::Preparation;
use super::seal::{Sealed, Unsealed};
use super::settle::Settling;
use super::shared::Shared;
use crate::classify::DeadReason;
use crate::gateway::Post;
use crate::model::id::DeadLetterId;
use crate::otlp::Stage;

/// The stages in their order.
pub(super) struct Line {
    pub shared: Arc<Shared>,
    pub queue: Arc<FairQueue>,
    pub preparation: Arc<Preparation>,
    pub posting: Posting,
    pub settling: Arc<Settling>,
    pub admission: Arc<Admission>,
}

impl Line {
    /// The next delivery's turn, as soon as there is one: everything up to the sealing. None if there is to be no POST.
    pub(super) async fn next(&self, taker: Taker) -> Option<Unsealed> {
        match self.queue.next(taker, || self.shared.clock.now()).await {
            Next::Turn(turn) => self.prepare(turn),
            Next::Deferred(jobs, until) => {
                self.settling.defer(jobs, until);
                None
            }
        }
    }

    fn prepare(&self, mut turn: Turn) -> Option<Unsealed> {
        turn.job.enter(Stage::Seal);
        match self.preparation.prepare(turn) {
            Ok(unsealed) => Some(unsealed),
            Err((turn, conclusion)) => {
                self.withdraw(turn, conclusion);
                None
            }
        }
    }

    /// Begins the POST of a sealed delivery, in a task of its own.
    pub(super) fn begin(self: &Arc<Self>, mut sealed: Sealed) {
        sealed.turn.job.enter(Stage::Post);
        match sealed {
            Sealed { turn, post: Ok(post) } => drop(tokio::spawn(self.clone().deliver(turn, post))),
            Sealed { turn, post: Err(error) } => {
                let (subscription, clock) = (self.shared.label(turn.job.subscription), &self.shared.clock);
                error!(%error, subscription, "a payload cannot be sealed");
                let conclusion =
                    dead_unsent(&turn.job, DeadReason::Unsealable, None, clock.now(), DeadLetterId(clock.uuid()));
                self.withdraw(turn, conclusion);
            }
        }
    }

    async fn deliver(self: Arc<Self>, turn: Turn, post: Post) {
        let (job, conclusion) = self.posting.post(turn, post).await;
        self.write(job, conclusion);
    }

    /// Gives a permit back of which no use was made.
    fn withdraw(&self, turn: Turn, conclusion: Conclusion) {
        let Turn { slot, job, probe, .. } = turn;
        self.queue.release(slot, &job, probe, self.shared.clock.now());
        self.write(job, conclusion);
    }

    /// Does with a delivery as was concluded.
    fn write(&self, mut job: Box<Job>, conclusion: Conclusion) {
        match conclusion {
            Conclusion::Settle(fate) => self.settling.settle(&mut job, fate),
            Conclusion::Defer(until) => self.settling.defer(vec![job], until),
            Conclusion::Again => self.admission.line_up(vec![job]),
            Conclusion::Void => self.shared.progress.finished(1),
        }
    }
}
