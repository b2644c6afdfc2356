//! Unit tests of `crates/bellwire-core/src/duration.rs`, which includes them.

use super::*;

#[test]
fn duration_in_largest_unit_reads_back() {
    for (seconds, text) in [(0, "0s"), (90, "90s"), (60, "1m"), (5_400, "90m"), (7_200, "2h"), (604_800, "7d")] {
        let duration = Duration::from_secs(seconds);
        assert_eq!(written(duration), text);
        assert_eq!(parse(text), Some(duration));
    }
}
