//! Unit tests of `crates/bellwire-telemetry/src/metrics/process.rs`, which includes them.

use super::*;

#[test]
fn process_figures_are_read_for_any_name() {
    let text = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 4242 1048576 256 18446744073709551615\n";
    let expected = Stat { cpu_ticks: 200, started_ticks: 4_242, virtual_bytes: 1_048_576, resident_pages: 256 };
    assert_eq!(Stat::parse(text), Some(expected));
    assert_eq!(Stat::parse("7 (x) S 1"), None);
}
