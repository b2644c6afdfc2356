//! What a person does with the messages they are shown: figures that do not grow, whatever is added to them.

use chrono::TimeDelta;

use super::clock::Timestamp;
use super::id::MessageId;

/// So many messages without a click are counted.
const UNCLICKED_MAX: i16 = 1_000;
/// So many of the last messages are remembered: another browser of the same person may display one of them later.
const RECENT_KEPT: usize = 8;

/// For so long it is remembered what somebody's own hour was before: longer than a campaign takes for the hours of a day.
const FORMER_HOURS_KEPT_FOR: TimeDelta = TimeDelta::days(7);
/// So many changes of it are remembered. Who goes to and fro more often may get a campaign twice, or never.
const FORMER_HOURS_MAX: usize = 16;

/// Something that a browser of a person reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// To which message.
    pub message: MessageId,
    /// Whether it was clicked; else it was displayed.
    pub is_click: bool,
    /// When it was reported.
    pub at: Timestamp,
    /// Which hour of the day, 0 to 23, it was there.
    pub hour: u8,
}

/// What is known of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Habits {
    /// When they clicked last. None: never.
    pub clicked_at: Option<Timestamp>,
    /// Messages that were displayed to them since, at most 1,000. One counts once, however many of their browsers display it.
    pub unclicked: i16,
    /// When the first of these was displayed, and the last. None: there are none.
    pub unclicked_between: Option<(Timestamp, Timestamp)>,
    /// The last messages, the newest first.
    pub recent: Vec<MessageId>,
    /// When they click.
    pub hours: Hours,
    /// What their own hour was before it changed, the oldest first: the last 16 changes within a week.
    pub former_hours: Vec<FormerHour>,
}

/// What somebody's own hour was for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormerHour {
    /// When it became known that it is another one.
    pub until: Timestamp,
    /// The hour of the day; none: too little was known.
    pub hour: Option<u8>,
}

impl Habits {
    /// Those of whom nothing is known.
    pub(crate) const NONE: Self = Self {
        clicked_at: None,
        unclicked: 0,
        unclicked_between: None,
        recent: Vec::new(),
        hours: Hours([0; 24]),
        former_hours: Vec::new(),
    };

    /// Adds what a browser reported. A click ends all that was displayed before it, also if it becomes known later.
    pub(crate) fn add(&mut self, reaction: &Reaction) {
        let is_new = !self.recent.contains(&reaction.message);
        if is_new {
            self.recent.insert(0, reaction.message);
            self.recent.truncate(RECENT_KEPT);
        }
        if reaction.is_click {
            self.clicked_at = self.clicked_at.max(Some(reaction.at));
            (self.unclicked, self.unclicked_between) = (0, None);
            self.hours.add(reaction.hour);
        } else if is_new && self.clicked_at.is_none_or(|clicked_at| reaction.at > clicked_at) {
            self.unclicked = (self.unclicked + 1).min(UNCLICKED_MAX);
            let (from, to) = self.unclicked_between.unwrap_or((reaction.at, reaction.at));
            self.unclicked_between = Some((from.min(reaction.at), to.max(reaction.at)));
        }
    }

    /// Adds what browsers reported, in order, and remembers when that changes their own hour.
    pub(crate) fn add_all(&mut self, reactions: &[Reaction], now: Timestamp) {
        let before = self.hours.best();
        reactions.iter().for_each(|reaction| self.add(reaction));
        self.former_hours.retain(|former| now - former.until < FORMER_HOURS_KEPT_FOR);
        if self.hours.best() != before {
            self.former_hours.push(FormerHour { until: now, hour: before });
            let too_many = self.former_hours.len().saturating_sub(FORMER_HOURS_MAX);
            self.former_hours.drain(..too_many);
        }
    }

    /// At which hour of the day they click most, as it was known at a time within the last week.
    pub(crate) fn own_hour_at(&self, at: Timestamp) -> Option<u8> {
        let former = self.former_hours.iter().find(|former| former.until > at);
        former.map_or_else(|| self.hours.best(), |former| former.hour)
    }

    /// For how long messages have been displayed to them without a click: from the first to the last of these.
    pub(crate) fn unclicked_for(&self) -> TimeDelta {
        self.unclicked_between.map_or(TimeDelta::zero(), |(from, to)| to - from)
    }
}

/// At which hours of the day somebody clicks. Old clicks fade as new ones come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hours(pub [u8; 24]);

impl Hours {
    /// Clicks that say something of the hour: one or two may be chance.
    const ENOUGH: u32 = 5;
    /// At so many all are halved.
    const MAX: u32 = 100;

    fn sum(self) -> u32 {
        self.0.iter().map(|n| u32::from(*n)).sum()
    }

    fn add(&mut self, hour: u8) {
        if self.sum() >= Self::MAX {
            self.0.iter_mut().for_each(|n| *n /= 2);
        }
        if let Some(n) = self.0.get_mut(usize::from(hour)) {
            *n += 1;
        }
    }

    /// The hour in and around which there are the most clicks: those of the hours before and after count half, since nobody keeps
    /// to the minute. Of several the earliest. None: too few are known.
    pub(crate) fn best(self) -> Option<u8> {
        if self.sum() < Self::ENOUGH {
            return None;
        }
        let n = |hour: u8| u32::from(self.0[usize::from(hour % 24)]);
        let around = |hour: &u8| n(hour + 23) + 2 * n(*hour) + n(hour + 1);
        (0..24).rev().max_by_key(around)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(day: i64) -> Timestamp {
        "2027-01-15T08:00:00Z".parse::<Timestamp>().unwrap() + TimeDelta::days(day)
    }

    fn displayed(message: u128, day: i64) -> Reaction {
        Reaction { message: MessageId(Uuid::from_u128(message)), is_click: false, at: at(day), hour: 8 }
    }

    fn clicked(message: u128, day: i64) -> Reaction {
        Reaction { is_click: true, ..displayed(message, day) }
    }

    fn after(reactions: &[Reaction]) -> Habits {
        let mut habits = Habits::default();
        reactions.iter().for_each(|reaction| habits.add(reaction));
        habits
    }

    #[test]
    fn what_was_displayed_since_the_last_click_counts_each_message_once() {
        for (reactions, unclicked, days) in [
            (&[][..], 0, 0),
            (&[displayed(1, 0), displayed(2, 1), displayed(3, 5)], 3, 5),
            (&[displayed(1, 0), displayed(1, 2), displayed(2, 3), displayed(1, 4)], 2, 3),
            (&[displayed(1, 0), displayed(2, 1), clicked(2, 1)], 0, 0),
            (&[displayed(1, 0), clicked(1, 1), displayed(2, 2)], 1, 0),
            (&[clicked(1, 1), displayed(1, 3)], 0, 0),
            (&[clicked(1, 5), displayed(2, 5), displayed(3, 4)], 0, 0),
            (&[displayed(2, 4), displayed(1, 2)], 2, 2),
            (&[displayed(1, 4), clicked(2, 3)], 0, 0),
        ] {
            let habits = after(reactions);
            assert_eq!((habits.unclicked, habits.unclicked_for().num_days()), (unclicked, days), "{reactions:?}");
            assert_eq!(habits.unclicked == 0, habits.unclicked_between.is_none());
        }
        assert_eq!(after(&[clicked(1, 5), clicked(2, 3)]).clicked_at, Some(at(5)));
    }

    #[test]
    fn whatever_comes_what_is_known_stays_small() {
        let many: Vec<Reaction> =
            (0..3_000).map(|n| displayed(n, 0)).chain((0..3_000).map(|n| clicked(n, 1))).collect();
        let displayed = after(&many[..3_000]);
        assert_eq!((displayed.unclicked, displayed.recent.len()), (UNCLICKED_MAX, RECENT_KEPT));
        let clicked = after(&many);
        assert_eq!(clicked.recent.len(), RECENT_KEPT);
        assert!(clicked.hours.sum() <= Hours::MAX, "{:?}", clicked.hours);
    }

    #[test]
    fn the_own_hour_of_a_time_stays_whatever_is_clicked_later() {
        let click = |hour, day| Reaction { hour, ..clicked(1, day) };
        let mut habits = Habits::default();
        assert_eq!(habits.own_hour_at(at(0)), None);
        habits.add_all(&[click(9, 0); 5], at(1));
        habits.add_all(&[click(9, 1)], at(2));
        assert_eq!(habits.former_hours.len(), 1, "what changes nothing is not remembered");
        habits.add_all(&[click(20, 1); 9], at(3));
        let known = |habits: &Habits| [0, 1, 2, 3, 9].map(|day| habits.own_hour_at(at(day)));
        assert_eq!(known(&habits), [None, Some(9), Some(9), Some(20), Some(20)]);
        habits.add_all(&[click(9, 5); 30], at(5));
        assert_eq!(known(&habits), [None, Some(9), Some(9), Some(20), Some(9)]);
        habits.add_all(&[], at(11));
        assert_eq!(habits.former_hours, [FormerHour { until: at(5), hour: Some(20) }], "of a week");
        let (mut from, mut to) = (9, 20);
        for _ in 0..40 {
            habits.add_all(&[click(to, 11); 100], at(11));
            std::mem::swap(&mut from, &mut to);
        }
        assert_eq!(habits.former_hours.len(), FORMER_HOURS_MAX);
    }

    #[test]
    fn the_best_hour_is_the_one_around_which_the_most_clicks_are_once_there_are_enough() {
        for (clicks, best) in [
            (&[][..], None),
            (&[(9, 4)], None),
            (&[(9, 5)], Some(9)),
            (&[(9, 3), (17, 2), (18, 2), (19, 2)], Some(18)),
            (&[(23, 3), (0, 4), (12, 4)], Some(0)),
            (&[(7, 3), (20, 3)], Some(7)),
        ] {
            let mut hours = Hours::default();
            clicks.iter().for_each(|(hour, n)| (0..*n).for_each(|_| hours.add(*hour)));
            assert_eq!(hours.best(), best, "{clicks:?}");
        }
        let mut hours = Hours::default();
        (0..200).for_each(|_| hours.add(9));
        (0..100).for_each(|_| hours.add(20));
        assert_eq!(hours.best(), Some(20), "old habits fade");
    }
}
