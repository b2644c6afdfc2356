//! Engagement of a person with displayed messages: values of constant size, for any number of messages.

use chrono::TimeDelta;

use super::clock::Timestamp;
use super::id::MessageId;

/// Maximum count of messages without a click.
const UNCLICKED_MAX: i16 = 1_000;
/// Number of last messages that are stored, because another browser of the person may display one of them later.
const RECENT_KEPT: usize = 8;

/// Time for which a former own hour is stored: longer than a campaign run at own hours takes.
const FORMER_HOURS_KEPT_FOR: TimeDelta = TimeDelta::days(7);
/// Maximum stored changes. A person with more changes may get a campaign twice, or never.
const FORMER_HOURS_MAX: usize = 16;

/// Receipt of a person's browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    /// Message of the report.
    pub message: MessageId,
    /// Whether the message was clicked. Otherwise it was displayed.
    pub is_click: bool,
    /// Time of the event.
    pub at: Timestamp,
    /// Hour of the day, 0 to 23, in the person's time zone.
    pub hour: u8,
}

/// Stored engagement of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// Time of the last click. `None`: none.
    pub clicked_at: Option<Timestamp>,
    /// Messages displayed since the last click, at most 1,000. A message in several browsers counts once.
    pub unclicked: i16,
    /// Times of the first and last display since the last click. `None`: none.
    pub unclicked_between: Option<(Timestamp, Timestamp)>,
    /// Last messages, the newest first.
    pub recent: Vec<MessageId>,
    /// Clicks by hour of the day.
    pub hours: Hours,
    /// Former own hours, the oldest first: the last 16 changes within a week.
    pub former_hours: Vec<FormerHour>,
}

/// Former own hour of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerHour {
    /// Time at which another hour replaced it.
    pub until: Timestamp,
    /// Hour of the day. `None`: too little data.
    pub hour: Option<u8>,
}

impl Habits {
    /// Engagement of a person without receipts.
    pub const NONE: Self = Self {
        clicked_at: None,
        unclicked: 0,
        unclicked_between: None,
        recent: Vec::new(),
        hours: Hours([0; 24]),
        former_hours: Vec::new(),
    };

    /// Adds a receipt. A click resets the displays before it, even if it arrives later than they do.
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

    /// Adds receipts in order, and records changes of the person's own hour.
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

    /// Returns the hour of the day with most clicks, as of a time within the last week. `None`: too few clicks.
    pub fn own_hour_at(&self, at: Timestamp) -> Option<u8> {
        let former = self.former_hours.iter().find(|former| former.until > at);
        former.map_or_else(|| self.hours.best(), |former| former.hour)
    }

    /// Returns the time between the first and the last display since the last click.
    pub fn unclicked_for(&self) -> TimeDelta {
        self.unclicked_between.map_or(TimeDelta::zero(), |(from, to)| to - from)
    }
}

/// Clicks of a person by hour of the day. The counts are halved at a limit, so old clicks fade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hours(pub [u8; 24]);

impl Hours {
    /// Minimum clicks for an own hour. Fewer may be chance.
    const ENOUGH: u32 = 5;
    /// Count at which all counts are halved.
    const MAX: u32 = 100;

    fn sum(self) -> u32 {
        self.0.iter().map(|n| u32::from(*n)).sum()
    }

    /// Adds a click in an hour of the day.
    pub fn add(&mut self, hour: u8) {
        if self.sum() >= Self::MAX {
            self.0.iter_mut().for_each(|n| *n /= 2);
        }
        if let Some(n) = self.0.get_mut(usize::from(hour)) {
            *n += 1;
        }
    }

    /// Returns the hour with most clicks in and around it. Clicks of adjacent hours count half, because people are not
    /// punctual. Of equal hours, the earliest one. `None`: too few clicks.
    pub fn best(self) -> Option<u8> {
        if self.sum() < Self::ENOUGH {
            return None;
        }
        let n = |hour: u8| u32::from(self.0[usize::from(hour % 24)]);
        let around = |hour: &u8| n(hour + 23) + 2 * n(*hour) + n(hour + 1);
        (0..24).rev().max_by_key(around)
    }
}
