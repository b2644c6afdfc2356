//! Counts events of the last 60 seconds.

use bellwire_core::clock::Timestamp;

const BUCKETS: usize = 12;
const BUCKET_S: i64 = 5;

/// Events and hits of the last 60 seconds, in buckets of 5 seconds. An event is dropped 55 to 60 seconds after its time.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    buckets: [WindowCounts; BUCKETS],
    /// Number of the current bucket: seconds since 1970 divided by 5.
    newest: i64,
}

/// Number of events, and of hits among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WindowCounts {
    pub events: u32,
    pub hits: u32,
}

impl Window {
    /// Adds one event and returns the totals of the window that ends with it.
    pub(super) fn count(&mut self, now: Timestamp, hit: bool) -> WindowCounts {
        self.event(now);
        if hit {
            self.hit(now);
        }
        self.totals(now)
    }

    /// Adds one event, which may turn out to be a hit later.
    ///
    /// If the clock goes back by less than the window, the event counts in the newest bucket; otherwise the window is reset.
    pub(super) fn event(&mut self, now: Timestamp) {
        self.advance(bucket_of(now));
        let bucket = &mut self.buckets[slot(self.newest)];
        bucket.events = bucket.events.saturating_add(1);
    }

    /// Marks an event of that time as a hit, unless it has been dropped.
    pub(super) fn hit(&mut self, at: Timestamp) {
        if let Some(bucket) = self.bucket(at) {
            bucket.hits = bucket.hits.saturating_add(1);
        }
    }

    /// Removes an event of that time.
    pub(super) fn withdraw(&mut self, at: Timestamp) {
        if let Some(bucket) = self.bucket(at) {
            bucket.events = bucket.events.saturating_sub(1);
        }
    }

    fn bucket(&mut self, at: Timestamp) -> Option<&mut WindowCounts> {
        let age = self.newest - bucket_of(at).min(self.newest);
        (age < BUCKETS as i64).then(|| &mut self.buckets[slot(self.newest - age)])
    }

    pub(super) fn totals(&mut self, now: Timestamp) -> WindowCounts {
        self.advance(bucket_of(now));
        self.buckets.iter().fold(WindowCounts::default(), |sum, bucket| WindowCounts {
            events: sum.events.saturating_add(bucket.events),
            hits: sum.hits.saturating_add(bucket.hits),
        })
    }

    fn advance(&mut self, bucket: i64) {
        const ALL: i64 = BUCKETS as i64;
        match bucket - self.newest {
            by if by <= -ALL || by >= ALL => *self = Self { newest: bucket, ..Self::default() },
            by if by > 0 => {
                for passed in self.newest + 1..=bucket {
                    self.buckets[slot(passed)] = WindowCounts::default();
                }
                self.newest = bucket;
            }
            _ => {}
        }
    }
}

fn bucket_of(at: Timestamp) -> i64 {
    at.timestamp().div_euclid(BUCKET_S)
}

fn slot(bucket: i64) -> usize {
    bucket.rem_euclid(BUCKETS as i64) as usize
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/policy/window.rs"]
mod tests;
