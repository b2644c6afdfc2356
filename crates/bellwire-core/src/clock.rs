//! The only source of the current time in the process. SQL statements get it as a parameter. It follows the database's clock,
//! so that replicas with wrong clocks agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use uuid::{ContextV7, Uuid};

/// A point in time, always UTC.
pub type Timestamp = DateTime<Utc>;

/// Returns a new UUIDv7 of a given time, for many rows at once. Twelve bits are the quarter of a microsecond within the
/// millisecond (RFC 9562 section 6.2, method 3), so ids are in the order of their times.
pub fn uuid_of(at: Timestamp) -> Uuid {
    uuid_from(at, rand::random())
}

/// Returns a UUIDv7 computed from a time and the name of an object. A transaction that is repeated, after a failover for
/// example, gets the same id.
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

/// Returns the smallest UUIDv7 of a time's millisecond.
pub fn first_uuid_of(at: Timestamp) -> Uuid {
    Uuid::from_u128(u128::from(unix_ms(at)) << 80)
}

/// Returns the time in a UUIDv7, to the millisecond. `None`: another kind of UUID.
pub fn time_of(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

/// Returns milliseconds since 1970; 0 for earlier times.
fn unix_ms(at: Timestamp) -> u64 {
    u64::try_from(at.timestamp_millis()).unwrap_or(0)
}

/// Clock of the process. Cheap to clone; clones share one offset.
#[derive(Clone)]
pub struct Clock {
    /// Microseconds to add to the system's clock. For a stub, the time itself.
    micros: Arc<AtomicI64>,
    stub: bool,
    /// Ensures that ids within one millisecond ascend.
    ids: Arc<Mutex<ContextV7>>,
}

impl Clock {
    fn new(micros: i64, stub: bool) -> Self {
        Self { micros: Arc::new(AtomicI64::new(micros)), stub, ids: Arc::new(Mutex::new(ContextV7::new())) }
    }

    /// Returns the system's clock, until [`follow`](Self::follow) sets an offset.
    pub fn system() -> Self {
        Self::new(0, false)
    }

    /// Returns a clock for tests that only moves when it is [advanced](Self::advance).
    pub fn stub(start: Timestamp) -> Self {
        Self::new(start.timestamp_micros(), true)
    }

    /// Returns the current time in whole microseconds, as Postgres stores it.
    #[inline]
    pub fn now(&self) -> Timestamp {
        let base = if self.stub { 0 } else { Utc::now().timestamp_micros() };
        DateTime::from_timestamp_micros(base + self.micros.load(Ordering::Relaxed))
            .expect("the present lies within chrono's range")
    }

    /// Returns a new UUIDv7 of the current time (RFC 9562 section 5.7). Ids of one process ascend, and are unique among
    /// processes.
    pub fn uuid(&self) -> Uuid {
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).expect("the present lies after 1970");
        Uuid::new_v7(uuid::Timestamp::from_unix(&*self.ids.lock(), seconds, now.timestamp_subsec_nanos()))
    }

    /// Returns a random number in [0, 1), for jitter. Not for keys.
    pub fn randomness(&self) -> f64 {
        rand::random()
    }

    /// Sets the clock to the database's time, which was just read. Returns the offset of this host in microseconds (positive:
    /// the database is ahead). A stub is unchanged.
    pub fn follow(&self, database: Timestamp) -> i64 {
        let offset = database.timestamp_micros() - Utc::now().timestamp_micros();
        if !self.stub {
            self.micros.store(offset, Ordering::Relaxed);
        }
        offset
    }

    /// Moves a stub forward. Does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        self.shift(i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 2));
    }

    /// Sets a stub back. Does nothing to the system's clock.
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
