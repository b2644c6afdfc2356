//! Holds: how long a lane sends nothing because the gateway said so, of the lane or of its VAPID key.

use std::time::Duration;

use super::window::{Counts, Window};
use crate::model::clock::Timestamp;

/// What was deferred comes back over this long. The rest of a backlog is claimed as the lane's limit grows again.
pub(crate) const SPREAD: Duration = Duration::from_secs(2);
/// The longest that a delivery is deferred at a time. What falls due while its lane is still shut is not claimed.
pub(crate) const DEFER_MAX: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_secs(1);
const LONGEST_WITHOUT_HEADER: Duration = Duration::from_secs(60);
const KEY_FIRST: Duration = Duration::from_secs(600);
const KEY_LONGEST: Duration = Duration::from_secs(3600);

/// One reason to hold: set at a time, until another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// When it was set.
    pub at: Timestamp,
    /// When it ends.
    pub until: Timestamp,
}

/// A lane's hold after throttling answers. One answer holds for the time that its header asks for, or, without a header,
/// for 1 s, doubling to 60 s until a success. An operator's release undoes what was set before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// What ends last.
    longest: Option<Held>,
    /// What was set last: it stands when a release undoes what is older.
    newest: Option<Held>,
    released_at: Option<Timestamp>,
    /// How long the last hold without a header was; zero after a success.
    step: Duration,
}

impl Hold {
    /// When the lane may send again; none if it may now.
    pub(crate) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.longest.map(|held| held.until).filter(|until| now < *until)
    }

    /// What was set last, for others to [take over](Self::extend).
    pub(crate) fn newest(&self) -> Option<Held> {
        self.newest
    }

    /// Takes in a throttling answer at `now` to a POST that began at `posted_at`. Returns when the hold ends.
    ///
    /// Answers to POSTs that were under way when a hold began belong to it, and do not double it: a hundred streams
    /// refused together are one refusal. Holds only grow.
    pub(crate) fn throttled(
        &mut self,
        now: Timestamp,
        posted_at: Timestamp,
        retry_after: Option<Duration>,
    ) -> Timestamp {
        let wait = match retry_after {
            Some(wait) => wait,
            None if self.precedes(posted_at) => {
                self.step = (self.step * 2).clamp(FIRST, LONGEST_WITHOUT_HEADER);
                self.step
            }
            None => Duration::ZERO,
        };
        self.extend(Held { at: now, until: now + wait })
    }

    /// Takes in an accepted answer: the next hold without a header is short again. One from before the hold says
    /// nothing.
    pub(crate) fn succeeded(&mut self, posted_at: Timestamp) {
        if self.precedes(posted_at) {
            self.step = Duration::ZERO;
        }
    }

    /// Takes over what another replica learned or an operator ordered, unless a later release undid it. Returns when the
    /// hold ends.
    pub(crate) fn extend(&mut self, held: Held) -> Timestamp {
        if self.released_at.is_none_or(|released| released <= held.at) {
            self.newest = Some(self.newest.filter(|newest| newest.at > held.at).unwrap_or(held));
            self.longest = Some(self.longest.filter(|longest| longest.until >= held.until).unwrap_or(held));
        }
        self.longest.map_or(held.at, |held| held.until)
    }

    /// An operator ended at a time whatever had been set by then. To hear of it again changes nothing.
    pub(crate) fn release(&mut self, at: Timestamp) {
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

/// Watches the answers in one lane for its VAPID key being refused: a configuration fault, a wrong clock, a rotation gone
/// wrong. Then the lane is held and an alert raised, instead of eating the base.
///
/// Anybody may register subscriptions that were made with another key, and each of them is refused, too. So refusals count
/// against the key only if the subscription is proven: something was accepted for it before.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyWatch {
    /// Acceptances, and refusals of the proven.
    proven: Window,
    /// Acceptances, and refusals of anybody.
    all: Window,
}

/// What a [`KeyWatch`] noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The key is refused: hold it.
    Refused,
    /// So it seems, but nothing was ever accepted for those that were refused: somebody should look at it.
    Doubtful,
}

impl KeyWatch {
    const ANSWERS_MIN: u32 = 20;
    const REFUSED_PERCENT: u64 = 90;

    /// Counts an answer that [judges the key](crate::classify::Outcome::judges_key). Raises an alarm if of at least 20
    /// answers within 60 s at least 90 % refuse it; counting then starts afresh.
    pub(crate) fn record(&mut self, now: Timestamp, refused: bool, proven: bool) -> Option<Alarm> {
        let refused_as_a_whole = |Counts { events, hits }| {
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

/// When a delivery that a hold or a breaker deferred until `until` falls due: spread over two seconds, so that a gateway that
/// is back is not met by everything at once. What is urgent comes at once. `randomness` lies in [0, 1).
pub(crate) fn reopens_at(until: Timestamp, urgent: bool, randomness: f64) -> Timestamp {
    if urgent { until } else { until + SPREAD.mul_f64(randomness.clamp(0.0, 1.0)) }
}

/// How long a lane of a refused key is held: 10 minutes, doubling up to an hour when it recurs within an hour of the
/// hold before. A hold that is in force stands.
pub(crate) fn of_refused_key(before: Option<Held>, now: Timestamp) -> Held {
    let length = match before {
        Some(held) if now < held.until => return held,
        Some(held) if now < held.until + KEY_LONGEST => {
            let last = (held.until - held.at).to_std().unwrap_or_default();
            (last * 2).clamp(KEY_FIRST, KEY_LONGEST)
        }
        _ => KEY_FIRST,
    };
    Held { at: now, until: now + length }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
    }

    #[test]
    fn a_header_holds_for_its_time() {
        let mut hold = Hold::default();
        assert_eq!(hold.until(at(0)), None);
        assert_eq!(hold.throttled(at(0), at(0), Some(Duration::from_secs(120))), at(120_000));
        assert_eq!(hold.until(at(119_999)), Some(at(120_000)));
        assert_eq!(hold.until(at(120_000)), None);
        // A shorter wish does not shorten it.
        assert_eq!(hold.throttled(at(1), at(0), Some(Duration::from_secs(5))), at(120_000));
        assert_eq!(hold.throttled(at(1), at(0), None), at(120_000));
    }

    #[test]
    fn without_a_header_it_doubles_from_1_to_60_seconds() {
        let mut hold = Hold::default();
        let mut now = at(0);
        let mut lengths_s = Vec::new();
        for _ in 0..8 {
            let until = hold.throttled(now, now, None);
            lengths_s.push((until - now).num_seconds());
            now = until;
        }
        assert_eq!(lengths_s, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn streams_refused_together_double_once() {
        let mut hold = Hold::default();
        for n in 0..100 {
            assert_eq!(hold.throttled(at(n), at(0), None), at(1_000));
        }
        assert_eq!(hold.throttled(at(1_100), at(1_000), None), at(3_100));
    }

    #[test]
    fn only_a_success_from_after_the_hold_makes_the_next_one_short() {
        let mut hold = Hold::default();
        hold.throttled(at(0), at(0), None);
        hold.succeeded(at(0));
        assert_eq!(hold.throttled(at(1_000), at(1_000), None), at(3_000));
        hold.succeeded(at(3_000));
        assert_eq!(hold.throttled(at(3_500), at(3_400), None), at(4_500));
    }

    #[test]
    fn a_hold_is_shared_and_can_be_released() {
        let mut hold = Hold::default();
        let held = |at_ms, until_ms| Held { at: at(at_ms), until: at(until_ms) };
        hold.extend(held(0, 5_000));
        assert_eq!(hold.extend(held(10, 4_000)), at(5_000));
        assert_eq!(hold.until(at(4_999)), Some(at(5_000)));
        hold.release(at(10));
        assert_eq!(hold.until(at(0)), None);
        hold.extend(held(9, 9_000));
        assert_eq!(hold.until(at(11)), None, "it was set before the release");
    }

    #[test]
    fn a_release_leaves_what_was_set_after_it_and_is_obeyed_once() {
        let mut hold = Hold::default();
        hold.throttled(at(0), at(0), Some(Duration::from_secs(3_600)));
        hold.throttled(at(2_000), at(0), Some(Duration::from_secs(1)));
        hold.release(at(1_000)); // heard of late
        assert_eq!(hold.until(at(2_000)), Some(at(3_000)));
        hold.throttled(at(4_000), at(4_000), Some(Duration::from_secs(10)));
        hold.release(at(1_000));
        assert_eq!(hold.until(at(4_000)), Some(at(14_000)));
    }

    #[test]
    fn a_key_is_held_when_nine_of_ten_answers_refuse_it() {
        for (answers, refused, alarm) in
            [(19, 19, false), (20, 20, true), (20, 18, true), (20, 17, false), (100, 90, true)]
        {
            let mut watch = KeyWatch::default();
            let alarmed = (0..answers).any(|n| watch.record(at(n), n >= answers - refused, true).is_some());
            assert_eq!(alarmed, alarm, "{refused} of {answers}");
        }
        let mut slow = KeyWatch::default();
        assert!(!(0..100).any(|n| slow.record(at(n * 4_000), true, true).is_some()), "20 answers in 80 s");
    }

    #[test]
    fn refusals_of_strangers_never_hold_a_key() {
        let mut watch = KeyWatch::default();
        let alarms: Vec<_> = (0..1_000).filter_map(|n| watch.record(at(n), true, false)).collect();
        assert_eq!(alarms, [Alarm::Doubtful; 50]);
        let mut watch = KeyWatch::default();
        let mut answers = (0..1_000).map(|n| (n, n % 5 != 0)); // four strangers beside each acceptance
        assert!(answers.all(|(n, refused)| watch.record(at(n), refused, false).is_none()));
    }

    #[test]
    fn strangers_neither_hide_nor_hasten_what_the_proven_tell() {
        let mut watch = KeyWatch::default();
        let alarm = (0..40).find_map(|n| Some((n, watch.record(at(n), true, n % 2 == 1)?)));
        assert_eq!(alarm, Some((19, Alarm::Doubtful)));
        let alarm = (20..40).filter_map(|n| watch.record(at(n), true, n % 2 == 1)).next_back();
        assert_eq!(alarm, Some(Alarm::Refused), "the twentieth of the proven");
    }

    #[test]
    fn one_fault_raises_one_alarm() {
        let mut watch = KeyWatch::default();
        assert_eq!((0..39).filter(|n| watch.record(at(*n), true, true).is_some()).count(), 1);
    }

    #[test]
    fn what_was_deferred_comes_back_spread_out_and_what_is_urgent_at_once() {
        let due = |urgent, randomness| (reopens_at(at(0), urgent, randomness) - at(0)).num_milliseconds();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|randomness| due(false, randomness)), [0, 500, 1_000, 2_000]);
        assert_eq!(due(true, 0.9), 0);
    }

    #[test]
    fn a_key_that_is_refused_again_and_again_is_held_for_an_hour_at_most() {
        let (mut now, mut before, mut minutes) = (at(0), None, Vec::new());
        for _ in 0..5 {
            let held = of_refused_key(before, now);
            assert_eq!(of_refused_key(Some(held), now + Duration::from_secs(1)), held, "in force");
            minutes.push((held.until - held.at).num_minutes());
            (now, before) = (held.until, Some(held));
        }
        assert_eq!(minutes, [10, 20, 40, 60, 60]);
        let later = now + Duration::from_secs(3600);
        assert_eq!(of_refused_key(before, later).until, later + KEY_FIRST);
    }
}
