//! Unit tests of `crates/bellwire-store/src/connections/replica.rs`, which includes them.

use super::*;

#[test]
fn lag_is_the_age_of_replayed_state() {
    let (mut written, start) = (WalPositions::default(), Instant::now());
    let at = |s| start + Duration::from_secs(s);
    assert_eq!(written.lag(100, at(0)), None, "nothing is known yet");
    for (s, up_to) in [(0, 10), (1, 20), (2, 20), (3, 30)] {
        written.note(at(s), up_to);
    }
    assert_eq!(written.lag(30, at(4)), Some(Duration::from_secs(1)));
    assert_eq!(written.lag(25, at(4)), Some(Duration::from_secs(2)));
    assert_eq!(written.lag(9, at(4)), None);
}
