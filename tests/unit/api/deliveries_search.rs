//! Unit tests of `src/api/deliveries/search.rs`, which includes them.

use super::*;

#[test]
fn iterator_round_trips_and_others_are_refused() {
    let there = DeliveryCursor { message: Uuid::from_u128(7), subscription: Uuid::from_u128(9) };
    let iterator = paging::write(Towards::Older, key(there));
    assert_eq!(place(&iterator), Some((Towards::Older, there)));
    assert_eq!(place(&paging::write(Towards::Newer, key(there))), Some((Towards::Newer, there)));
    for text in ["", "x", "AAAA", &iterator[1..], &format!("{iterator}AAAA")] {
        assert_eq!(place(text), None, "{text}");
    }
}
