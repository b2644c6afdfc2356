//! Flow control in this worker: its part of the limits set by apps and operators. Pure state, owned by the fair queue.

use std::collections::{HashMap, VecDeque};

use super::shares::{TIERS, index};
use super::turn::Slot;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_rules::policy::flow::{Bucket, part};
use bellwire_store::operations::workers::Replicas;
use bellwire_store::queue::flows::Flow;

/// Scope of a flow: a whole app, or one lane of it.
pub(super) type FlowKey = (AppId, Option<LaneId>);

pub(super) struct Flows {
    replicas: Replicas,
    started_at: Timestamp,
    limiters: HashMap<FlowKey, Limiter>,
    /// Number of limiting flows by app.
    limited: HashMap<AppId, usize>,
}

struct Limiter {
    flow: Flow,
    bucket: Option<Bucket>,
    load: FlowLoad,
    held_back: VecDeque<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowLoad {
    pub in_flight: u32,
    /// Deliveries waiting in memory, by tier.
    pub waiting: [usize; TIERS],
}

fn bounds(flow: &Flow) -> bool {
    flow.paused || !flow.held.is_empty() || flow.rate.is_some() || flow.parallelism.is_some()
}

pub(super) fn scopes(app: AppId, lane: LaneId) -> [FlowKey; 2] {
    [(app, None), (app, Some(lane))]
}

impl Flows {
    /// Creates an empty state for a worker that started at this time. A flow set before then gets no initial tokens, so that
    /// its rate is not exceeded.
    pub(super) fn new(started_at: Timestamp) -> Self {
        Self { replicas: Replicas::ALONE, started_at, limiters: HashMap::new(), limited: HashMap::new() }
    }

    /// Adopts the flow in force. Returns `false` if the known flow is the same or later. `load` returns the deliveries of its
    /// scope in memory, and is called for a new scope. Later changes must be reported.
    pub(super) fn adopt(&mut self, flow: Flow, load: impl FnOnce() -> FlowLoad, now: Timestamp) -> bool {
        let scope = (flow.app, flow.lane);
        let known = self.limiters.get(&scope);
        if known.is_some_and(|known| known.flow.changed_at >= flow.changed_at) {
            return false;
        }
        let old = known.and_then(|known| known.bucket.filter(|_| known.flow.reset_at == flow.reset_at));
        let bucket = flow.rate.map(|rate| {
            let per_second = rate.per_second(self.replicas.workers);
            match old {
                Some(mut bucket) => {
                    bucket.set_rate(per_second, now);
                    bucket
                }
                None if flow.reset_at >= self.started_at => {
                    Bucket::beginning(per_second, (self.replicas.rank, self.replicas.workers), now)
                }
                None => Bucket::empty(per_second, now),
            }
        });
        let bounded = self.limited.entry(flow.app).or_default();
        *bounded += usize::from(bounds(&flow));
        match self.limiters.get_mut(&scope) {
            Some(known) => {
                *bounded -= usize::from(bounds(&known.flow));
                (known.flow, known.bucket) = (flow, bucket);
            }
            None => {
                let held_back = VecDeque::new();
                self.limiters.insert(scope, Limiter { flow, bucket, load: load(), held_back });
            }
        }
        true
    }

    /// Whether a limit applies to the app or one of its lanes.
    pub(super) fn concern(&self, app: AppId) -> bool {
        self.limited.get(&app).is_some_and(|n| *n > 0)
    }

    /// Recomputes this worker's part. Returns `false` if nothing changed.
    pub(super) fn set_replicas(&mut self, replicas: Replicas, now: Timestamp) -> bool {
        if self.replicas == replicas {
            return false;
        }
        self.replicas = replicas;
        for limiter in self.limiters.values_mut() {
            if let (Some(bucket), Some(rate)) = (&mut limiter.bucket, limiter.flow.rate) {
                bucket.set_rate(rate.per_second(replicas.workers), now);
            }
        }
        true
    }

    /// Whether no delivery of this lane and tier may start here, because the flow is paused or held, or other workers use all
    /// of the parallelism.
    pub(super) fn is_shut(&self, app: AppId, lane: LaneId, tier: usize) -> bool {
        let is_held = |flow: &Flow| flow.held.iter().any(|held| index(*held) == tier);
        self.of(app, lane).any(|limiter| limiter.flow.paused || is_held(&limiter.flow) || self.part(limiter) == Some(0))
    }

    /// Returns the number of deliveries that may start now, and for zero the time of the next one, if known. Unlimited without
    /// a rate.
    pub(super) fn tokens(&mut self, app: AppId, lane: LaneId, now: Timestamp) -> (usize, Option<Timestamp>) {
        let (mut tokens, mut next_at) = (usize::MAX, None);
        for bucket in self.buckets(app, lane) {
            let available = bucket.available(now);
            tokens = tokens.min(available);
            next_at = next_at.max((available == 0).then(|| bucket.next_at()));
        }
        (tokens, next_at)
    }

    /// Takes a token for one delivery. Returns `false` if a rate is used up.
    pub(super) fn take(&mut self, app: AppId, lane: LaneId, now: Timestamp) -> bool {
        self.tokens(app, lane, now).0 > 0 && self.buckets(app, lane).all(|bucket| bucket.take(now).is_ok())
    }

    /// Puts back a token, because the delivery was not sent.
    pub(super) fn give_back(&mut self, app: AppId, lane: LaneId) {
        self.buckets(app, lane).for_each(Bucket::give_back);
    }

    /// Whether one more POST may be in flight.
    pub(super) fn has_permit(&self, app: AppId, lane: LaneId) -> bool {
        self.of(app, lane).all(|limiter| self.left(limiter) > 0)
    }

    /// Returns how many more deliveries of a tier may be claimed within the parallelism, beyond the waiting ones of it and of
    /// more urgent tiers. `None`: unlimited.
    pub(super) fn room(&self, app: AppId, lane: LaneId, tier: Tier) -> Option<usize> {
        let room = |limiter: &Limiter| {
            let waiting = limiter.load.waiting[..=index(tier)].iter().sum();
            Some((self.part(limiter)? as usize).saturating_sub(waiting))
        };
        self.of(app, lane).filter_map(room).min()
    }

    /// Adds `n` waiting deliveries of a tier.
    pub(super) fn lined_up(&mut self, app: AppId, lane: LaneId, tier: usize, n: usize) {
        self.of_mut(app, lane).for_each(|limiter| limiter.load.waiting[tier] += n);
    }

    pub(super) fn left_line(&mut self, app: AppId, lane: LaneId, tier: usize, n: usize) {
        self.of_mut(app, lane).for_each(|limiter| limiter.load.waiting[tier] -= n);
    }

    pub(super) fn began(&mut self, app: AppId, lane: LaneId) {
        self.of_mut(app, lane).for_each(|limiter| limiter.load.in_flight += 1);
    }

    pub(super) fn ended(&mut self, app: AppId, lane: LaneId) {
        self.of_mut(app, lane).for_each(|limiter| limiter.load.in_flight -= 1);
    }

    /// Records that a slot waits for the first parallelism that is used up. Returns `false` if none is.
    pub(super) fn hold_back(&mut self, app: AppId, lane: LaneId, slot: Slot) -> bool {
        let used_up = |scope: &FlowKey| self.limiters.get(scope).is_some_and(|limiter| self.left(limiter) == 0);
        let scope = scopes(app, lane).into_iter().find(|scope| !self.limiters.is_empty() && used_up(scope));
        let limiter = scope.and_then(|scope| self.limiters.get_mut(&scope));
        limiter.map(|limiter| limiter.held_back.push_back(slot)).is_some()
    }

    /// Returns the next slot that waits for a parallelism, if more than `granted` more POSTs may be in flight.
    pub(super) fn next_held_back(&mut self, scope: FlowKey, granted: u32) -> Option<Slot> {
        let limiter = self.limiters.get(&scope)?;
        if self.left(limiter) <= granted {
            return None;
        }
        self.limiters.get_mut(&scope)?.held_back.pop_front()
    }

    /// Returns this worker's part of a parallelism. A new worker has none until the others have reduced their parts.
    fn part(&self, limiter: &Limiter) -> Option<u32> {
        let Replicas { workers, rank, newcomer } = self.replicas;
        let whole = limiter.flow.parallelism?;
        Some(if newcomer { 0 } else { part(whole, workers, rank) })
    }

    fn left(&self, limiter: &Limiter) -> u32 {
        self.part(limiter).map_or(u32::MAX, |part| part.saturating_sub(limiter.load.in_flight))
    }

    fn of(&self, app: AppId, lane: LaneId) -> impl Iterator<Item = &Limiter> {
        // Nearly always there is none at all.
        let scopes = if self.limiters.is_empty() { None } else { Some(scopes(app, lane)) };
        scopes.into_iter().flatten().filter_map(|scope| self.limiters.get(&scope))
    }

    fn of_mut(&mut self, app: AppId, lane: LaneId) -> impl Iterator<Item = &mut Limiter> {
        let found = match self.limiters.is_empty() {
            true => [None, None],
            false => self.limiters.get_disjoint_mut([&(app, None), &(app, Some(lane))]),
        };
        found.into_iter().flatten()
    }

    fn buckets(&mut self, app: AppId, lane: LaneId) -> impl Iterator<Item = &mut Bucket> {
        self.of_mut(app, lane).filter_map(|limiter| limiter.bucket.as_mut())
    }
}
