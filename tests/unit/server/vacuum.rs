//! Unit tests of `src/server/vacuum.rs`, which includes them.

use super::*;

#[tokio::test]
async fn postgres_is_observed_often_while_rows_change() {
    let (mut pace, now) = (Pace::new(), Instant::now());
    let at = |s| now + Duration::from_secs(s);
    assert_eq!(pace.take_in(100, at(5)), BUSY_S, "at first");
    assert_eq!(pace.take_in(110, at(61)), CALM_S);
    assert_eq!(pace.take_in(10_000, at(70)), BUSY_S);
    assert_eq!(pace.take_in(10_010, at(129)), BUSY_S);
    assert_eq!(pace.take_in(10_020, at(130)), CALM_S);
    assert_eq!(pace.take_in(0, at(135)), BUSY_S, "it crashed");
}
