//! What the fair queue hands out: turns, room, and load.

use crate::dispatch::job::Job;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;

/// Index of a (lane, origin) in the queue. It stays valid while a delivery of it is in flight; later another one may have it.
pub(in crate::dispatch) type Slot = usize;

/// A delivery with a permit. The permit is given back by [`FairQueue::release`].
pub(in crate::dispatch) struct Turn {
    pub slot: Slot,
    pub job: Box<Job>,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
    /// Plaintext octets that the gateway is believed to take at most.
    pub payload_max: Option<usize>,
}

/// What a delivery was let go by.
#[derive(Debug, Clone, Copy)]
pub(in crate::dispatch) struct Permit {
    pub slot: Slot,
    pub tier: Tier,
    pub number: u64,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
}

impl Turn {
    /// What it was let go by.
    pub(in crate::dispatch) fn permit(&self) -> Permit {
        Permit { slot: self.slot, tier: self.job.message.tier, number: self.job.number, probe: self.probe }
    }
}

pub(in crate::dispatch) enum Next {
    Turn(Turn),
    /// A lane turned out to be shut: its deliveries are deferred until the given time.
    Deferred(Vec<Box<Job>>, Timestamp),
}

/// How much of a lane and tier may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) struct Room {
    pub n: usize,
    /// and no more, not even to make a batch worth its while: probes, what one may be among, or what flow control leaves.
    pub exact: bool,
    /// When there is room again by itself, if a rate is used up.
    pub next_at: Option<Timestamp>,
}

impl Room {
    pub(in crate::dispatch) const NONE: Self = Self { n: 0, exact: true, next_at: None };
}

/// What is going on at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub waiting: usize,
    pub in_flight: usize,
    pub held: usize,
    /// Lanes whose breaker is open or half open.
    pub broken: usize,
    /// Lanes and origins that something is remembered of.
    pub known: usize,
}
