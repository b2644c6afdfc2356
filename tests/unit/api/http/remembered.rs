//! Unit tests of `src/api/http/remembered.rs`, which includes them.

use std::sync::atomic::{AtomicU32, Ordering};

use chrono::DateTime;

use super::*;

#[tokio::test]
async fn value_is_read_once_per_period() {
    let (clock, reads) = (Clock::stub(DateTime::UNIX_EPOCH), AtomicU32::new(0));
    let value = Remembered::new(Duration::from_secs(1));
    let ask = || value.get(&clock, async { reads.fetch_add(1, Ordering::Relaxed) });
    assert_eq!(futures_util::future::join_all((0..5).map(|_| ask())).await, [0; 5]);
    clock.advance(Duration::from_millis(999));
    assert_eq!(ask().await, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!((ask().await, ask().await), (1, 1));
}
