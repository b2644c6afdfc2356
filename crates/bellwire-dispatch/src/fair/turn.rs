//! Results of the fair queue: deliveries, room, and load.

use crate::job::Job;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;

/// Index of a lane and origin in the queue. It is valid while one of its deliveries is in flight, and may be reused afterwards.
pub(crate) type Slot = usize;

/// Delivery with a permit, which [`FairQueue::release`] takes back.
pub(crate) struct Turn {
    pub slot: Slot,
    pub job: Box<Job>,
    /// Whether it is a probe, whose response decides about a half-open breaker.
    pub probe: bool,
    /// Estimated maximum plaintext bytes that the push service accepts. `None`: no limit.
    pub payload_max: Option<usize>,
}

/// Permit of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permit {
    pub slot: Slot,
    pub tier: Tier,
    pub number: u64,
    /// Whether it is a probe, whose response decides about a half-open breaker.
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
    /// Deliveries of a lane that is shut: they are deferred until this time.
    Deferred(Vec<Box<Job>>, Timestamp),
}

/// Number of claimable deliveries of a lane and tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub n: usize,
    /// Whether the number must not be exceeded, even if a batch would be larger: for probes, and the remaining permits of flow
    /// control.
    pub exact: bool,
    /// Time at which an exhausted rate has a token again.
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
    /// Number of lanes and origins with state in memory.
    pub known: usize,
}
