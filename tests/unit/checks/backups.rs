//! Unit tests of `src/checks/backups.rs`, which includes them.

use super::*;
use crate::checks::Health;

const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();

#[test]
fn old_or_missing_backup_is_reported() {
    let hours = |n| Some(NOW - TimeDelta::hours(n));
    for (last_at, since, health) in [
        (hours(49), hours(10_000), Health::Ok),
        (hours(51), hours(10_000), Health::Warning),
        (None, hours(24 * 8), Health::Warning),
        (None, hours(24 * 6), Health::Ok),
        (None, None, Health::Ok),
    ] {
        assert_eq!(age(BackupStatus { last_at, since }, NOW).health, health, "{last_at:?} {since:?}");
    }
}

#[test]
fn held_deliveries_after_restore_are_reported() {
    let last =
        |messages| Some(Last { backed_up_at: NOW, restored_at: NOW, held: HeldCount { campaigns: 0, messages } });
    assert_eq!(held(None).health, Health::Ok);
    assert_eq!(held(last(0)).health, Health::Ok);
    assert_eq!(held(last(2)).health, Health::Warning);
}
