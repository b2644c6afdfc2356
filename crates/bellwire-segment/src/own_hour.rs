//! People by the hour of the day at which they click most.

use chrono::{TimeDelta, Timelike as _};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use bellwire_core::clock::Timestamp;

/// Time before the 24 hours at which people's own hours are fixed. Habits that were folded by then are long committed when the
/// first message reads them.
const SETTLED_AFTER: TimeDelta = TimeDelta::minutes(1);

/// Hours of a day.
pub const SLOTS: u8 = 24;

/// Those whose own hour falls into one of the 24 hours that follow a time. Whose own hour is not known belongs to the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnHour {
    /// Start of the 24 hours.
    pub from: Timestamp,
    /// Index of the hour, from 0.
    pub slot: u8,
    /// The zone of those who tell none.
    pub home: Tz,
}

impl OwnHour {
    /// Time whose own hours apply to all 24 hours alike, so that later clicks move no person to another hour.
    pub fn as_of(&self) -> Timestamp {
        self.from - SETTLED_AFTER
    }

    /// Whether it contains a person with this own hour and time zone.
    pub fn holds(&self, best: Option<u8>, timezone: Option<&str>) -> bool {
        let zone = timezone.and_then(|name| name.parse().ok()).unwrap_or(self.home);
        best.and_then(|hour| slot_of(self.from, hour, zone)).unwrap_or(0) == self.slot
    }
}

/// The hour after `from` at whose beginning clocks in a zone show that hour of the day. None: they skip it that day.
fn slot_of(from: Timestamp, hour: u8, zone: Tz) -> Option<u8> {
    let shown = |slot: &u8| (from + TimeDelta::hours((*slot).into())).with_timezone(&zone).hour();
    (0..SLOTS).find(|slot| shown(slot) == u32::from(hour))
}
