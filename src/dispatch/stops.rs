//! The set of stops in this worker's memory, asked before each POST.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use crate::id::{MessageId, SubscriptionId};
use crate::store::stops::{Stop, StopKind};

/// No POST starts when the stops were last read so long ago: something may have been stopped since.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// Longer than any delivery stays in a worker's memory; what is claimed later is claimed with its standing.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// What a stop means for one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Unsubscribed or cancelled: it ends.
    Cancelled,
    /// Paused: it waits for a resume.
    Paused,
}

/// Everything that was stopped in the last minute.
#[derive(Default)]
pub struct StopSet {
    entries: RwLock<HashMap<Uuid, (StopKind, Instant)>>,
    /// Number of entries, so that the usual case, none at all, takes no lock.
    len: AtomicUsize,
    /// When a read last succeeded.
    read_at: RwLock<Option<Instant>>,
    /// The last stops read, by id: a poll sees each of them many times.
    seen: RwLock<HashMap<Uuid, Instant>>,
}

impl StopSet {
    /// Obeys a stop at once.
    pub fn obey(&self, stop: Stop, now: Instant) {
        if self.seen.write().insert(stop.id, now).is_some() {
            return;
        }
        let mut entries = self.entries.write();
        match stop.kind {
            // A resume undoes a pause, never a cancel.
            StopKind::Resume => {
                if matches!(entries.get(&stop.target), Some((StopKind::Pause, _))) {
                    entries.remove(&stop.target);
                }
            }
            kind => {
                entries.insert(stop.target, (kind, now));
            }
        }
        self.len.store(entries.len(), Ordering::Release);
    }

    /// Takes over a successful read that began at `began`, and forgets what is old.
    pub fn refresh(&self, stops: Vec<Stop>, began: Instant) {
        for stop in stops {
            self.obey(stop, began);
        }
        let old = |at: &Instant| began.saturating_duration_since(*at) < KEPT_FOR;
        self.seen.write().retain(|_, at| old(at));
        let mut entries = self.entries.write();
        entries.retain(|_, (_, at)| old(at));
        self.len.store(entries.len(), Ordering::Release);
        *self.read_at.write() = Some(began);
    }

    /// Whether the last read is recent enough to start a POST by.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.read_at.read().is_some_and(|at| now.saturating_duration_since(at) < STALE_AFTER)
    }

    /// Whether this delivery was stopped.
    pub fn check(&self, message: MessageId, subscription: SubscriptionId) -> Option<Stopped> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let entries = self.entries.read();
        let of = |id: &Uuid| entries.get(id).map(|(kind, _)| *kind);
        match (of(&subscription.0), of(&message.0)) {
            (Some(_), _) | (_, Some(StopKind::Cancel | StopKind::Unsubscribe)) => Some(Stopped::Cancelled),
            (_, Some(StopKind::Pause)) => Some(Stopped::Paused),
            (_, Some(StopKind::Resume) | None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(kind: StopKind, target: Uuid) -> Stop {
        Stop { id: Uuid::now_v7(), kind, target }
    }

    #[tokio::test]
    async fn a_resume_undoes_a_pause_but_never_a_cancel() {
        let (set, now) = (StopSet::default(), Instant::now());
        let (message, subscription) = (MessageId(Uuid::now_v7()), SubscriptionId(Uuid::now_v7()));
        assert_eq!(set.check(message, subscription), None);
        let pause = stop(StopKind::Pause, message.0);
        set.obey(pause, now);
        assert_eq!(set.check(message, subscription), Some(Stopped::Paused));
        set.obey(stop(StopKind::Resume, message.0), now);
        set.obey(pause, now); // read again: it is old news
        assert_eq!(set.check(message, subscription), None);
        set.obey(stop(StopKind::Cancel, message.0), now);
        set.obey(stop(StopKind::Resume, message.0), now);
        assert_eq!(set.check(message, subscription), Some(Stopped::Cancelled));
    }

    #[tokio::test]
    async fn stops_are_forgotten_after_a_minute_and_stale_after_a_second() {
        let (set, now) = (StopSet::default(), Instant::now());
        let subscription = SubscriptionId(Uuid::now_v7());
        assert!(!set.is_fresh(now));
        set.refresh(vec![stop(StopKind::Unsubscribe, subscription.0)], now);
        assert!(set.is_fresh(now + Duration::from_millis(999)) && !set.is_fresh(now + Duration::from_secs(1)));
        assert_eq!(set.check(MessageId(Uuid::now_v7()), subscription), Some(Stopped::Cancelled));
        set.refresh(Vec::new(), now + KEPT_FOR);
        assert_eq!(set.check(MessageId(Uuid::now_v7()), subscription), None);
    }
}
