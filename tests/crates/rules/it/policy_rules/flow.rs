//! Token buckets.

use bellwire_core::clock::Timestamp;
use bellwire_rules::policy::flow::{Bucket, Rate, part};
use std::time::Duration;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
}

/// Number of deliveries sent in `seconds` if each worker polls every `step_ms` and takes all permits.
fn sent(rate: Rate, workers: u32, seconds: u64, step_ms: u64) -> u64 {
    let share = rate.per_second(workers);
    let mut buckets: Vec<_> = (0..workers).map(|rank| Bucket::beginning(share, (rank, workers), at(0))).collect();
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
fn rate_holds_over_a_long_run() {
    for (n, period_s, workers) in [(10, 1, 1), (10, 1, 3), (7, 1, 2), (90, 60, 2), (1_000, 1, 4), (3_600, 86_400, 1)] {
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
fn no_second_has_more_than_the_rate() {
    for workers in 1..=4 {
        for (n, first_second) in [(4, 4), (10, 10), (1, 1)] {
            let rate = Rate { n, period: Duration::from_secs(1) };
            assert_eq!(sent(rate, workers, 1, 1), first_second, "{n}/s × {workers}");
            assert_eq!(sent(rate, workers, 0, 1), 0);
        }
        let hourly = Rate { n: 1, period: Duration::from_secs(3_600) };
        assert_eq!((sent(hourly, workers, 1, 1), sent(hourly, workers, 3_600, 1_000)), (1, 1), "{workers}");
    }
}

#[test]
fn empty_bucket_returns_next_token_time() {
    let mut bucket = Bucket::empty(0.5, at(0) - Duration::from_secs(2)); // one token at 0
    assert_eq!(bucket.take(at(0)), Ok(()));
    assert_eq!(bucket.take(at(0)), Err(at(2_000)));
    assert_eq!(bucket.take(at(1_999)), Err(at(2_000)));
    assert_eq!(bucket.take(at(2_000)), Ok(()));
    bucket.give_back();
    assert_eq!((bucket.take(at(2_000)), bucket.available(at(2_000))), (Ok(()), 0));
}

#[test]
fn idle_bucket_saves_one_second() {
    let mut bucket = Bucket::empty(10.0, at(0));
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
