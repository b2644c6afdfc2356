//! Unit tests of `src/cli/cap.rs`, which includes them.

use super::*;

#[test]
fn cap_is_messages_per_window_and_tier() {
    assert_eq!(read("2/1d"), Ok(json!({"max": 2, "window": "1d"})));
    assert_eq!(read("5/7d:promotional"), Ok(json!({"max": 5, "window": "7d", "tiers": ["promotional"]})));
    for wrong in ["", "2", "1d/2", "2:promotional"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
