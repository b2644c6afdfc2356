//! The line a delivery follows once it has its turn: admit → render → seal → post → classify → decide → settle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{debug, error};

use super::batch::Recorded;
use super::job::{Job, Ticket};
use super::lane::Answered;
use super::stops::Stopped;
use super::turn::{Slot, Turn};
use super::{Dispatcher, label};
use crate::classify::{Answer, DeadReason, Failure, Kind, Outcome, classify};
use crate::gateway::{Post, Reply};
use crate::model::clock::Timestamp;
use crate::model::delivery::{Ending, Tier};
use crate::model::message::PLAINTEXT_MAX;
use crate::policy::hold::{DEFER_MAX, reopens_at};
use crate::policy::payload_limit::Refusal;
use crate::policy::reliability::{Accepted, Count};
use crate::policy::{self, Verdict, decide, remaining_ttl_s, shrink_target};
use crate::store::outcomes::settle::{Attempt, Death, Due, Fate, RowSettlement, Settlement};
use crate::webpush::payload::{Stamp, delivery_id, receipt_token};
use crate::webpush::seal::{SealError, padded_len, seal};
use crate::webpush::shrink::{Shrunk, tell};

/// A POST without an answer after this has failed.
pub(crate) const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// What admitting a delivery came to.
enum Admission {
    /// Its POST may start, with so many seconds to live.
    Post { ttl_s: u32 },
    /// It has its fate without a POST.
    Settle(Option<Attempt>, Fate),
    /// Its batch has been closed: it is a queue row now, and no longer ours.
    Void,
}

/// A delivery that lacks nothing but its encryption.
pub(super) struct Unsealed {
    turn: Turn,
    /// With an empty body.
    post: Post,
    plaintext: Vec<u8>,
    pad_to: usize,
}

/// A delivery whose POST may begin, or whose payload could not be sealed.
pub(super) struct Sealed {
    turn: Turn,
    post: Result<Post, SealError>,
}

impl Unsealed {
    /// Encrypts the payload. Touches nothing that is shared: it may run on a thread that is not scheduled for long, and
    /// whoever waited for a lock of such a thread would wait as long.
    pub(super) fn seal(self) -> Sealed {
        let Self { turn, mut post, plaintext, pad_to } = self;
        let mut body = Vec::with_capacity(pad_to + crate::webpush::OVERHEAD);
        let sealed = seal(&turn.job.keys, &plaintext, pad_to, &mut body);
        post.body = Bytes::from(body);
        Sealed { turn, post: sealed.map(|()| post) }
    }
}

impl Dispatcher {
    /// One turn: everything up to the sealing, if there is to be a POST.
    pub(super) fn take_turn(&self, mut turn: Turn) -> Option<Unsealed> {
        match self.admit(&turn.job) {
            Admission::Post { ttl_s } => {
                let (post, plaintext, pad_to) = self.render(fit(&mut turn.job, turn.payload_max), ttl_s);
                return Some(Unsealed { turn, post, plaintext, pad_to });
            }
            Admission::Settle(attempt, fate) => self.settle(&mut turn.job, attempt, fate),
            Admission::Void => self.finished(1),
        }
        self.fair.release(turn.slot, &turn.job, turn.probe, self.clock.now());
        None
    }

    /// Begins the POST of a sealed delivery, in a task of its own.
    pub(super) fn begin(self: &Arc<Self>, sealed: Sealed) {
        match sealed {
            Sealed { turn, post: Ok(post) } => drop(tokio::spawn(self.clone().deliver(turn, post))),
            Sealed { turn: Turn { slot, mut job, probe, .. }, post: Err(error) } => {
                error!(%error, subscription = label(&self.vault, job.subscription), "a payload cannot be sealed");
                let (attempt, fate) = self.dead_unsent(&job, DeadReason::Unsealable);
                self.settle(&mut job, Some(attempt), fate);
                self.fair.release(slot, &job, probe, self.clock.now());
            }
        }
    }

    /// Whether the POST of an admitted delivery may leave now: asked again at the last moment, since it may have waited
    /// for a connection.
    fn may_post(&self, job: &Job) -> bool {
        self.stops.permit(&job.target(), Instant::now) && Instant::now() <= job.start_before && !self.is_stopping()
    }

    /// Whether stops are known and the claim is young enough to start a POST by.
    fn is_current(&self, job: &Job, now: Instant) -> bool {
        self.stops.is_fresh(now) && now <= job.start_before && !self.is_stopping()
    }

    /// Settles a delivery whose POST was not let go after all.
    fn withdraw(&self, slot: Slot, mut job: Box<Job>, probe: bool) {
        self.fair.release(slot, &job, probe, self.clock.now());
        match self.admit(&job) {
            Admission::Settle(attempt, fate) => self.settle(&mut job, attempt, fate),
            // What stood in the way is over: it has another turn.
            Admission::Post { .. } => self.settle(&mut job, None, Fate::Deferred(Due::At(self.clock.now()))),
            Admission::Void => self.finished(1),
        }
    }

    /// Whether a POST may start: not too long after its claim, not stopped, not expired, still ours.
    fn admit(&self, job: &Job) -> Admission {
        let (instant, now) = (Instant::now(), self.clock.now());
        if !self.is_current(job, instant) {
            return Admission::Settle(None, Fate::Deferred(Due::At(now)));
        }
        match self.stops.check(&job.target()) {
            Some(Stopped::Paused) => return Admission::Settle(None, Fate::Deferred(Due::Parked)),
            Some(Stopped::Replaced) => return Admission::Settle(None, Fate::Deferred(Due::At(now))),
            Some(Stopped::Cancelled) => return ended_unsent(job.retries, Ending::Cancelled, STOPPED, now),
            Some(Stopped::Gone) => return ended_unsent(job.retries, Ending::Gone, SUBSCRIPTION_GONE, now),
            None => {}
        }
        let message = &job.message;
        let Some(ttl_s) = remaining_ttl_s(now, message.expires_at, message.ttl_s) else {
            return ended_unsent(job.retries, Ending::Expired, "time to live is over", now);
        };
        match &job.ticket {
            Ticket::Batch(batch, place) if !batch.begin(*place, job.retries, instant) => Admission::Void,
            _ => Admission::Post { ttl_s },
        }
    }

    /// Renders the payload and signs for it. Returns the POST without its body, the plaintext, and the length to pad it to.
    fn render(&self, job: &Job, ttl_s: u32) -> (Post, Vec<u8>, usize) {
        let message = &job.message;
        let stamp = Stamp {
            id: delivery_id(&self.vault, message.root, job.origin_id),
            receipt: receipt_token(&self.vault, message.id, job.subscription),
            retried: job.retries,
            content_type: job.policy.request.as_ref().map(|request| &*request.header_content_type),
        };
        let mut plaintext = Vec::new();
        job.template().render(&stamp, &mut plaintext);
        let len = plaintext.len();
        let pad_to = if job.refused.is_some() { len } else { padded_len(len, job.limit.unwrap_or(PLAINTEXT_MAX)) };
        let lane = &job.lane;
        let origin = job.endpoint.origin();
        let post = Post {
            endpoint: job.endpoint.clone(),
            gateway: lane.gateway,
            authorization: self.tokens.header(lane.vapid_key, &lane.key, &lane.subject, origin, self.clock.now()),
            ttl_s,
            urgency: message.urgency,
            topic: message.topic.clone(),
            body: Bytes::new(),
            deadline: Instant::now() + ATTEMPT_DEADLINE,
        };
        (post, plaintext, pad_to)
    }

    /// The POST and everything after it.
    async fn deliver(self: Arc<Self>, turn: Turn, mut post: Post) {
        let Turn { slot, mut job, probe, .. } = turn;
        let (began, posted_at, sent) = (Instant::now(), self.clock.now(), post.body.len());
        post.deadline = began + ATTEMPT_DEADLINE;
        let reply = tokio::select! {
            reply = self.gateways.post_if(post, || self.may_post(&job)) => reply,
            // The server stops and has waited long enough: the attempt is given up and does not count.
            () = self.abandon.notified() => {
                self.fair.release(slot, &job, probe, self.clock.now());
                return self.settle(&mut job, None, Fate::Deferred(Due::At(self.clock.now())));
            }
        };
        if reply.as_ref().is_err_and(|failure| *failure == Failure::Withdrawn) {
            return self.withdraw(slot, job, probe);
        }
        self.rates.count(job.lane.id, Instant::now());
        let now = self.clock.now();
        let answer = match &reply {
            Ok(Reply { status, headers, body }) => Answer::Response { status: *status, headers, body },
            Err(failure) => Answer::Failure(*failure),
        };
        let outcome = classify(job.lane.gateway, &answer, now);
        let settings = &job.policy.settings;
        let transactional = job.message.tier == Tier::Transactional;
        let sent = sent - crate::webpush::OVERHEAD;
        let (octets, refused) = (count(sent), job.refused);
        let answered = Answered {
            outcome: &outcome,
            reached: !reply.as_ref().is_err_and(|failure| failure.is_unreached()),
            number: job.number,
            posted_at,
            now,
            probe,
            transactional,
            octets,
            refused,
            settings,
        };
        let (news, in_flight) = self.fair.answered(slot, &answered);
        if let Some(news) = news {
            self.share(news);
        }
        if outcome.judges_key() {
            self.watch_key(&job, outcome.refuses_key(), now);
        }
        let took = began.elapsed();
        self.metrics.attempt(job.lane.gateway, job.message.tier, outcome.status, took);
        // A probe of a refused key, or one that was under way when it was held: not its fault, and no attempt of it.
        if outcome.refuses_key()
            && job.proven
            && let Some(until) = self.fair.key_held_until(slot, now)
        {
            return self.defer(vec![job], until);
        }
        let took_ms = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        let can_shrink = outcome.kind == Kind::TooLarge && smaller(&job, sent).is_some();
        let attempt = policy::Situation {
            retries: job.retries,
            now,
            accepted_at: job.message.accepted_at,
            expires_at: job.message.expires_at,
            can_shrink,
            wave: if transactional { 0 } else { in_flight },
        };
        let verdict = decide(&outcome, &job.policy, &attempt, self.clock.randomness());
        if self.conclude(&mut job, verdict, outcome, took_ms, sent, now) {
            self.admit_jobs(vec![job]);
        }
    }

    /// Settles by the verdict. True if the delivery has to go out again at once, made smaller.
    fn conclude(
        self: &Arc<Self>,
        job: &mut Job,
        verdict: Verdict,
        outcome: Outcome,
        took_ms: u32,
        sent: usize,
        now: Timestamp,
    ) -> bool {
        let mut attempt = Attempt {
            number: job.retries,
            at: now,
            ending: Ending::Accepted,
            status: outcome.status,
            took_ms: Some(took_ms),
            reason: with_what_is_missing(job, outcome.detail),
        };
        let fate = match verdict {
            Verdict::Accepted => Fate::Ended(Ending::Accepted, None),
            // The endpoint is gone since another one has taken its place: the delivery goes there.
            Verdict::Gone if self.stops.check(&job.target()) == Some(Stopped::Replaced) => {
                Fate::Retry { retries: job.retries + 1, due: now }
            }
            Verdict::Gone => Fate::Ended(Ending::Gone, None),
            Verdict::Expired => Fate::Ended(Ending::Expired, None),
            Verdict::Dead { reason } => {
                Fate::Ended(Ending::Dead, Some(self.death(job, reason, attempt.reason.clone())))
            }
            Verdict::Retry { after, counts: true } => Fate::Retry { retries: job.retries + 1, due: now + after },
            // The gateway never took it: no attempt was made, and none is logged.
            Verdict::Retry { after, counts: false } => {
                self.settle(job, None, Fate::Deferred(Due::At(now + after)));
                return false;
            }
            Verdict::Shrink => match self.make_smaller(job, sent, &mut attempt) {
                true => return true,
                false => {
                    let death = self.death(job, DeadReason::PayloadTooLarge, attempt.reason.clone());
                    Fate::Ended(Ending::Dead, Some(death))
                }
            },
        };
        attempt.ending = match &fate {
            Fate::Ended(ending, _) => *ending,
            _ => Ending::Retry,
        };
        self.settle(job, Some(attempt), fate);
        false
    }

    /// Prepares a delivery to go out again with a smaller payload, which uses up an attempt. False: nothing helps.
    fn make_smaller(&self, job: &mut Job, sent: usize, attempt: &mut Attempt) -> bool {
        let Some((limit, shrunk)) = smaller(job, sent) else { return false };
        let told = shrunk.as_ref().map_or_else(|| tell(sent, &[]), |shrunk| tell(sent, &shrunk.dropped));
        attempt.reason = Some(told.into());
        attempt.ending = Ending::Retry;
        job.attempts.push(attempt.clone());
        job.shrunk = shrunk;
        job.limit = Some(limit);
        job.refused = Some(Refusal { octets: count(sent), tried: count(limit) });
        job.retries += 1;
        true
    }

    fn death(&self, job: &Job, reason: DeadReason, detail: Option<Box<str>>) -> Box<Death> {
        debug!(subscription = label(&self.vault, job.subscription), reason = reason.name(), "a delivery died");
        Box::new(Death { id: self.clock.uuid(), reason, detail, policy: Some(job.policy.to_json()) })
    }

    /// A death without a POST.
    pub(super) fn dead_unsent(&self, job: &Job, reason: DeadReason) -> (Attempt, Fate) {
        let attempt = unsent_attempt(job.retries, Ending::Dead, reason.name(), self.clock.now());
        (attempt, Fate::Ended(Ending::Dead, Some(self.death(job, reason, None))))
    }

    /// Gives deliveries back that had no turn.
    pub(super) fn put_back(&self, jobs: Vec<Box<Job>>, now: Timestamp) {
        for mut job in jobs {
            self.settle(&mut job, None, Fate::Deferred(Due::At(now)));
        }
    }

    /// Defers deliveries of a shut lane. What is urgent comes back at once when the lane opens, the rest spread out.
    /// What only waits for flow control stays due.
    pub(super) fn defer(&self, jobs: Vec<Box<Job>>, until: Timestamp) {
        let now = self.clock.now();
        let until = until.min(now + DEFER_MAX);
        for mut job in jobs {
            let due = match job.message.tier {
                _ if until <= now => Due::At(now),
                tier => Due::Reopening(reopens_at(until, tier == Tier::Transactional, self.clock.randomness())),
            };
            self.settle(&mut job, None, Fate::Deferred(due));
        }
    }

    /// Counts what a turn came to, for the reliability metrics.
    fn tally(&self, job: &Job, settlement: &Settlement) {
        let (lane, tier) = (settlement.lane, settlement.tier);
        for retry in settlement.attempts.iter().filter(|attempt| attempt.number > 0 && attempt.took_ms.is_some()) {
            self.reliability.retried(lane, tier, retry.number);
        }
        self.count_sla(settlement);
        let Fate::Ended(ending, _) = settlement.fate else { return };
        let Some(last) = settlement.attempts.last() else { return };
        let since = |from: Timestamp, to: Timestamp| (to - from).to_std().unwrap_or_default();
        match ending {
            Ending::Accepted => {
                let stretch = job.planned.filter(|_| settlement.attempts.len() == 1);
                let stretch = stretch.map(|(failed_at, due)| (since(failed_at, last.at), since(failed_at, due)));
                let delay = since(job.message.accepted_at, last.at);
                self.reliability.accepted(lane, tier, &Accepted { retries: last.number, delay, stretch });
            }
            Ending::Expired if last.number > 0 || last.took_ms.is_some() => {
                self.reliability.count(lane, Some(tier), Count::RetriesExpired, 1)
            }
            _ => {}
        }
    }

    /// What becomes of a delivery that would go on waiting, but was stopped while it was in our hands: it ends now, or is
    /// handed on.
    fn if_stopped(&self, job: &mut Job, last: Option<Attempt>, fate: Fate) -> (Option<Attempt>, Fate) {
        let retries = match fate {
            Fate::Retry { retries, .. } => retries,
            Fate::Deferred(_) => job.retries,
            Fate::Ended(..) | Fate::InFlight { .. } => return (last, fate),
        };
        let now = self.clock.now();
        let (ending, why) = match (self.stops.check(&job.target()), &fate) {
            (Some(Stopped::Cancelled), _) => (Ending::Cancelled, STOPPED),
            (Some(Stopped::Gone), _) => (Ending::Gone, SUBSCRIPTION_GONE),
            (Some(Stopped::Replaced), Fate::Retry { .. }) => return (last, Fate::Retry { retries, due: now }),
            (Some(Stopped::Replaced), _) => return (last, Fate::Deferred(Due::At(now))),
            (Some(Stopped::Paused) | None, _) => return (last, fate),
        };
        job.attempts.extend(last);
        (Some(unsent_attempt(retries, ending, why, now)), Fate::Ended(ending, None))
    }

    /// Counts a delivery that was not accepted in its time.
    pub(super) fn count_sla(&self, settlement: &Settlement) {
        if settlement.sla_missed_s.is_some() {
            self.reliability.count(settlement.lane, Some(settlement.tier), Count::SlaMissed, 1);
        }
    }

    /// Hands a fate to whoever writes it: the batch, or the settler of rows.
    pub(super) fn settle(&self, job: &mut Job, last: Option<Attempt>, fate: Fate) {
        let (last, fate) = self.if_stopped(job, last, fate);
        let fate = match fate {
            // A delivery deferred after a resend has attempts to its name all the same. If its message is paused, whoever
            // claims it next parks it.
            Fate::Deferred(due) if !job.attempts.is_empty() => {
                let due = match due {
                    Due::At(due) | Due::Turn(due) => due,
                    // Nobody claims it before its lane opens.
                    Due::Reopening(_) | Due::Parked => self.clock.now(),
                };
                Fate::Retry { retries: job.retries, due }
            }
            fate => fate,
        };
        let settlement = job.settle(last, fate);
        self.tally(job, &settlement);
        for attempt in &settlement.attempts {
            self.metrics.ended(attempt.ending, settlement.tier, 1);
        }
        match &job.ticket {
            Ticket::Row(lease) => self.settler.row(RowSettlement { lease: *lease, settlement }),
            Ticket::Batch(batch, place) => match batch.record(*place, settlement) {
                Recorded::Kept => {}
                Recorded::Last => self.close_batch(batch),
                Recorded::Row(settlement) => self.settler.row(RowSettlement { lease: batch.lease, settlement }),
            },
        }
        self.finished(1);
    }
}

/// Why a delivery ends that was cancelled, or whose subscription ended.
pub(super) const STOPPED: &str = "stopped";
/// Why one ends whose subscription is gone.
pub(super) const SUBSCRIPTION_GONE: &str = "subscription gone";
/// The longest reason that is kept of an attempt, in octets.
const REASON_MAX: usize = 500;

/// Makes a delivery fit what its gateway is believed to take, if it can be made to.
fn fit(job: &mut Job, payload_max: Option<usize>) -> &Job {
    if let Some(max) = payload_max
        && job.refused.is_none()
    {
        if job.message.template.max_len() <= max {
            job.limit = Some(max);
        } else if let Some(shrunk) = job.message.shrink(max) {
            (job.limit, job.shrunk) = (Some(max), Some(shrunk));
        }
    }
    job
}

/// What is kept of an answer: the gateway's words, after what the delivery lacked if it was made smaller beforehand.
fn with_what_is_missing(job: &Job, detail: Option<Box<str>>) -> Option<Box<str>> {
    let shrunk = job.shrunk.as_ref().filter(|_| job.refused.is_none());
    let told = shrunk.and_then(|shrunk| shrunk.tell_beforehand(detail.as_deref(), REASON_MAX));
    told.map(String::into_boxed_str).or(detail)
}

/// What is sent instead of a payload that was too large at so many octets: at most how many, and of what. A raw one can
/// but lose its padding.
fn smaller(job: &Job, sent: usize) -> Option<(usize, Option<Arc<Shrunk>>)> {
    let without_padding = job.template().max_len();
    let limit = shrink_target(sent, without_padding)?;
    match without_padding <= limit {
        true => Some((limit, job.shrunk.clone())),
        false => Some((limit, Some(job.message.shrink(limit)?))),
    }
}

fn count(octets: usize) -> u32 {
    u32::try_from(octets).unwrap_or(u32::MAX)
}

fn ended_unsent(retries: u32, ending: Ending, why: &str, now: Timestamp) -> Admission {
    Admission::Settle(Some(unsent_attempt(retries, ending, why, now)), Fate::Ended(ending, None))
}

/// The log row of an ending without a POST.
pub(super) fn unsent_attempt(number: u32, ending: Ending, why: &str, now: Timestamp) -> Attempt {
    Attempt { number, at: now, ending, status: None, took_ms: None, reason: Some(why.into()) }
}
