//! Flow control: a bucket that fills at a rate. What finds it empty waits; nothing is lost.

use std::time::Duration;

use chrono::TimeDelta;

use bellwire_core::clock::Timestamp;

/// What fills up while nobody looks: whoever comes so late for a token still finds those that came meanwhile. So a rate
/// is kept by a worker that looks now and then, and at most so much goes at once after a rest.
const LATE: Duration = Duration::from_secs(1);
/// Sums of fractions may miss a whole by so much.
const EPSILON: f64 = 1e-6;

/// So many deliveries in each period, evenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many, at least 1.
    pub n: u32,
    /// Of this length: 1 ms to a day.
    pub period: Duration,
}

impl Rate {
    /// One worker's share, in tokens per second.
    pub fn per_second(self, workers: u32) -> f64 {
        f64::from(self.n) / self.period.as_secs_f64() / f64::from(workers.max(1))
    }
}

/// A token bucket. It holds one token and what comes within a second, so that what is sent in any time is at most the
/// rate times (that time and a second), and one.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    per_second: f64,
    level: f64,
    at: Timestamp,
}

impl Bucket {
    /// A worker's bucket of a rate that begins to hold. It fills at `per_second`, above 0. All `workers` together, of `rank` 0
    /// and up, begin without a token, so that the first second has no more than any other. A rate of less than one a second has
    /// its first token after a second.
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

    /// Whole tokens that are there.
    pub fn available(&mut self, now: Timestamp) -> usize {
        self.fill(now);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, and never below 0")]
        let whole = (self.level + EPSILON).max(0.0) as usize;
        whole
    }

    /// Takes one, or says when there is one. Time that goes back fills nothing.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.available(now) == 0 {
            return Err(self.next_at());
        }
        self.level -= 1.0;
        Ok(())
    }

    /// Returns a token that was taken and not used.
    pub fn give_back(&mut self) {
        self.level = (self.level + 1.0).min(self.capacity());
    }

    /// When there is a whole token, as of the last look.
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
        // No time at all has passed if the clock was set back; it goes on from there.
        let elapsed = (now - self.at).to_std().unwrap_or_default();
        self.level = (self.level + elapsed.as_secs_f64() * self.per_second).min(self.capacity());
        self.at = now;
    }
}

/// One worker's part of a parallelism: the parts of `workers`, whose `rank`s are 0 to `workers` − 1, add up to exactly the
/// whole.
pub fn part(whole: u32, workers: u32, rank: u32) -> u32 {
    let workers = workers.max(1);
    whole / workers + u32::from(rank < whole % workers)
}
