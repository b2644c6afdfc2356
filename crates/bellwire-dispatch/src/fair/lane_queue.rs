//! State of one lane at one origin in the fair queue: waiting deliveries, costs paid by its tiers, and idle time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::time::Instant;

use super::peer::OriginStreams;
use super::shares::TIERS;
use super::turn::Slot;
use crate::job::Job;
use crate::message::LaneInfo;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId};
use bellwire_rules::policy::lane::Lane;
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_rules::policy::precedence::lets_pass;

/// Time for which a tier that ran out of claimed work keeps its right to the share that others used meanwhile, because claiming
/// may have been slow.
const OWED_FOR: TimeDelta = TimeDelta::seconds(1);
/// Time without a response, with all permits in use, after which an origin is stalled and skipped for a while.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// Duration of a stall. By then its attempts have reached their deadline, and the breaker has their results.
const STALLED_FOR: Duration = bellwire_rules::policy::ATTEMPT_DEADLINE;
/// Time without deliveries after which an origin is dropped, unless it has relevant state.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// Time after which an unknown origin is dropped in any case, unless it is shut: anyone may create any number of them and let
/// them fail.
const BROKEN_FOR: Duration = Duration::from_secs(3_600);

/// All origins of one stored lane. Claims are for the lane as a whole.
#[derive(Default)]
pub(super) struct LaneGroup {
    pub slots: Vec<Slot>,
    pub waiting: [usize; TIERS],
    /// State that applies to all its origins, later ones included.
    pub all: Option<LaneState>,
    /// Time of the next claims for a probe, while its VAPID key is refused.
    pub look_at: Option<Timestamp>,
}

/// State of a tier of a lane: the event for which it waits, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TierLine {
    Out,
    Parked,
    /// An encryption slot. It has a stream, unless its deliveries only have to be removed.
    Ready {
        has_stream: bool,
    },
}

pub(super) struct LaneQueue {
    pub id: LaneId,
    pub app: AppId,
    /// Weight of its app: consecutive slots.
    pub weight: u32,
    pub origin: Arc<str>,
    pub lane: Lane,
    /// Waiting deliveries in order of [rank](rank), by tier.
    pub jobs: [VecDeque<Box<Job>>; TIERS],
    pub lines: [TierLine; TIERS],
    /// Index of the origin in the list of peers.
    pub peer: usize,
    /// Whether it waits for the parallelism of a flow.
    pub is_held_back: bool,
    /// Costs paid by its tiers. With scarce permits, the tier that paid least is next.
    pub paid: [u64; TIERS],
    /// Time at which each tier ran out of work, with the least cost paid by another tier then.
    pub ran_dry: [Option<(Timestamp, u64)>; TIERS],
    /// Number of further slots for which its permits count as scarce, after they were used up.
    pub scarce_for: u32,
    /// Time at which a permit was last taken or returned.
    pub moved_at: Instant,
}

impl LaneQueue {
    /// Creates the state of an origin without deliveries.
    pub(super) fn new(info: &LaneInfo, origin: Arc<str>, peer: usize, lane: Lane) -> Self {
        Self {
            id: info.id,
            app: info.app,
            weight: info.weight,
            origin,
            lane,
            jobs: Default::default(),
            lines: [TierLine::Out; TIERS],
            peer,
            is_held_back: false,
            paid: [0; TIERS],
            ran_dry: [None; TIERS],
            scarce_for: 0,
            moved_at: Instant::now(),
        }
    }

    /// Returns the time until which a claimed delivery is deferred instead of waiting here. A stalled unknown origin must not
    /// fill the room shared by all unknown origins.
    pub(super) fn defer_until(
        &self, tier: usize, proven: bool, peer: &OriginStreams, now: Timestamp,
    ) -> Option<Timestamp> {
        let is_stuck = |has_room: bool, moved_at: Instant| !has_room && moved_at.elapsed() >= STALLED_AFTER;
        let stalled = || {
            self.lane.is_stranger()
                && (is_stuck(self.lane.has_permit(tier == 0), self.moved_at)
                    || is_stuck(peer.has_room(tier), peer.moved_at))
        };
        self.lane.shut_until(now, proven).or_else(|| stalled().then(|| now + STALLED_FOR))
    }

    /// Whether it can be dropped: it is not referenced, and its state has no effect.
    pub(super) fn is_idle(&self, now: Timestamp, instant: Instant) -> bool {
        let is_used =
            self.is_held_back || self.lane.in_flight() > 0 || self.lines.iter().any(|line| *line != TierLine::Out);
        let idle_for = instant.saturating_duration_since(self.moved_at);
        let is_shut = || self.lane.is_held(now) || self.lane.opens_at(now).is_some();
        let given_up = || self.lane.is_stranger() && idle_for >= BROKEN_FOR && !is_shut();
        !is_used
            && self.jobs.iter().all(VecDeque::is_empty)
            && idle_for >= IDLE_FOR
            && (given_up() || !self.lane.matters(now))
    }

    /// Returns the lowest cost paid by a tier with work.
    pub(super) fn least_paid(&self) -> Option<u64> {
        (0..TIERS).filter(|tier| !self.jobs[*tier].is_empty()).map(|tier| self.paid[tier]).min()
    }

    /// Adds a delivery in order. A tier that had no work is not compensated, except for a short time.
    pub(super) fn line_up(&mut self, job: Box<Job>, tier: usize, now: Timestamp) {
        if self.jobs[tier].is_empty() {
            let ran_dry = self.ran_dry[tier].take().filter(|(at, _)| (now - *at).abs() < OWED_FOR);
            match self.least_paid() {
                Some(least) => {
                    let owed_from = ran_dry.map_or(least, |(_, paid)| paid.min(least));
                    self.paid[tier] = self.paid[tier].max(owed_from);
                }
                None => (self.paid, self.ran_dry) = ([0; TIERS], [None; TIERS]),
            }
        }
        let jobs = &mut self.jobs[tier];
        let rank_of_it = rank(&job);
        match jobs.back() {
            Some(last) if rank(last) > rank_of_it => {
                jobs.insert(jobs.partition_point(|waiting| rank(waiting) <= rank_of_it), job);
            }
            _ => jobs.push_back(job),
        }
    }
}

/// Returns the sort key of a delivery within its lane and tier: fewer retries first, then by arrival.
fn rank(job: &Job) -> Instant {
    job.start_before + lets_pass(job.retries)
}
