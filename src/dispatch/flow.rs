//! Flow control in this worker: its part of what apps and operators let through. Pure state; the fair queue owns it.

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::id::{AppId, LaneId};
use crate::policy::flow::{Bucket, part};
use crate::store::flows::Flow;
use crate::store::workers::Crew;

/// What a flow is for: an app as a whole, or one lane of it.
pub type Scope = (AppId, Option<LaneId>);

/// All flows that this worker has heard of.
pub struct Flows {
    crew: Crew,
    started_at: Timestamp,
    limiters: HashMap<Scope, Limiter>,
}

struct Limiter {
    flow: Flow,
    bucket: Option<Bucket>,
}

/// The flows that a lane is subject to.
pub fn scopes(app: AppId, lane: LaneId) -> [Scope; 2] {
    [(app, None), (app, Some(lane))]
}

impl Flows {
    /// None, in a worker that started at a time: what it hears of older flows must not let more through because of that.
    pub fn new(started_at: Timestamp) -> Self {
        Self { crew: Crew::ALONE, started_at, limiters: HashMap::new() }
    }

    /// Takes over what is in force, unless something later is known.
    pub fn adopt(&mut self, flow: Flow, now: Timestamp) {
        let scope = (flow.app, flow.lane);
        let known = self.limiters.get(&scope);
        if known.is_some_and(|known| known.flow.changed_at >= flow.changed_at) {
            return;
        }
        let old = known.and_then(|known| known.bucket.filter(|_| known.flow.reset_at == flow.reset_at));
        let bucket = flow.rate.map(|rate| {
            let per_second = rate.per_second(self.crew.workers);
            match old {
                Some(mut bucket) => {
                    bucket.set_rate(per_second, now);
                    bucket
                }
                // The parts of the crew begin one after the other, so that together they begin with one token.
                None if flow.reset_at >= self.started_at => {
                    Bucket::new(per_second, f64::from(self.crew.rank) / f64::from(self.crew.workers), now)
                }
                None => Bucket::empty(per_second, now),
            }
        });
        self.limiters.insert(scope, Limiter { flow, bucket });
    }

    /// Takes this worker's part anew. False if that changes nothing.
    pub fn set_crew(&mut self, crew: Crew, now: Timestamp) -> bool {
        if self.crew == crew {
            return false;
        }
        self.crew = crew;
        for limiter in self.limiters.values_mut() {
            if let (Some(bucket), Some(rate)) = (&mut limiter.bucket, limiter.flow.rate) {
                bucket.set_rate(rate.per_second(crew.workers), now);
            }
        }
        true
    }

    /// Whether nothing of this lane may go, by this worker at least: it is paused, or others have all of the parallelism.
    pub fn is_shut(&self, app: AppId, lane: LaneId) -> bool {
        self.of(app, lane).any(|(_, limiter)| limiter.flow.paused) || self.parts(app, lane).any(|(_, part)| part == 0)
    }

    /// How many may go by now; if none, and more will by themselves, when. Unlimited where there is no rate.
    pub fn tokens(&mut self, app: AppId, lane: LaneId, now: Timestamp) -> (usize, Option<Timestamp>) {
        let (mut tokens, mut next_at) = (usize::MAX, None);
        for bucket in self.buckets(app, lane) {
            let available = bucket.available(now);
            tokens = tokens.min(available);
            next_at = next_at.max((available == 0).then(|| bucket.next_at()));
        }
        (tokens, next_at)
    }

    /// Takes a token for one delivery. False: a rate is used up.
    pub fn take(&mut self, app: AppId, lane: LaneId, now: Timestamp) -> bool {
        self.tokens(app, lane, now).0 > 0 && self.buckets(app, lane).all(|bucket| bucket.take(now).is_ok())
    }

    /// A delivery that had a token was not sent.
    pub fn give_back(&mut self, app: AppId, lane: LaneId) {
        self.buckets(app, lane).for_each(Bucket::give_back);
    }

    /// Of what concerns a lane, how many this worker may have in flight at a time. One that is new has no part until the
    /// others have surely made room for it.
    pub fn parts(&self, app: AppId, lane: LaneId) -> impl Iterator<Item = (Scope, u32)> + '_ {
        let Crew { workers, rank, newcomer } = self.crew;
        let part_of = move |whole| if newcomer { 0 } else { part(whole, workers, rank) };
        self.of(app, lane).filter_map(move |(scope, limiter)| Some((scope, part_of(limiter.flow.parallelism?))))
    }

    fn of(&self, app: AppId, lane: LaneId) -> impl Iterator<Item = (Scope, &Limiter)> {
        // Nearly always there is none at all.
        let scopes = if self.limiters.is_empty() { None } else { Some(scopes(app, lane)) };
        scopes.into_iter().flatten().filter_map(|scope| Some((scope, self.limiters.get(&scope)?)))
    }

    fn buckets(&mut self, app: AppId, lane: LaneId) -> impl Iterator<Item = &mut Bucket> {
        let found = match self.limiters.is_empty() {
            true => [None, None],
            false => self.limiters.get_disjoint_mut([&(app, None), &(app, Some(lane))]),
        };
        found.into_iter().flatten().filter_map(|limiter| limiter.bucket.as_mut())
    }
}
