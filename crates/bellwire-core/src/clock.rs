//! The only `now()` in the process. SQL statements get the time of this clock as a parameter. The clock follows that of the
//! database, so that replicas with wrong clocks agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use uuid::{ContextV7, Uuid};

/// A point in time, always UTC.
pub type Timestamp = DateTime<Utc>;

/// Returns a fresh UUIDv7 of another time than the present, for many rows at once. Twelve bits are the quarter of a microsecond
/// within the millisecond (RFC 9562 section 6.2, method 3), so ids are in the order of their times.
pub fn uuid_of(at: Timestamp) -> Uuid {
    uuid_from(at, rand::random())
}

/// Returns the UUIDv7 of a time and of the named object. A transaction that is repeated, after a failover for example, makes the
/// same id again.
pub fn derived_uuid_of(at: Timestamp, named: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in named {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    uuid_from(at, *hash.first_chunk().expect("SHA-256 has 32 octets"))
}

fn uuid_from(at: Timestamp, mut rest: [u8; 10]) -> Uuid {
    let fraction = u64::from(at.timestamp_subsec_nanos() % 1_000_000) * 4_096 / 1_000_000;
    rest[..2].copy_from_slice(&u16::try_from(fraction).unwrap_or(u16::MAX).to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(unix_ms(at), &rest).into_uuid()
}

/// The smallest id of a time's millisecond: what ids of that time and later are not below.
pub fn first_uuid_of(at: Timestamp) -> Uuid {
    Uuid::from_u128(u128::from(unix_ms(at)) << 80)
}

/// The time that a UUIDv7 begins with, to the millisecond. None: the id is of another kind.
pub fn time_of(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

/// Milliseconds since 1970; what lies before is taken for its beginning.
fn unix_ms(at: Timestamp) -> u64 {
    u64::try_from(at.timestamp_millis()).unwrap_or(0)
}

/// Cheap to clone; clones share one offset.
#[derive(Clone)]
pub struct Clock {
    /// Microseconds to add to the system's clock, or, for a stub, the time itself.
    micros: Arc<AtomicI64>,
    stub: bool,
    /// Orders the ids made within one millisecond.
    ids: Arc<Mutex<ContextV7>>,
}

impl Clock {
    fn new(micros: i64, stub: bool) -> Self {
        Self { micros: Arc::new(AtomicI64::new(micros)), stub, ids: Arc::new(Mutex::new(ContextV7::new())) }
    }

    /// The system's clock, until [`follow`](Self::follow) sets an offset.
    pub fn system() -> Self {
        Self::new(0, false)
    }

    /// A clock that stands still until it is [advanced](Self::advance), for tests.
    pub fn stub(start: Timestamp) -> Self {
        Self::new(start.timestamp_micros(), true)
    }

    /// The present time, in whole microseconds, as Postgres stores it.
    #[inline]
    pub fn now(&self) -> Timestamp {
        let base = if self.stub { 0 } else { Utc::now().timestamp_micros() };
        DateTime::from_timestamp_micros(base + self.micros.load(Ordering::Relaxed))
            .expect("the present lies within chrono's range")
    }

    /// A fresh UUIDv7 of the present (RFC 9562 section 5.7): ids of one process ascend, and no two processes share one.
    pub fn uuid(&self) -> Uuid {
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).expect("the present lies after 1970");
        Uuid::new_v7(uuid::Timestamp::from_unix(&*self.ids.lock(), seconds, now.timestamp_subsec_nanos()))
    }

    /// A random number in [0, 1), for jitter. Never for keys.
    pub fn randomness(&self) -> f64 {
        rand::random()
    }

    /// Sets the clock to the database's time read at this moment. Returns the offset of this host in microseconds (positive: the database
    /// is ahead). A stub is unchanged.
    pub fn follow(&self, database: Timestamp) -> i64 {
        let offset = database.timestamp_micros() - Utc::now().timestamp_micros();
        if !self.stub {
            self.micros.store(offset, Ordering::Relaxed);
        }
        offset
    }

    /// Moves a stub forward; does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        self.shift(i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 2));
    }

    /// Sets a stub back; does nothing to the system's clock.
    pub fn set_back(&self, by: Duration) {
        self.shift(-i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 2));
    }

    fn shift(&self, micros: i64) {
        if self.stub {
            self.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/clock.rs"]
mod tests;
