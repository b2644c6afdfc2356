//! Prepares a delivery right before its POST: a last check whether it may start, its payload and its signature.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::conclude::{Conclusion, dead_unsent, ended_unsent};
use super::fair::turn::Turn;
use super::job::{Job, Ticket};
use super::seal::Unsealed;
use super::shared::EngineContext;
use super::stops::Stopped;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::DeadLetterId;
use bellwire_core::message::PLAINTEXT_MAX;
use bellwire_gateway::Post;
use bellwire_rules::classify::DeadReason;
use bellwire_rules::policy::hold::reopens_at;
use bellwire_rules::policy::{ATTEMPT_DEADLINE, remaining_ttl_s};
use bellwire_store::outcomes::ledger::unsent::STOPPED;
use bellwire_store::outcomes::ledger::{ClaimableAt, End};
use bellwire_template::TemplateFaultKind;
use bellwire_vault::delivery_token::{delivery_id, receipt_token};
use bellwire_webpush::payload::{Replaced, Stamp};
use bellwire_webpush::seal::padded_len;
use bellwire_webpush::vapid::TokenCache;

/// Stored reason of a delivery whose subscription is gone.
pub(super) const SUBSCRIPTION_GONE: &str = "subscription gone";

/// The stage between fair queue and encryption.
pub(super) struct Preparation {
    shared: Arc<EngineContext>,
    tokens: TokenCache,
}

impl Preparation {
    pub(super) fn new(shared: Arc<EngineContext>) -> Self {
        Self { shared, tokens: TokenCache::default() }
    }

    /// Prepares a delivery up to the encryption. The error is its conclusion if there is no POST.
    pub(super) fn prepare(&self, mut turn: Turn) -> Result<Unsealed, (Turn, Conclusion)> {
        match self.check(&turn.job).and_then(|ttl_s| self.fill_in(&mut turn.job).map(|()| ttl_s)) {
            Ok(ttl_s) => Ok(self.render(fit(turn), ttl_s)),
            Err(conclusion) => Err((turn, conclusion)),
        }
    }

    /// Renders a template for its recipient, if not done yet. If that fails, the delivery is dead.
    fn fill_in(&self, job: &mut Job) -> Result<(), Conclusion> {
        let Some(own) = &mut job.own else { return Ok(()) };
        own.fill_in(&job.message.says).map_err(|fault| {
            let reason = match fault.kind {
                TemplateFaultKind::Unfit => DeadReason::Unrenderable,
                TemplateFaultKind::TooLong => DeadReason::TooLong,
            };
            let clock = &self.shared.clock;
            dead_unsent(job, reason, Some(fault.line()), clock.now(), DeadLetterId(clock.uuid()))
        })
    }

    /// Checks that a POST may start: not too long after its claim, not stopped, not expired, and still claimed by this worker.
    /// Returns its time to live in seconds.
    pub(super) fn check(&self, job: &Job) -> Result<u32, Conclusion> {
        let (instant, now) = (Instant::now(), self.shared.clock.now());
        let is_ours = self.shared.life.holds(job.lease(), || instant);
        let is_current = self.shared.stops.is_fresh(instant) && is_ours && instant <= job.start_before;
        if !is_current || self.shared.progress.is_stopping() {
            return Err(Conclusion::deferred(ClaimableAt::At(now)));
        }
        match self.shared.stops.check(&job.target()) {
            Some(Stopped::Paused) => return Err(Conclusion::deferred(ClaimableAt::Parked)),
            Some(Stopped::Replaced) => return Err(Conclusion::deferred(ClaimableAt::At(now))),
            Some(Stopped::Cancelled) => return Err(ended_unsent(job.retries, End::Cancelled, STOPPED, now)),
            Some(Stopped::Gone) => return Err(ended_unsent(job.retries, End::Gone, SUBSCRIPTION_GONE, now)),
            None => {}
        }
        let message = &job.message;
        let Some(ttl_s) = remaining_ttl_s(now, message.expires_at, message.ttl_s) else {
            return Err(ended_unsent(job.retries, End::Expired, "time to live is over", now));
        };
        if let Some(until) = self.shared.holds.until(job.subscription, now) {
            return Err(self.held_back(job, until));
        }
        match &job.ticket {
            Ticket::Batch(batch, place) if !batch.begin(*place, job.retries, instant) => Err(Conclusion::Void),
            _ => Ok(ttl_s),
        }
    }

    /// Defers a delivery whose subscription is held, at most to its expiry.
    fn held_back(&self, job: &Job, until: Timestamp) -> Conclusion {
        let message = &job.message;
        let due = reopens_at(until, message.tier == Tier::Transactional, self.shared.clock.randomness());
        let due = if message.ttl_s > 0 { due.min(message.expires_at) } else { due };
        Conclusion::deferred(ClaimableAt::Reopening(due))
    }

    /// Whether the POST of a checked delivery may still be sent, checked again at the last moment, because it may have waited
    /// for a connection.
    pub(super) fn may_post(&self, job: &Job) -> bool {
        self.shared.stops.permit(&job.target(), Instant::now)
            && self.shared.life.holds(job.lease(), Instant::now)
            && self.shared.holds.until(job.subscription, self.shared.clock.now()).is_none()
            && Instant::now() <= job.start_before
            && !self.shared.progress.is_stopping()
    }

    fn render(&self, turn: Turn, ttl_s: u32) -> Unsealed {
        let (job, vault) = (&turn.job, &self.shared.vault);
        let message = &job.message;
        let stamp = Stamp {
            id: delivery_id(vault, message.root, job.origin_id),
            receipt: receipt_token(vault, message.id, job.subscription),
            retried: job.retries,
            replaces: message
                .withdraws_root
                .map(|root| Replaced { id: delivery_id(vault, root, job.origin_id), is_update: message.is_update }),
            content_type: job.policy.request.as_ref().map(|request| &*request.header_content_type),
        };
        let mut plaintext = Vec::new();
        job.template().render(&stamp, &mut plaintext);
        let len = plaintext.len();
        let pad_to = if job.refused.is_some() { len } else { padded_len(len, job.limit.unwrap_or(PLAINTEXT_MAX)) };
        let lane = &job.lane;
        let (origin, now) = (job.endpoint.origin(), self.shared.clock.now());
        let post = Post {
            endpoint: job.endpoint.clone(),
            gateway: lane.gateway,
            authorization: self.tokens.header(lane.vapid_key, &lane.key, &lane.subject, origin, now),
            ttl_s,
            urgency: message.urgency,
            topic: message.topic.clone(),
            body: Bytes::new(),
            patience: ATTEMPT_DEADLINE,
        };
        Unsealed { turn, post, plaintext, pad_to }
    }
}

/// Reduces a delivery to the size that its push service probably accepts, if possible.
fn fit(mut turn: Turn) -> Turn {
    let job = &mut turn.job;
    if let Some(max) = turn.payload_max
        && job.refused.is_none()
    {
        if job.written().template.max_len() <= max {
            job.limit = Some(max);
        } else if let Some(shrunk) = job.written().shrink(max) {
            (job.limit, job.shrunk) = (Some(max), Some(shrunk));
        }
    }
    turn
}
