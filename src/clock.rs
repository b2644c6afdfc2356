//! The only `now()` in the process. SQL never asks for the time: it is handed what this clock says, and this clock
//! follows the database's, so that replicas with wrong clocks of their own still agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

/// A point in time, always UTC.
pub type Timestamp = DateTime<Utc>;

/// Cheap to clone; clones share one offset.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Microseconds to add to the system's clock, or, for a stub, the time itself.
    micros: Arc<AtomicI64>,
    stub: bool,
}

impl Clock {
    /// The system's clock, until [`follow`](Self::follow) is told otherwise.
    pub fn system() -> Self {
        Self { micros: Arc::new(AtomicI64::new(0)), stub: false }
    }

    /// A clock that stands still until it is [advanced](Self::advance), for tests.
    pub fn stub(start: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicI64::new(start.timestamp_micros())), stub: true }
    }

    /// The present time, in whole microseconds, as Postgres stores it.
    pub fn now(&self) -> Timestamp {
        let base = if self.stub { 0 } else { Utc::now().timestamp_micros() };
        DateTime::from_timestamp_micros(base + self.micros.load(Ordering::Relaxed))
            .expect("the present lies within chrono's range")
    }

    /// Takes over the database's time as read at this moment. Answers by how many microseconds this host was off
    /// (positive: the database is ahead). A stub stays as it is.
    pub fn follow(&self, database: Timestamp) -> i64 {
        let offset = database.timestamp_micros() - Utc::now().timestamp_micros();
        if !self.stub {
            self.micros.store(offset, Ordering::Relaxed);
        }
        offset
    }

    /// Moves a stub forward; does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        if self.stub {
            self.micros.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 2), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_moves_only_when_told() {
        let start = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let clock = Clock::stub(start);
        assert_eq!(clock.now(), start);
        clock.clone().advance(Duration::from_millis(1500));
        assert_eq!(clock.now() - start, chrono::TimeDelta::milliseconds(1500));
    }
}
