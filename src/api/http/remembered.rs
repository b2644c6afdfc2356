//! Cache for a value that is requested often and read seldom.

use std::future::Future;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::Mutex;

use bellwire_core::clock::{Clock, Timestamp};

/// Value that is read at most once per period for any number of requests. Requests during a read wait for it.
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    period: TimeDelta,
    last: Mutex<Option<(Timestamp, T)>>,
}

impl<T: Clone> Remembered<T> {
    /// Creates an empty cache. A value is valid for `period`.
    pub(crate) fn new(period: Duration) -> Self {
        let period = TimeDelta::from_std(period).unwrap_or(TimeDelta::MAX);
        Self { period, last: Mutex::new(None) }
    }

    /// Returns the cached value, or reads it if it is older than the period.
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
#[path = "../../../tests/unit/api/http/remembered.rs"]
mod tests;
