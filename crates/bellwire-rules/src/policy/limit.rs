//! Maximum POSTs of a lane in flight: additive increase, multiplicative decrease.
//!
//! Throttling is an order and halves the limit at once. A single failure may be chance, so only a round of responses with more
//! than a tenth of failures halves it. If each failure did, the limit would fall to a handful at 1 % of failures. The price is
//! that an overloaded gateway that responds with failures would be overrun by a tenth in each round. Therefore growth slows down
//! near the limit that last proved too high.

use std::ops::Range;

/// First limit of a lane of a recognised gateway.
const START: f32 = 32.0;
/// Maximum limit of an unknown host, which must not occupy more than a few connections.
pub(crate) const STRANGER_MAX: u32 = 4;
/// Minimum responses of a round, whose length is otherwise the limit. A share of fewer means little: with 5 % failures, one round
/// of 32 in fifty has five failures or more.
const ROUND_MIN: u32 = 64;
/// One failure in this many responses is tolerated, and one more, so that chance does not look like congestion in short rounds.
/// The share is lower than the one that trips a breaker: the load falls before the breaker opens.
const TOLERATED_IN: u32 = 10;
/// Permits that each success frees in slow start. Failures that are faster than successes then belong to twice as many POSTs.
const SLOW_START: u32 = 2;
/// Range near the limit that proved too high, as shares of it. Above the range, the gateway has shown that it accepts more.
const NEAR: Range<f32> = 0.75..1.1;
/// Growth of the limit in that range, relative to the growth elsewhere.
const CAREFULLY: f32 = 0.125;

#[derive(Debug, Clone)]
pub struct Limit {
    limit: f32,
    max: f32,
    /// Concurrent requests that the connections allow. Successes do not prove more than that.
    streams: f32,
    /// Whether each success adds a whole permit, as in TCP's slow start. It ends with the first congestion.
    slow_start: bool,
    /// Responses to ignore before another decrease, because those in flight do not show the effect of the lower limit.
    grace: u32,
    round_left: u32,
    tolerated: u32,
    /// Limit that last proved too high. Infinite before.
    too_much: f32,
}

impl Limit {
    pub fn new(max: u32) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "limits are small")]
        let max = max.max(1) as f32;
        let limit = START.min(max);
        let too_much = f32::INFINITY;
        let streams = f32::INFINITY;
        let mut new = Self { limit, max, streams, slow_start: true, grace: 0, round_left: 0, tolerated: 0, too_much };
        new.begin_round();
        new
    }

    /// Bounds the limit by this worker's share of the maximum of all workers.
    pub(crate) fn set_max(&mut self, max: u32) {
        #[expect(clippy::cast_precision_loss, reason = "limits are small")]
        let max = max.max(1) as f32;
        self.max = max;
        self.limit = self.limit.min(max);
    }

    /// Sets the concurrent requests that the connections allow, which bound the growth of the limit.
    pub fn set_streams(&mut self, streams: u32) {
        #[expect(clippy::cast_precision_loss, reason = "only compared with small limits")]
        let streams = streams as f32;
        self.streams = streams;
    }

    /// Returns the current limit, at least 1.
    pub fn get(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and max")]
        let whole = self.limit as u32;
        whole.max(1)
    }

    /// Counts a success of the gateway.
    pub fn succeeded(&mut self) {
        self.count();
        let step = match self.slow_start {
            true => 1.0,
            false if NEAR.contains(&(self.limit / self.too_much)) => CAREFULLY / self.limit,
            false => 1.0 / self.limit,
        };
        self.limit = (self.limit + step).min(self.max.min(self.streams).max(self.limit));
    }

    /// Counts a failure or a missing response of the gateway. Too many in a round are congestion.
    pub fn failed(&mut self) {
        if self.grace == 0 {
            match self.tolerated.checked_sub(1) {
                Some(fewer) => self.tolerated = fewer,
                None => return self.congested(),
            }
        }
        self.count();
    }

    pub(crate) fn congested(&mut self) {
        self.slow_start = false;
        if self.grace > 0 {
            self.grace -= 1;
            return;
        }
        self.grace = self.get();
        self.too_much = self.limit;
        self.limit = (self.limit / 2.0).max(1.0);
        self.begin_round();
    }

    /// Counts one response of the round, unless it is to be ignored.
    fn count(&mut self) {
        if self.grace > 0 {
            self.grace -= 1;
            return;
        }
        self.round_left -= 1;
        if self.round_left == 0 {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        self.round_left = self.get().max(ROUND_MIN);
        let posts = self.round_left * if self.slow_start { SLOW_START } else { 1 };
        self.tolerated = posts / TOLERATED_IN + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of which every `one_in`-th is a failure.
    fn answered(limit: &mut Limit, answers: u32, one_in: u32) {
        for n in 1..=answers {
            if n % one_in == 0 { limit.failed() } else { limit.succeeded() }
        }
    }

    fn at_64() -> Limit {
        let mut limit = Limit::new(256);
        (0..32).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 64);
        limit
    }

    #[test]
    fn limit_doubles_until_congestion_then_adds_one() {
        let mut limit = at_64();
        limit.congested();
        assert_eq!(limit.get(), 32);
        (0..33).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 33);
    }

    #[test]
    fn burst_of_throttling_counts_once_within_bounds() {
        let mut limit = Limit::new(256);
        (0..32).for_each(|_| limit.congested());
        assert_eq!(limit.get(), 16);
        (0..10_000).for_each(|_| limit.congested());
        assert_eq!(limit.get(), 1);
        (0..1_000_000).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 256);
    }

    #[test]
    fn few_failures_keep_the_limit() {
        for one_in in [200, 100, 20] {
            let mut limit = Limit::new(256);
            answered(&mut limit, 1_000, one_in);
            assert_eq!(limit.get(), 256, "one in {one_in}");
        }
    }

    #[test]
    fn many_failures_halve_the_limit_once_per_round() {
        let mut limit = at_64();
        (0..32).for_each(|_| limit.succeeded()); // the rest of the first round
        assert_eq!(limit.get(), 96);
        (0..20).for_each(|_| limit.failed());
        assert_eq!(limit.get(), 96);
        limit.failed();
        assert_eq!(limit.get(), 48, "more than a tenth of twice 96, in slow start");
        (0..96).for_each(|_| limit.failed());
        assert_eq!(limit.get(), 48, "those that were in flight say nothing");
        (0..7).for_each(|_| limit.failed());
        assert_eq!(limit.get(), 48);
        limit.failed();
        assert_eq!(limit.get(), 24, "the eighth of the next 64");
    }

    #[test]
    fn a_new_round_forgives() {
        let mut limit = Limit::new(32);
        for _ in 0..10 {
            (0..4).for_each(|_| limit.failed());
            (0..28).for_each(|_| limit.succeeded());
        }
        assert_eq!(limit.get(), 32);
    }

    #[test]
    fn throttling_halves_at_once_whatever_is_tolerated() {
        let mut limit = at_64();
        limit.congested();
        assert_eq!(limit.get(), 32);
    }

    #[test]
    fn gateway_failing_a_third_gets_less_load() {
        let mut limit = Limit::new(256);
        answered(&mut limit, 10_000, 3);
        assert!(limit.get() <= 8, "{limit:?}");
    }

    #[test]
    fn less_is_tolerated_than_what_trips_a_breaker() {
        let trips = crate::policy::TierSettings::DEFAULT.circuit_failure_threshold;
        assert!(f64::from(ROUND_MIN * SLOW_START / TOLERATED_IN + 1) / f64::from(ROUND_MIN) < trips);
    }

    #[test]
    fn growth_slows_near_the_known_limit() {
        let mut limit = Limit::new(256);
        limit.limit = 80.0;
        limit.congested();
        let mut rounds_to = |goal: u32| {
            let answers = (0..).take_while(|_| {
                limit.succeeded();
                limit.get() < goal
            });
            answers.count() as u32 / goal
        };
        assert!((15..=20).contains(&rounds_to(60)), "one a round");
        assert!((170..=224).contains(&rounds_to(88)), "one in eight rounds");
        assert!((25..=32).contains(&rounds_to(120)), "one a round");
    }

    #[test]
    fn share_bounds_the_limit_and_returns_room() {
        let mut limit = Limit::new(4);
        (0..1000).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 4);
        limit.set_max(0);
        assert_eq!(limit.get(), 1, "everybody may send at least one");
        limit.set_max(2);
        (0..1000).for_each(|_| limit.succeeded());
        assert_eq!(limit.get(), 2);
    }
}
