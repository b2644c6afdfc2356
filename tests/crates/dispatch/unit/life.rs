//! Unit tests of `crates/bellwire-dispatch/src/life.rs`, which includes them.

use super::*;

const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
const QUICK: Duration = Duration::from_millis(5);

fn peer(id: u128, beats: i64) -> WorkerRow {
    WorkerRow { id: Uuid::from_u128(id), started_at: NOW, beat_at: NOW, beats }
}

/// Compares peers with these counts, one second after the other. Returns the comparisons that found a silent one.
fn looks(watch: &mut Watch, begin: Instant, beats: &[i64]) -> Vec<usize> {
    let silent = |(at, beats): (usize, &i64)| {
        let began = begin + BEAT_EVERY * u32::try_from(at).unwrap();
        (!watch.look(began, began + QUICK, &[peer(1, *beats)]).is_empty()).then_some(at)
    };
    beats.iter().enumerate().filter_map(silent).collect()
}

#[tokio::test]
async fn three_seconds_without_progress_is_silence() {
    let now = Instant::now();
    assert_eq!(looks(&mut Watch::default(), now, &[5, 6, 6, 6, 6, 6]), [4]);
    assert_eq!(looks(&mut Watch::default(), now, &[5, 5, 5, 6, 6, 6, 7]), [0; 0]);
}

#[tokio::test]
async fn looks_that_are_late_say_nothing_of_others() {
    let (mut watch, now) = (Watch::default(), Instant::now());
    for look in 0..20 {
        // Postgres stands still for all.
        let began = now + BEAT_EVERY * look;
        assert!(watch.look(began, began + LATE_AFTER * 2, &[peer(1, 5)]).is_empty(), "{look}");
    }
    let woken = now + BEAT_EVERY * 60;
    assert_eq!(looks(&mut watch, woken, &[5, 5, 5, 5, 5]), [3], "from the first look in time after a pause of its own");
}

#[tokio::test]
async fn overdue_worker_holds_nothing_from_before() {
    let (clock, began) = (Clock::stub(NOW), Instant::now());
    let life = Life::new(&clock);
    let lease = life.lease(&clock);
    assert!(!life.holds(lease, || began), "not on the list yet");
    life.beaten(began);
    assert!(life.holds(lease, || began + OVERDUE - QUICK) && !life.holds(lease, || began + OVERDUE));
    let frozen = || {
        life.beaten(began + BEAT_EVERY * 9); // by another thread, which was first to go on
        began + BEAT_EVERY * 9
    };
    assert!(!life.holds(lease, frozen));
    life.begin_anew(&clock);
    life.beaten(began);
    assert!(!life.holds(lease, || began) && life.holds(life.lease(&clock), || began));
}
