//! Maximum POSTs in flight of a lane: additive increase, multiplicative decrease.
//!
//! A throttling response halves the limit at once. A single failure may be chance, so failures halve it only if they are more
//! than a tenth of a round. Otherwise the limit would fall to a handful at 1 % of failures. An overloaded push service would
//! then be exceeded by a tenth in each round, so growth slows down near the limit that last proved too high.

use std::ops::Range;

/// Initial limit of a lane of a known push service.
const START: f32 = 32.0;
/// Maximum limit of an unknown push service, which must not use more than a few connections.
pub(crate) const STRANGER_MAX: u32 = 4;
/// Minimum responses of a round, which otherwise has as many as the limit. A share of fewer means little: with 5 % failures,
/// one round of 32 in fifty has five failures or more.
const ROUND_MIN: u32 = 64;
/// One failure in this number of responses is tolerated, plus one, so that chance does not look like congestion in short
/// rounds. The share is lower than the breaker's threshold, so the load falls before the breaker opens.
const TOLERATED_IN: u32 = 10;
/// Permits added by each success in slow start. Failures that arrive before successes then belong to up to twice as many POSTs.
const SLOW_START: u32 = 2;
/// Range near the limit that proved too high, as shares of it. Above the range, the push service has shown that it accepts
/// more.
const NEAR: Range<f32> = 0.75..1.1;
/// Growth of the limit in that range, relative to the growth elsewhere.
const CAREFULLY: f32 = 0.125;

#[derive(Debug, Clone)]
pub struct Limit {
    limit: f32,
    max: f32,
    /// Concurrent requests that the connections allow. Successes do not raise the limit above this number.
    streams: f32,
    /// Whether the limit is in slow start, as in TCP: each success adds whole permits. It ends with the first congestion.
    slow_start: bool,
    /// Responses to ignore before another decrease, because POSTs in flight do not show the effect of the lower limit yet.
    grace: u32,
    round_left: u32,
    tolerated: u32,
    /// Limit that last proved too high. Infinite at first.
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

    /// Sets the upper bound: this worker's share of the maximum of all workers.
    pub(crate) fn set_max(&mut self, max: u32) {
        #[expect(clippy::cast_precision_loss, reason = "limits are small")]
        let max = max.max(1) as f32;
        self.max = max;
        self.limit = self.limit.min(max);
    }

    /// Sets the concurrent requests that the connections allow, an upper bound of the limit.
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

    /// Records a success.
    pub fn succeeded(&mut self) {
        self.count();
        let step = match self.slow_start {
            true => 1.0,
            false if NEAR.contains(&(self.limit / self.too_much)) => CAREFULLY / self.limit,
            false => 1.0 / self.limit,
        };
        self.limit = (self.limit + step).min(self.max.min(self.streams).max(self.limit));
    }

    /// Records a failure or a missing response. Too many in a round are congestion.
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
#[path = "../../../../tests/crates/rules/unit/policy/limit.rs"]
mod tests;
