//! Holds: periods in which a lane or one subscription gets no push, because the push service asked for it.

use std::time::Duration;

use super::window::{Window, WindowCounts};
use bellwire_core::clock::Timestamp;

/// Time over which deferred deliveries become due again. The remaining backlog is claimed as the lane's limit grows.
pub const SPREAD: Duration = Duration::from_secs(2);
/// Maximum deferral of a delivery at a time. Deliveries that become due while their lane is shut are not claimed.
pub const DEFER_MAX: Duration = Duration::from_secs(60);
/// Duration of the first hold without a `Retry-After`.
pub const FIRST: Duration = Duration::from_secs(1);
const LONGEST_WITHOUT_HEADER: Duration = Duration::from_secs(60);
/// Duration of the first hold of a refused key.
pub const KEY_FIRST: Duration = Duration::from_secs(600);
const KEY_LONGEST: Duration = Duration::from_secs(3600);
/// Longest hold of a lane after one response that names the sender.
pub(crate) const LANE_LONGEST: Duration = Duration::from_secs(900);
/// Longest hold of a lane if the sender is only presumed to be meant, because several different subscriptions were refused.
pub(crate) const INFERRED_LONGEST: Duration = Duration::from_secs(60);
/// Time after the end of a hold during which a lane sends probes, and during which another hold of a subscription without a
/// header counts as repeated.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Time after the end of its hold during which a subscription counts as throttled, unless it accepts a push. Another refusal is
/// then no evidence against the sender.
pub const KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// A hold: set at a time, until another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldReason {
    /// Time at which it was set.
    pub at: Timestamp,
    /// Time at which it ends.
    pub until: Timestamp,
}

impl HoldReason {
    pub fn rest(&self, now: Timestamp) -> Duration {
        (self.until - now).to_std().unwrap_or_default()
    }
}

/// Hold of a lane after throttling responses. A response holds the lane for the time in its header, or, without a header, for 1
/// s, doubling up to 60 s until a success. After the end, probes are sent one at a time, until a success or for a minute. An
/// operator's release voids earlier holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hold {
    longest: Option<HoldReason>,
    /// Hold that was set last. It stays when a release voids older ones.
    newest: Option<HoldReason>,
    released_at: Option<Timestamp>,
    /// Duration of the last hold without a header. Zero after a success.
    step: Duration,
    /// End of the last hold that is fully over: a success followed, or a minute has passed.
    reopened: Option<Timestamp>,
}

impl Hold {
    /// Returns the time from which the lane may send. `None`: it may now.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.longest.map(|held| held.until).filter(|until| now < *until)
    }

    /// Returns the hold that was set last, for other replicas to [adopt](Self::extend).
    pub fn newest(&self) -> Option<HoldReason> {
        self.newest
    }

    /// Processes a throttling response at `now` to a POST that began at `posted_at`. Returns the end of the hold.
    ///
    /// Responses to POSTs that were in flight when a hold began belong to that hold and do not double it: a hundred streams
    /// refused together are one refusal. Holds are never shortened.
    pub fn throttled(&mut self, now: Timestamp, posted_at: Timestamp, retry_after: Option<Duration>) -> Timestamp {
        let wait = match retry_after {
            Some(wait) => wait,
            None if self.precedes(posted_at) => {
                self.step = (self.step * 2).clamp(FIRST, LONGEST_WITHOUT_HEADER);
                self.step
            }
            None => Duration::ZERO,
        };
        self.extend(HoldReason { at: now, until: now + wait })
    }

    /// Records an acceptance: the next hold without a header is short again. An acceptance of a POST from before the hold has
    /// no effect.
    pub fn succeeded(&mut self, posted_at: Timestamp) {
        if self.precedes(posted_at) {
            self.step = Duration::ZERO;
            self.reopened = self.longest.map(|held| held.until);
        }
    }

    /// Whether the hold is in force, or has ended and only probes are allowed.
    pub fn is_shut_or_probing(&self) -> bool {
        self.longest.is_some_and(|held| self.reopened < Some(held.until))
    }

    /// Whether a POST that began at this time is a probe.
    pub fn is_probe(&self, posted_at: Timestamp) -> bool {
        self.is_shut_or_probing() && self.precedes(posted_at)
    }

    /// Ends the probe phase a minute after the hold, if nothing was sent.
    pub fn stop_probing_late(&mut self, now: Timestamp) {
        let over = self.longest.filter(|held| held.until + REMEMBERED_FOR <= now);
        self.reopened = over.map(|held| held.until).max(self.reopened);
    }

    /// Adopts a hold of another replica or an operator, unless a later release voids it. Returns the end of the hold.
    pub fn extend(&mut self, held: HoldReason) -> Timestamp {
        if self.released_at.is_none_or(|released| released <= held.at) {
            self.newest = Some(self.newest.filter(|newest| newest.at > held.at).unwrap_or(held));
            self.longest = Some(self.longest.filter(|longest| longest.until >= held.until).unwrap_or(held));
        }
        self.longest.map_or(held.at, |held| held.until)
    }

    /// Voids holds set before an operator's release. A repeated release has no effect.
    pub fn release(&mut self, at: Timestamp) {
        if self.released_at.is_some_and(|known| at <= known) {
            return;
        }
        self.released_at = Some(at);
        self.newest = self.newest.filter(|held| held.at > at);
        self.longest = self.longest.filter(|held| held.at > at).or(self.newest);
        self.step = Duration::ZERO;
    }

    fn precedes(&self, posted_at: Timestamp) -> bool {
        self.longest.is_none_or(|held| held.until <= posted_at)
    }
}

/// Detects that push services refuse a lane's VAPID key, because of a wrong configuration, clock or key rotation. The lane is
/// then held and an alert raised, so that no subscriptions are lost.
///
/// Anyone may register subscriptions that belong to another key, and these are refused, too. So refusals count only for proven
/// subscriptions, for which a push was accepted before.
#[derive(Debug, Clone, Default)]
pub struct KeyWatch {
    proven: Window,
    all: Window,
}

/// Finding of a [`KeyWatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// The push service refuses the key.
    Refused,
    /// The push service seems to refuse the key, but never accepted a push to these subscriptions: an operator should check it.
    Doubtful,
}

impl KeyWatch {
    const ANSWERS_MIN: u32 = 20;
    const REFUSED_PERCENT: u64 = 90;

    /// Records a response that [judges the key](crate::classify::Outcome::judges_key). Returns an alarm if at least 90 % of at
    /// least 20 responses within 60 s refuse it; counting then starts again.
    pub fn record(&mut self, now: Timestamp, refused: bool, proven: bool) -> Option<Alarm> {
        let refused_as_a_whole = |WindowCounts { events, hits }| {
            events >= Self::ANSWERS_MIN && u64::from(hits) * 100 >= u64::from(events) * Self::REFUSED_PERCENT
        };
        let all = self.all.count(now, refused);
        let alarm = if (proven || !refused) && refused_as_a_whole(self.proven.count(now, refused)) {
            Some(Alarm::Refused)
        } else {
            refused_as_a_whole(all).then_some(Alarm::Doubtful)
        };
        match alarm {
            Some(Alarm::Refused) => *self = Self::default(),
            Some(Alarm::Doubtful) => self.all = Window::default(),
            None => {}
        }
        alarm
    }
}

/// Returns the due time of a delivery that a hold or a breaker deferred until `until`. Deliveries are spread over two seconds,
/// so that a recovered push service is not flooded. Urgent deliveries are due at once. `randomness` is in [0, 1).
pub fn reopens_at(until: Timestamp, urgent: bool, randomness: f64) -> Timestamp {
    if urgent { until } else { until + SPREAD.mul_f64(randomness.clamp(0.0, 1.0)) }
}

/// Returns the hold of a lane with a refused key: 10 minutes, doubled up to an hour if it recurs within an hour of the previous
/// hold. A hold in force is unchanged.
pub fn of_refused_key(before: Option<HoldReason>, now: Timestamp) -> HoldReason {
    repeated(before, now, (KEY_FIRST, KEY_LONGEST), KEY_LONGEST)
}

/// Returns the hold of a subscription after a throttling response to a POST that began at `posted_at`. The header gives its
/// duration. Without a header it is 1 s, doubled up to 60 s if it recurs within a minute of the previous hold. A POST that was
/// in flight when a hold began does not double it.
pub fn of_throttled_subscription(
    before: Option<HoldReason>, posted_at: Timestamp, now: Timestamp, retry_after: Option<Duration>,
) -> HoldReason {
    match (retry_after, before) {
        (Some(wait), _) => HoldReason { at: now, until: now + wait },
        (None, Some(held)) if posted_at < held.until => held,
        (None, before) => repeated(before, now, (FIRST, LONGEST_WITHOUT_HEADER), REMEMBERED_FOR),
    }
}

/// Returns a hold twice as long as `before`, if that ended at most `within` ago. A hold in force is unchanged.
fn repeated(
    before: Option<HoldReason>, now: Timestamp, (first, longest): (Duration, Duration), within: Duration,
) -> HoldReason {
    let length = match before {
        Some(held) if now < held.until => return held,
        Some(held) if now < held.until + within => {
            ((held.until - held.at).to_std().unwrap_or_default() * 2).clamp(first, longest)
        }
        _ => first,
    };
    HoldReason { at: now, until: now + length }
}
