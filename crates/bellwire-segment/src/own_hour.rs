//! Selects people by the hour of the day at which they click most.

use chrono::{TimeDelta, Timelike as _};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use bellwire_core::clock::Timestamp;

/// Time before the 24 hours at which own hours are fixed. Engagement stored by then is committed when the first message reads
/// it.
const SETTLED_AFTER: TimeDelta = TimeDelta::minutes(1);

/// Hours of a day.
pub const SLOTS: u8 = 24;

/// People whose own hour is one of the 24 hours after a time. People without a known own hour belong to the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnHour {
    /// Start of the 24 hours.
    pub from: Timestamp,
    /// Index of the hour, from 0.
    pub slot: u8,
    /// Time zone of people without a known one.
    pub home: Tz,
}

impl OwnHour {
    /// Returns the time as of which own hours count for all 24 hours, so that later clicks move no person to another hour.
    pub fn as_of(&self) -> Timestamp {
        self.from - SETTLED_AFTER
    }

    /// Whether it contains a person with this own hour and time zone.
    pub fn holds(&self, best: Option<u8>, timezone: Option<&str>) -> bool {
        let zone = timezone.and_then(|name| name.parse().ok()).unwrap_or(self.home);
        best.and_then(|hour| slot_of(self.from, hour, zone)).unwrap_or(0) == self.slot
    }
}

/// Returns the hour after `from` that begins at this hour of the day in a zone. `None`: that local time is skipped.
fn slot_of(from: Timestamp, hour: u8, zone: Tz) -> Option<u8> {
    let shown = |slot: &u8| (from + TimeDelta::hours((*slot).into())).with_timezone(&zone).hour();
    (0..SLOTS).find(|slot| shown(slot) == u32::from(hour))
}
