//! Unit tests of `crates/bellwire-store/src/connections/primary.rs`, which includes them.

use super::*;

#[test]
fn a_file_of_wal_tells_its_timeline() {
    assert_eq!(timeline_of("000000020000000000000003"), Some(2));
    assert_eq!(timeline_of("0000001F0000000000000003"), Some(31));
    assert_eq!(timeline_of("short"), None);
}

#[test]
fn old_connections_and_timelines_are_stale() {
    let primary = Primary::new(true);
    assert!(!primary.is_stale(Duration::MAX) && !primary.is_past(1));
    primary.chosen(3);
    assert!(primary.is_stale(Duration::from_secs(3_600)));
    primary.0.chosen.lock().at = Instant::now().checked_sub(Duration::from_secs(5));
    assert!(!primary.is_stale(Duration::ZERO), "it was opened since");
    assert!(primary.is_past(2) && !primary.is_past(3) && !primary.is_past(4));
}
