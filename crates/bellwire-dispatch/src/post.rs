//! Sends the POST, and applies its response to the lane, other replicas, and the delivery.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use super::conclude::{Conclusion, Judged, can_shrink, conclude, octets};
use super::fair::FairQueue;
use super::fair::turn::{Permit, Turn};
use super::job::Job;
use super::lane_updates::News;
use super::prepare::Preparation;
use super::rate::Rates;
use super::shared::EngineContext;
use super::stops::Stopped;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::DeadLetterId;
use bellwire_gateway::{Gateways, Post, Reply};
use bellwire_rules::classify::{Failure, Outcome, PostResult, ResponseKind, classify};
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane::Answered;
use bellwire_rules::policy::{NextStep, Situation, decide};
use bellwire_store::outcomes::ledger::ClaimableAt;
use bellwire_telemetry::panics;
use bellwire_webpush::OVERHEAD;

/// The stage that sends to push services.
pub(super) struct Posting {
    pub shared: Arc<EngineContext>,
    pub gateways: Gateways,
    pub queue: Arc<FairQueue>,
    pub preparation: Arc<Preparation>,
    pub rates: Arc<Rates>,
    pub news: Arc<News>,
    /// Ends attempts in flight when the patience of a stop is over.
    pub abandon: Notify,
}

/// Consequences of a response for its lane and subscription.
struct Learned {
    in_flight: u32,
    hold: Option<HoldReason>,
    lane_held: Option<HoldReason>,
}

impl Posting {
    /// Sends an encrypted delivery, and returns its conclusion. Takes the permit out of `permit` when it is returned.
    pub(super) async fn post(&self, turn: Turn, post: Post, permit: &mut Option<Permit>) -> (Box<Job>, Conclusion) {
        panics::point("post", turn.job.message.id.0);
        let clock = &self.shared.clock;
        let (began, posted_at, sent) = (Instant::now(), clock.now(), post.body.len() - OVERHEAD);
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
            Ok(Reply { status, headers, body }) => PostResult::Response { status: *status, headers, body },
            Err(failure) => PostResult::Failure(*failure),
        };
        let mut outcome = classify(turn.job.lane.gateway, &answer, now);
        let reached = !reply.as_ref().is_err_and(|failure| failure.is_unreached());
        *permit = None;
        // The gateway never took it: nothing was learned, and its token of flow control is free again.
        let Learned { in_flight, hold, lane_held } = match outcome.kind {
            ResponseKind::Unprocessed => {
                let in_flight = self.queue.release(turn.slot, &turn.job, turn.probe, now);
                Learned { in_flight, hold: None, lane_held: None }
            }
            _ => self.learn(&turn, &outcome, reached, posted_at, now, sent),
        };
        if let Some(held) = lane_held {
            outcome.bound_wait(now, held.until);
        }
        let Turn { slot, mut job, .. } = turn;
        if let Some(span) = &mut job.span {
            span.answered(job.endpoint.authority(), outcome.status);
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
        job.hold = hold;
        let situation = Situation {
            retries: job.retries,
            now,
            accepted_at: job.message.accepted_at,
            expires_at: job.message.expires_at,
            can_shrink: outcome.kind == ResponseKind::TooLarge && can_shrink(&job, sent),
            wave: if job.message.tier == Tier::Transactional { 0 } else { in_flight },
            held_for: hold.map_or(Duration::ZERO, |held| held.rest(now)),
        };
        let verdict = decide(&outcome, &job.policy, &situation, clock.randomness());
        let judged = Judged {
            verdict,
            outcome,
            took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
            sent,
            now,
            is_replaced: verdict == NextStep::Gone && self.shared.stops.check(&job.target()) == Some(Stopped::Replaced),
        };
        let conclusion = conclude(&mut job, judged, || DeadLetterId(clock.uuid()));
        (job, conclusion)
    }

    /// Returns a delivery whose POST was not started after all, or was abandoned.
    fn withdraw(&self, turn: Turn) -> (Box<Job>, Conclusion) {
        let Turn { slot, job, probe, .. } = turn;
        self.queue.release(slot, &job, probe, self.shared.clock.now());
        let conclusion = match self.preparation.check(&job) {
            // What stood in the way is over: it has another turn.
            Ok(_) => Conclusion::deferred(ClaimableAt::At(self.shared.clock.now())),
            Err(conclusion) => conclusion,
        };
        (job, conclusion)
    }

    /// Returns the permit, applies the response to the lane, the key and the subscription, and shares state with other
    /// replicas.
    fn learn(
        &self, turn: &Turn, outcome: &Outcome, reached: bool, posted_at: Timestamp, now: Timestamp, sent: usize,
    ) -> Learned {
        let (job, holds) = (&turn.job, &self.shared.holds);
        let before = holds.find(job.subscription);
        // Before the permit is given back: another delivery to the subscription may have the next one.
        let mut hold = holds.answered(job.subscription, outcome, posted_at, now);
        self.shared.words.hear(job.lane.id, outcome, now);
        let answered = Answered {
            outcome,
            known_throttled: before.is_some_and(|held| held.at < held.until),
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
        let lane_held = news.as_ref().and_then(|news| news.held);
        if lane_held.is_some() && hold.take().is_some() {
            holds.take_back(job.subscription, before);
        }
        if let Some(news) = news {
            self.news.share(news);
        }
        if outcome.judges_key() {
            self.news.watch_key(job, outcome.refuses_key(), now);
        }
        Learned { in_flight, hold, lane_held }
    }
}
