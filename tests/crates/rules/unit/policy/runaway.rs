//! Unit tests of `crates/bellwire-rules/src/policy/runaway.rs`, which includes them.

use super::*;

#[test]
fn guard_scales_with_app_size_or_is_off() {
    let guard = |factor, floor| Guard { factor, floor };
    assert_eq!(Guard::DEFAULT.limit(0), Some(10_000));
    assert_eq!(Guard::DEFAULT.limit(5_000), Some(60_000));
    assert_eq!(guard(1, 0).limit(7), Some(7));
    assert_eq!(guard(0, 10).limit(7), None);
    assert_eq!(guard(2, 1).limit(u64::MAX), Some(u64::MAX));
    for (one, other, is_looser) in [
        ((10, 5), (10, 5), false),
        ((11, 0), (10, 5), true),
        ((9, 6), (10, 5), true),
        ((9, 4), (10, 5), false),
        ((0, 0), (10, 5), true),
        ((10, 5), (0, 0), false),
        ((0, 9), (0, 0), false),
    ] {
        assert_eq!(guard(one.0, one.1).is_looser_than(guard(other.0, other.1)), is_looser, "{one:?} {other:?}");
    }
}
