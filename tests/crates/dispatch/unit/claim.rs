//! Unit tests of `crates/bellwire-dispatch/src/claim.rs`, which includes them.

use super::*;

#[test]
fn polling_costs_a_twentieth_of_the_time() {
    for (took_ms, rest_ms) in [(0, 100), (5, 100), (10, 200), (50, 1_000), (200, 1_000), (500, 2_000), (9_000, 4_000)] {
        assert_eq!(rest_after(Duration::from_millis(took_ms)), Duration::from_millis(rest_ms), "{took_ms} ms");
    }
}
