//! Unit tests of `crates/bellwire-core/src/clock.rs`, which includes them.

use super::*;

#[test]
fn ids_ascend_even_while_the_clock_stands_still() {
    let clock = Clock::stub(DateTime::from_timestamp(1_800_000_000, 0).unwrap());
    let ids: Vec<Uuid> = (0..1000).map(|_| clock.uuid()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    let (seconds, _) = ids[0].get_timestamp().unwrap().to_unix();
    assert_eq!(seconds, 1_800_000_000);
}

#[test]
fn ids_within_a_millisecond_are_ordered() {
    let at = |micros: i64| uuid_of(DateTime::from_timestamp_micros(1_700_000_000_123_000 + micros).unwrap());
    assert!((1..1_000).all(|micros| at(micros - 1) < at(micros)));
    assert!(at(-1) < at(0) && at(999) < at(1_000));
}

#[test]
fn id_lies_within_the_bounds_of_its_millisecond() {
    let at = DateTime::from_timestamp(1_800_000_000, 123_456_789).unwrap();
    let next = at + chrono::TimeDelta::milliseconds(1);
    assert!((0..100).all(|_| (first_uuid_of(at)..first_uuid_of(next)).contains(&uuid_of(at))));
    assert_eq!(uuid_of(at).get_version_num(), 7);
    assert_eq!(time_of(uuid_of(at)).map(|time| time.timestamp_millis()), Some(at.timestamp_millis()));
    assert_eq!(time_of(Uuid::max()), None);
    assert_eq!(first_uuid_of(DateTime::UNIX_EPOCH - chrono::TimeDelta::days(1)), Uuid::nil());
}

#[test]
fn a_stub_moves_only_when_told() {
    let start = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let clock = Clock::stub(start);
    assert_eq!(clock.now(), start);
    clock.clone().advance(Duration::from_millis(1500));
    assert_eq!(clock.now() - start, chrono::TimeDelta::milliseconds(1500));
}
