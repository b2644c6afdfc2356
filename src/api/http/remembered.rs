//! Cache for a value that is requested often and read seldom.

use std::future::Future;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::Mutex;

use bellwire_core::clock::{Clock, Timestamp};

/// Value that is read at most once per period, with any number of requests. Requests during a read wait for it.
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    period: TimeDelta,
    last: Mutex<Option<(Timestamp, T)>>,
}

impl<T: Clone> Remembered<T> {
    /// Remembers nothing yet. `period`: how long a value is good for.
    pub(crate) fn new(period: Duration) -> Self {
        let period = TimeDelta::from_std(period).unwrap_or(TimeDelta::MAX);
        Self { period, last: Mutex::new(None) }
    }

    /// The value, read now unless the last one is still good.
    pub(crate) async fn get(&self, clock: &Clock, read: impl Future<Output = T>) -> T {
        let mut last = self.last.lock().await;
        if let Some((at, value)) = &*last
            && (clock.now() - at).abs() < self.period
        {
            return value.clone();
        }
        let value = read.await;
        // Its age counts from its end, so that those who waited for a slow one do not each read again.
        *last = Some((clock.now(), value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
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
}
