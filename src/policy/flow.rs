//! Flow control: a bucket that fills at a rate. What finds it empty waits; nothing is lost.

use std::time::Duration;

use chrono::TimeDelta;

use crate::model::clock::Timestamp;

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
pub(crate) struct Bucket {
    per_second: f64,
    level: f64,
    at: Timestamp,
}

impl Bucket {
    /// A bucket that is full but for `missing` tokens. It fills at `per_second`, above 0.
    pub(crate) fn new(per_second: f64, missing: f64, now: Timestamp) -> Self {
        let mut bucket = Self::empty(per_second, now);
        bucket.level = bucket.capacity() - missing;
        bucket
    }

    /// A bucket without a token.
    pub(crate) fn empty(per_second: f64, now: Timestamp) -> Self {
        Self { per_second, level: 0.0, at: now }
    }

    /// Fills at another rate from now on.
    pub(crate) fn set_rate(&mut self, per_second: f64, now: Timestamp) {
        self.fill(now);
        self.per_second = per_second;
        self.level = self.level.min(self.capacity());
    }

    /// Whole tokens that are there.
    pub(crate) fn available(&mut self, now: Timestamp) -> usize {
        self.fill(now);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, and never below 0")]
        let whole = (self.level + EPSILON).max(0.0) as usize;
        whole
    }

    /// Takes one, or says when there is one. Time that goes back fills nothing.
    pub(crate) fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.available(now) == 0 {
            return Err(self.next_at());
        }
        self.level -= 1.0;
        Ok(())
    }

    /// Puts one back that was not used.
    pub(crate) fn give_back(&mut self) {
        self.level = (self.level + 1.0).min(self.capacity());
    }

    /// When there is a whole token, as of the last look.
    pub(crate) fn next_at(&self) -> Timestamp {
        let wait_us = ((1.0 - self.level).max(0.0) / self.per_second * 1e6).ceil();
        #[expect(clippy::cast_possible_truncation, reason = "at most a day for each worker")]
        let wait = TimeDelta::microseconds(wait_us as i64);
        self.at + wait
    }

    fn capacity(&self) -> f64 {
        1.0 + self.per_second * LATE.as_secs_f64()
    }

    fn fill(&mut self, now: Timestamp) {
        let Ok(elapsed) = (now - self.at).to_std() else { return };
        self.level = (self.level + elapsed.as_secs_f64() * self.per_second).min(self.capacity());
        self.at = now;
    }
}

/// One worker's part of a parallelism: the parts of `workers`, whose `rank`s are 0 to `workers` − 1, add up to exactly the
/// whole.
pub(crate) fn part(whole: u32, workers: u32, rank: u32) -> u32 {
    let workers = workers.max(1);
    whole / workers + u32::from(rank < whole % workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
    }

    /// How many go in `seconds` if somebody looks every `step_ms` and takes all there is.
    fn sent(rate: Rate, workers: u32, seconds: u64, step_ms: u64) -> u64 {
        let share = rate.per_second(workers);
        let mut buckets: Vec<_> =
            (0..workers).map(|rank| Bucket::new(share, f64::from(rank) / f64::from(workers), at(0))).collect();
        let mut n = 0;
        for ms in (0..=seconds * 1_000).step_by(usize::try_from(step_ms).unwrap()) {
            for bucket in &mut buckets {
                while bucket.take(at(ms)).is_ok() {
                    n += 1;
                }
            }
        }
        n
    }

    #[test]
    fn a_rate_holds_over_a_long_run_however_it_is_looked_at() {
        for (n, period_s, workers) in
            [(10, 1, 1), (10, 1, 3), (7, 1, 2), (90, 60, 2), (1_000, 1, 4), (3_600, 86_400, 1)]
        {
            let rate = Rate { n, period: Duration::from_secs(period_s) };
            for step_ms in [1, 37, 100, 999] {
                let hour = 3_600;
                let expected = f64::from(n) * hour as f64 / period_s as f64;
                let sent = sent(rate, workers, hour, step_ms) as f64;
                // Whole tokens and the first second's worth beside it.
                let slack = 1.0 + f64::from(workers) + f64::from(n) / period_s as f64;
                assert!(sent >= expected - slack && sent <= expected + slack, "{n}/{period_s} s × {workers}: {sent}");
            }
        }
    }

    #[test]
    fn an_empty_bucket_says_when_the_next_token_comes() {
        let mut bucket = Bucket::new(0.5, 0.5, at(0));
        assert_eq!(bucket.take(at(0)), Ok(()));
        assert_eq!(bucket.take(at(0)), Err(at(2_000)));
        assert_eq!(bucket.take(at(1_999)), Err(at(2_000)));
        assert_eq!(bucket.take(at(2_000)), Ok(()));
        bucket.give_back();
        assert_eq!((bucket.take(at(2_000)), bucket.available(at(2_000))), (Ok(()), 0));
    }

    #[test]
    fn a_rest_saves_up_a_second_and_another_rate_gives_nothing_away() {
        let mut bucket = Bucket::new(10.0, 0.0, at(0));
        assert_eq!(bucket.available(at(3_600_000)), 11);
        (0..11).for_each(|_| bucket.take(at(3_600_000)).unwrap());
        bucket.set_rate(1_000.0, at(3_600_000));
        assert_eq!(bucket.available(at(3_600_000)), 0);
        assert_eq!(bucket.available(at(3_600_005)), 5);
        assert_eq!(bucket.available(at(0)), 5, "a clock that goes back");
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        for whole in 0..20 {
            for workers in 1..7 {
                assert_eq!((0..workers).map(|rank| part(whole, workers, rank)).sum::<u32>(), whole);
            }
        }
        assert_eq!((part(2, 3, 0), part(2, 3, 2)), (1, 0));
    }
}
