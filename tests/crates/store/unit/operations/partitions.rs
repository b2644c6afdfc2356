//! Unit tests of `crates/bellwire-store/src/operations/partitions.rs`, which includes them.

use super::*;

#[test]
fn message_lies_in_the_partition_of_its_day() {
    let day = NaiveDate::from_ymd_opt(2026, 11, 20).unwrap();
    let last_ms = day.and_hms_milli_opt(23, 59, 59, 999).unwrap().and_utc().timestamp();
    let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, last_ms as u64, 999_000_000));
    assert!(midnight(day) < id && id < midnight(day + Days::new(1)));
    let first = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, (last_ms - 86_399) as u64, 0));
    assert!(midnight(day) < first, "the version stands after the time");
}

#[test]
fn a_partitions_name_tells_its_day() {
    let day = NaiveDate::from_ymd_opt(2026, 1, 2).unwrap();
    assert_eq!(name_of("attempts", day), "attempts_20260102");
    assert_eq!(day_of("attempts", "attempts_20260102"), Some(day));
    assert_eq!(day_of("attempts", "attempts_default"), None);
    assert_eq!(day_of("receipts", "attempts_20260102"), None);
}
