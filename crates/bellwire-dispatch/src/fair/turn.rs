//! Results of the fair queue: turns, room, and load.

use crate::job::Job;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;

/// Index of a (lane, origin) in the queue. It stays valid while a delivery of it is in flight; later another one may have it.
pub(crate) type Slot = usize;

/// Delivery with a permit, which [`FairQueue::release`] returns.
pub(crate) struct Turn {
    pub slot: Slot,
    pub job: Box<Job>,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
    /// Maximum plaintext octets that the gateway seems to accept.
    pub payload_max: Option<usize>,
}

/// Permit of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permit {
    pub slot: Slot,
    pub tier: Tier,
    pub number: u64,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
}

impl Turn {
    /// Returns its permit.
    pub(crate) fn permit(&self) -> Permit {
        Permit { slot: self.slot, tier: self.job.message.tier, number: self.job.number, probe: self.probe }
    }
}

pub(crate) enum NextTurn {
    Turn(Turn),
    /// A lane turned out to be shut: its deliveries are deferred until the given time.
    Deferred(Vec<Box<Job>>, Timestamp),
}

/// Claimable deliveries of a lane and tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub n: usize,
    /// Whether this is a strict maximum, even if a batch would be more efficient: for probes and the remaining permits of flow control.
    pub exact: bool,
    /// Time of the next room, if a rate is used up.
    pub next_at: Option<Timestamp>,
}

impl Room {
    pub(crate) const NONE: Self = Self { n: 0, exact: true, next_at: None };
}

/// Current load in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLoad {
    pub waiting: usize,
    pub in_flight: usize,
    pub held: usize,
    /// Lanes whose breaker is open or half open.
    pub broken: usize,
    /// Lanes and origins that something is remembered of.
    pub known: usize,
}
