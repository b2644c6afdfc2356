//! Unit tests of `src/server/telemetry.rs`, which includes them.

use chrono::TimeDelta;

use super::*;

#[test]
fn the_operators_directive_overrides_our_quiet_libraries() {
    assert!(filter_of("info,sqlx=debug").unwrap().to_string().contains("sqlx=debug"));
    assert!(filter_of("warn").unwrap().to_string().contains("warn"));
    assert!(filter_of("=====").is_err());
}

#[test]
fn temporary_log_level_expires_without_database() {
    let now = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
    let filter = LogFilter::parse("debug").unwrap();
    let mut followed = LogFilterState::default();
    assert_eq!(followed.change(now), None);
    followed.wanted = Some((filter.clone(), now + TimeDelta::seconds(60)));
    assert_eq!(followed.change(now), Some(Some(filter)));
    assert_eq!(followed.change(now + TimeDelta::seconds(59)), None);
    assert_eq!(followed.change(now + TimeDelta::seconds(60)), Some(None));
    assert_eq!(followed.change(now + TimeDelta::seconds(61)), None);
}

#[test]
fn temporary_log_level_overrides_the_start() {
    let filter = filter_of("info,bellwire=debug").unwrap().to_string();
    assert!(filter.contains("bellwire=debug") && filter.contains("info"), "{filter}");
    let filter = filter_of("bellwire=info,bellwire=debug").unwrap().to_string();
    assert!(!filter.contains("bellwire=info"), "{filter}");
}
