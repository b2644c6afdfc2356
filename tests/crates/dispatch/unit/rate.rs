//! Unit tests of `crates/bellwire-dispatch/src/rate.rs`, which includes them.

use super::*;

#[tokio::test]
async fn rate_is_of_the_last_full_second() {
    let (rates, lane, start) = (Rates::default(), LaneId(1), Instant::now());
    assert_eq!(rates.per_second(lane), FIRST);
    (0..300).for_each(|_| rates.count(lane, start));
    assert_eq!(rates.per_second(lane), FIRST);
    rates.count(lane, start + WINDOW * 2);
    assert_eq!(rates.per_second(lane), 150);
}
