//! Origin shared by several lanes: its streams, and the tier and app that gets the next one.

use std::sync::Arc;

use tokio::time::Instant;

use super::shares::{COSTS, ROUND, TIERS};
use super::turn::Slot;
use super::weighted_queue::Turns;
use bellwire_core::id::AppId;
use bellwire_gateway::Streams;

/// Streams of an origin, in use or reserved for a lane that is about to send.
pub(super) struct OriginStreams {
    pub authority: Arc<str>,
    streams: Streams,
    used: [u32; 2],
    /// Lanes with a delivery of the tier that wait for a stream.
    parked: [Turns<Slot>; TIERS],
    /// Costs paid by its tiers. The tier that paid least is next.
    paid: [u64; TIERS],
    /// Number of slots so far, in total and at the last slot of each tier.
    turns: u64,
    last: [u64; TIERS],
    /// Time at which a stream was last taken or returned.
    pub moved_at: Instant,
    /// Lanes at this origin.
    pub slots: Vec<Slot>,
}

impl OriginStreams {
    pub(super) fn new(authority: Arc<str>, streams: Streams) -> Self {
        Self {
            authority,
            streams,
            used: [0; 2],
            parked: Default::default(),
            paid: [0; TIERS],
            turns: 0,
            last: [0; TIERS],
            moved_at: Instant::now(),
            slots: Vec::new(),
        }
    }

    pub(super) fn set_streams(&mut self, streams: Streams) {
        self.streams = streams;
    }

    /// Returns the maximum deliveries in flight.
    pub(super) fn most(&self) -> u32 {
        self.streams.most()
    }

    /// Whether a stream is free for a tier. One is reserved for transactional deliveries, possibly on a connection that is not
    /// open yet.
    pub(super) fn has_room(&self, tier: usize) -> bool {
        let (most, [urgent, others]) = (self.most(), self.used);
        let kept = u32::from(most > 1 && self.streams.further <= 1);
        urgent + others < most && (tier == 0 || others < most - kept)
    }

    /// Whether more streams are in use than allowed, because the push service lowered its limit or a connection ended.
    pub(super) fn is_overrun(&self) -> bool {
        self.used.iter().sum::<u32>() > self.most()
    }

    /// Reserves a stream for a tier. Returns `false` if none is free.
    pub(super) fn promise(&mut self, tier: usize) -> bool {
        let has_room = self.has_room(tier);
        self.used[kind(tier)] += u32::from(has_room);
        has_room
    }

    /// Releases a stream that was reserved or in use.
    pub(super) fn give_back(&mut self, tier: usize) {
        self.used[kind(tier)] -= 1;
    }

    pub(super) fn park(&mut self, app: AppId, weight: u32, tier: usize, slot: Slot) {
        self.parked[tier].push(app, weight, slot);
        // A tier that had nothing to do for a round is owed nothing for it.
        if self.turns - self.last[tier] > u64::from(ROUND) {
            let others = (0..TIERS).filter(|other| *other != tier && !self.parked[*other].is_empty());
            let least = others.map(|other| self.paid[other]).min().unwrap_or_default();
            self.paid[tier] = self.paid[tier].max(least);
        }
    }

    /// Reserves the next free stream for the next waiting lane, if there are both.
    pub(super) fn next(&mut self) -> Option<(Slot, usize)> {
        let may_go = |tier: &usize| !self.parked[*tier].is_empty() && self.has_room(*tier);
        let tier = (0..TIERS).filter(may_go).min_by_key(|tier| self.paid[*tier])?;
        let slot = self.parked[tier].pop()?;
        self.used[kind(tier)] += 1;
        Some((slot, tier))
    }

    pub(super) fn took_turn(&mut self, tier: usize) {
        self.turns += 1;
        self.last[tier] = self.turns;
        self.paid[tier] += COSTS[tier];
    }

    /// Refunds the cost of a slot without a POST.
    pub(super) fn refund(&mut self, tier: usize) {
        self.paid[tier] = self.paid[tier].saturating_sub(COSTS[tier]);
    }
}

/// Returns the index of a tier in [`OriginStreams::used`].
fn kind(tier: usize) -> usize {
    usize::from(tier > 0)
}
