//! Engagement of a person with displayed messages: values of constant size, for any number of messages.

use chrono::TimeDelta;

use super::clock::Timestamp;
use super::id::MessageId;

/// Maximum count of messages without a click.
const UNCLICKED_MAX: i16 = 1_000;
/// Number of last messages that are stored: another browser of the person may display one of them later.
const RECENT_KEPT: usize = 8;

/// Time for which a person's former own hour is stored: longer than a campaign takes for the hours of a day.
const FORMER_HOURS_KEPT_FOR: TimeDelta = TimeDelta::days(7);
/// Number of stored changes. A person with more changes may get a campaign twice, or never.
const FORMER_HOURS_MAX: usize = 16;

/// Something that a browser of a person reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    /// Message of the report.
    pub message: MessageId,
    /// Whether it was clicked; else it was displayed.
    pub is_click: bool,
    /// Time of the report.
    pub at: Timestamp,
    /// Hour of the day, 0 to 23, in the person's zone.
    pub hour: u8,
}

/// Stored engagement of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// Time of the last click. `None`: never.
    pub clicked_at: Option<Timestamp>,
    /// Messages that were displayed to them since, at most 1,000. One counts once, however many of their browsers display it.
    pub unclicked: i16,
    /// Times of the first and the last display among these. `None` without any.
    pub unclicked_between: Option<(Timestamp, Timestamp)>,
    /// The last messages, the newest first.
    pub recent: Vec<MessageId>,
    /// Hours of the day of the clicks.
    pub hours: Hours,
    /// Former own hours, the oldest first: the last 16 changes within a week.
    pub former_hours: Vec<FormerHour>,
}

/// Former own hour of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerHour {
    /// Time at which another hour replaced it.
    pub until: Timestamp,
    /// The hour of the day; none: too little was known.
    pub hour: Option<u8>,
}

impl Habits {
    /// Engagement of a person without reports.
    pub const NONE: Self = Self {
        clicked_at: None,
        unclicked: 0,
        unclicked_between: None,
        recent: Vec::new(),
        hours: Hours([0; 24]),
        former_hours: Vec::new(),
    };

    /// Adds what a browser reported. A click ends all that was displayed before it, also if it becomes known later.
    pub fn add(&mut self, reaction: &Reaction) {
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

    /// Adds reports of browsers, in order, and records changes of the person's send hour.
    pub fn add_all(&mut self, reactions: &[Reaction], now: Timestamp) {
        let before = self.hours.best();
        reactions.iter().for_each(|reaction| self.add(reaction));
        self.former_hours.retain(|former| now - former.until < FORMER_HOURS_KEPT_FOR);
        if self.hours.best() != before {
            self.former_hours.push(FormerHour { until: now, hour: before });
            let too_many = self.former_hours.len().saturating_sub(FORMER_HOURS_MAX);
            self.former_hours.drain(..too_many);
        }
    }

    /// Returns the hour of the day with most clicks, as it was known at a time within the last week.
    pub fn own_hour_at(&self, at: Timestamp) -> Option<u8> {
        let former = self.former_hours.iter().find(|former| former.until > at);
        former.map_or_else(|| self.hours.best(), |former| former.hour)
    }

    /// For how long messages have been displayed to them without a click: from the first to the last of these.
    pub fn unclicked_for(&self) -> TimeDelta {
        self.unclicked_between.map_or(TimeDelta::zero(), |(from, to)| to - from)
    }
}

/// Clicks of a person by hour of the day. Old clicks fade as new ones arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hours(pub [u8; 24]);

impl Hours {
    /// Minimum clicks for an own hour: one or two may be chance.
    const ENOUGH: u32 = 5;
    /// Count at which all counts are halved.
    const MAX: u32 = 100;

    fn sum(self) -> u32 {
        self.0.iter().map(|n| u32::from(*n)).sum()
    }

    /// Counts a click in an hour of the day.
    pub fn add(&mut self, hour: u8) {
        if self.sum() >= Self::MAX {
            self.0.iter_mut().for_each(|n| *n /= 2);
        }
        if let Some(n) = self.0.get_mut(usize::from(hour)) {
            *n += 1;
        }
    }

    /// Returns the hour with most clicks in and around it. Clicks of the adjacent hours count half, because people are not
    /// punctual. Of several hours, the earliest. `None` with too few clicks.
    pub fn best(self) -> Option<u8> {
        if self.sum() < Self::ENOUGH {
            return None;
        }
        let n = |hour: u8| u32::from(self.0[usize::from(hour % 24)]);
        let around = |hour: &u8| n(hour + 23) + 2 * n(*hour) + n(hour + 1);
        (0..24).rev().max_by_key(around)
    }
}
