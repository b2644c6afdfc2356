//! Counts over the last 60 seconds.

use bellwire_core::clock::Timestamp;

const BUCKETS: usize = 12;
const BUCKET_S: i64 = 5;

/// Events and hits of the last 60 seconds, in buckets of 5 seconds. An event is dropped between 55 and 60 seconds after its time.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    buckets: [WindowCounts; BUCKETS],
    /// The number of the bucket that is being filled: seconds since 1970 over 5.
    newest: i64,
}

/// Number of events, and of hits among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WindowCounts {
    pub events: u32,
    pub hits: u32,
}

impl Window {
    /// Counts one event and returns the totals of the window that ends with it.
    pub(super) fn count(&mut self, now: Timestamp, hit: bool) -> WindowCounts {
        self.event(now);
        if hit {
            self.hit(now);
        }
        self.totals(now)
    }

    /// Counts one event, of which it may turn out later that it was a hit.
    ///
    /// A clock that goes back a little counts into the newest bucket; one that goes back by more than the window starts
    /// it afresh.
    pub(super) fn event(&mut self, now: Timestamp) {
        self.advance(bucket_of(now));
        let bucket = &mut self.buckets[slot(self.newest)];
        bucket.events = bucket.events.saturating_add(1);
    }

    /// Counts an event of that time as a hit, unless it is forgotten by now.
    pub(super) fn hit(&mut self, at: Timestamp) {
        if let Some(bucket) = self.bucket(at) {
            bucket.hits = bucket.hits.saturating_add(1);
        }
    }

    /// Takes an event of that time back.
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
