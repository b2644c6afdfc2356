//! Unit tests of `crates/bellwire-store/src/queue/claims/filtered.rs`, which includes them.

use super::*;

#[test]
fn cut_requests_a_bounded_number() {
    for (wanted, taken, passed, expected) in [
        (500, 0, 0, 500),
        (10, 0, 0, 100),
        (400, 100, 400, 2_000), // one in five
        (500, 0, 500, 3_500),
        (500, 4, 3_990, 6),
        (250, 250, 0, 250),
    ] {
        assert_eq!(to_ask(wanted, taken, passed), expected, "{wanted} {taken} {passed}");
    }
}
