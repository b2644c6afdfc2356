//! The POST, and what its answer teaches: the lane, other replicas, and the delivery itself.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use super::conclude::{Conclusion, Judged, can_shrink, conclude, octets};
use super::fair::FairQueue;
use super::fair::turn::{Permit, Turn};
use super::job::Job;
use super::news::News;
use super::prepare::{ATTEMPT_DEADLINE, Preparation};
use super::rate::Rates;
use super::shared::Shared;
use super::stops::Stopped;
use crate::classify::{Answer, Failure, Kind, Outcome, classify};
use crate::gateway::{Gateways, Post, Reply};
use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;
use crate::model::id::DeadLetterId;
use crate::panics;
use crate::policy::lane::Answered;
use crate::policy::{Situation, Verdict, decide};
use crate::store::outcomes::ledger::Due;
use crate::webpush::OVERHEAD;

/// The stage that talks to gateways.
pub(super) struct Posting {
    pub shared: Arc<Shared>,
    pub gateways: Gateways,
    pub queue: Arc<FairQueue>,
    pub preparation: Arc<Preparation>,
    pub rates: Arc<Rates>,
    pub news: Arc<News>,
    /// Ends the attempts that are still in flight when a stop runs out of patience.
    pub abandon: Notify,
}

impl Posting {
    /// Sends a delivery whose payload is sealed. Returns what becomes of it; its permit is given back, and no longer there.
    pub(super) async fn post(&self, turn: Turn, mut post: Post, permit: &mut Option<Permit>) -> (Box<Job>, Conclusion) {
        panics::point("post", turn.job.message.id.0);
        let clock = &self.shared.clock;
        let (began, posted_at, sent) = (Instant::now(), clock.now(), post.body.len() - OVERHEAD);
        post.deadline = began + ATTEMPT_DEADLINE;
        let reply = tokio::select! {
            reply = self.gateways.post_if(post, || self.preparation.may_post(&turn.job)) => reply,
            // The server stops and has waited long enough: the attempt is given up and does not count.
            () = self.abandon.notified() => Err(Failure::Withdrawn),
        };
        if reply.as_ref().is_err_and(|failure| *failure == Failure::Withdrawn) {
            *permit = None;
            return self.withdraw(turn);
        }
        self.rates.count(turn.job.lane.id, Instant::now());
        let now = clock.now();
        let answer = match &reply {
            Ok(Reply { status, headers, body }) => Answer::Response { status: *status, headers, body },
            Err(failure) => Answer::Failure(*failure),
        };
        let outcome = classify(turn.job.lane.gateway, &answer, now);
        let reached = !reply.as_ref().is_err_and(|failure| failure.is_unreached());
        *permit = None;
        let in_flight = self.learn(&turn, &outcome, reached, posted_at, now, sent);
        let Turn { slot, mut job, .. } = turn;
        if let Some(span) = &mut job.span {
            span.answered(outcome.status);
        }
        let took = began.elapsed();
        debug!(
            gateway = job.lane.gateway.name(),
            status = outcome.status,
            took_ms = took.as_millis(),
            "a push service answered"
        );
        self.shared.metrics.attempt(job.lane.gateway, job.message.tier, outcome.status, took);
        // A probe of a refused key, or one that was under way when it was held: not its fault, and no attempt of it.
        if outcome.refuses_key()
            && job.proven
            && let Some(until) = self.queue.key_held_until(slot, now)
        {
            return (job, Conclusion::Defer(until));
        }
        let situation = Situation {
            retries: job.retries,
            now,
            accepted_at: job.message.accepted_at,
            expires_at: job.message.expires_at,
            can_shrink: outcome.kind == Kind::TooLarge && can_shrink(&job, sent),
            wave: if job.message.tier == Tier::Transactional { 0 } else { in_flight },
        };
        let verdict = decide(&outcome, &job.policy, &situation, clock.randomness());
        let judged = Judged {
            verdict,
            outcome,
            took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
            sent,
            now,
            is_replaced: verdict == Verdict::Gone && self.shared.stops.check(&job.target()) == Some(Stopped::Replaced),
        };
        let conclusion = conclude(&mut job, judged, || DeadLetterId(clock.uuid()));
        (job, conclusion)
    }

    /// A delivery whose POST was not let go after all, or given up.
    fn withdraw(&self, turn: Turn) -> (Box<Job>, Conclusion) {
        let Turn { slot, job, probe, .. } = turn;
        self.queue.release(slot, &job, probe, self.shared.clock.now());
        let conclusion = match self.preparation.check(&job) {
            // What stood in the way is over: it has another turn.
            Ok(_) => Conclusion::deferred(Due::At(self.shared.clock.now())),
            Err(conclusion) => conclusion,
        };
        (job, conclusion)
    }

    /// Gives the permit back with what the answer says of the lane and of its key, and tells other replicas what they have
    /// to know. Returns how many POSTs the lane still has out.
    fn learn(
        &self,
        turn: &Turn,
        outcome: &Outcome,
        reached: bool,
        posted_at: Timestamp,
        now: Timestamp,
        sent: usize,
    ) -> u32 {
        let job = &turn.job;
        self.shared.words.hear(job.lane.id, outcome, now);
        let answered = Answered {
            outcome,
            reached,
            number: job.number,
            posted_at,
            now,
            probe: turn.probe,
            transactional: job.message.tier == Tier::Transactional,
            octets: octets(sent),
            refused: job.refused,
            settings: &job.policy.settings,
        };
        let (news, in_flight) = self.queue.answered(turn.slot, &answered);
        if let Some(news) = news {
            self.news.share(news);
        }
        if outcome.judges_key() {
            self.news.watch_key(job, outcome.refuses_key(), now);
        }
        in_flight
    }
}
