//! Flow control: a token bucket that fills at a rate. A delivery without a token waits; it is not lost.

use std::time::Duration;

use chrono::TimeDelta;

use bellwire_core::clock::Timestamp;

/// Time for which a bucket collects tokens. So a worker that polls irregularly keeps the rate, and after an idle time at most
/// these tokens are used at once.
const LATE: Duration = Duration::from_secs(1);
/// Tolerance of rounding errors in sums.
const EPSILON: f64 = 1e-6;

/// Number of deliveries in each period, evenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Deliveries per period, at least 1.
    pub n: u32,
    /// Length of the period, 1 ms to a day.
    pub period: Duration,
}

impl Rate {
    /// Returns one worker's share of the rate, in tokens per second.
    pub fn per_second(self, workers: u32) -> f64 {
        f64::from(self.n) / self.period.as_secs_f64() / f64::from(workers.max(1))
    }
}

/// Token bucket whose capacity is one token plus those of one second. In any period of `t` seconds it allows at most
/// `rate · (t + 1) + 1` deliveries.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    per_second: f64,
    level: f64,
    at: Timestamp,
}

impl Bucket {
    /// Creates a worker's bucket for a new rate of `per_second` tokens, above 0. The buckets of all `workers` (`rank` from 0)
    /// start without a whole token, so the first second has no more deliveries than later ones. A rate below one per second
    /// gets its first token after a second.
    pub fn beginning(per_second: f64, (rank, workers): (u32, u32), now: Timestamp) -> Self {
        let workers = f64::from(workers.max(1));
        let missing = (per_second * workers * LATE.as_secs_f64()).min(1.0);
        Self { level: 1.0 - (f64::from(rank) + missing) / workers, ..Self::empty(per_second, now) }
    }

    /// Returns a bucket without a token.
    pub fn empty(per_second: f64, now: Timestamp) -> Self {
        Self { per_second, level: 0.0, at: now }
    }

    /// Changes the rate. Tokens above the new capacity are dropped.
    pub fn set_rate(&mut self, per_second: f64, now: Timestamp) {
        self.fill(now);
        self.per_second = per_second;
        self.level = self.level.min(self.capacity());
    }

    /// Returns the number of whole tokens.
    pub fn available(&mut self, now: Timestamp) -> usize {
        self.fill(now);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, and never below 0")]
        let whole = (self.level + EPSILON).max(0.0) as usize;
        whole
    }

    /// Takes a token. The error is the time of the next one. A clock that is set back adds no tokens.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.available(now) == 0 {
            return Err(self.next_at());
        }
        self.level -= 1.0;
        Ok(())
    }

    /// Puts back a token that was not used.
    pub fn give_back(&mut self) {
        self.level = (self.level + 1.0).min(self.capacity());
    }

    /// Returns the time of the next whole token, as of the last call.
    pub fn next_at(&self) -> Timestamp {
        let wait_us = ((1.0 - self.level).max(0.0) / self.per_second * 1e6).ceil();
        #[expect(clippy::cast_possible_truncation, reason = "at most a day for each worker")]
        let wait = TimeDelta::microseconds(wait_us as i64);
        self.at + wait
    }

    fn capacity(&self) -> f64 {
        1.0 + self.per_second * LATE.as_secs_f64()
    }

    fn fill(&mut self, now: Timestamp) {
        // If the clock was set back, no time has passed. Filling continues from there.
        let elapsed = (now - self.at).to_std().unwrap_or_default();
        self.level = (self.level + elapsed.as_secs_f64() * self.per_second).min(self.capacity());
        self.at = now;
    }
}

/// Returns one worker's part of a parallelism. The parts of all `workers`, with `rank` from 0 to `workers` − 1, add up to the
/// whole.
pub fn part(whole: u32, workers: u32, rank: u32) -> u32 {
    let workers = workers.max(1);
    whole / workers + u32::from(rank < whole % workers)
}
