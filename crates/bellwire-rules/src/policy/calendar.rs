//! Times at which a tier may be sent: quiet hours in the recipient's time zone, off-peak windows in the app's.
//!
//! Transactional deliveries never wait. Promotional and engagement deliveries wait during quiet hours. Engagement deliveries
//! also wait for an off-peak window, if the app has any. Times of day are local, so clock changes move no window. A skipped
//! time means the end of the gap. A repeated time means its first occurrence.

use chrono::{
    Datelike as _, Days, DurationRound as _, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone as _,
    Timelike as _, Weekday,
};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;

pub const WINDOWS_MAX: usize = 50;
/// Maximum rounds of the search for a time outside quiet hours and inside a window, because there may be none.
const ROUNDS_MAX: usize = 16;
/// Longest gap in the local time of any zone.
const GAP_MAX: TimeDelta = TimeDelta::days(1);

/// Time of day, written `HH:MM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(NaiveTime);

impl TryFrom<String> for TimeOfDay {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let two_digits = |part: &str| {
            (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then_some(()).and_then(|()| part.parse().ok())
        };
        text.split_once(':')
            .and_then(|(hour, minute)| NaiveTime::from_hms_opt(two_digits(hour)?, two_digits(minute)?, 0))
            .map(Self)
            .ok_or("must be a time of day from 00:00 to 23:59")
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        format!("{:02}:{:02}", time.0.hour(), time.0.minute())
    }
}

/// Hours from one time of day to another, excluded. They pass midnight if the end is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "Ends", into = "Ends")]
pub struct Hours {
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "22:00"))]
    from: TimeOfDay,
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "08:00"))]
    to: TimeOfDay,
}

/// JSON form of [`Hours`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: TimeOfDay,
    to: TimeOfDay,
}

impl TryFrom<Ends> for Hours {
    type Error = &'static str;

    fn try_from(Ends { from, to }: Ends) -> Result<Self, Self::Error> {
        if from == to { Err("`from` and `to` must differ") } else { Ok(Self { from, to }) }
    }
}

impl From<Hours> for Ends {
    fn from(Hours { from, to }: Hours) -> Self {
        Self { from, to }
    }
}

impl Hours {
    fn pass_midnight(self) -> bool {
        self.to < self.from
    }

    /// Returns the end of the hours if `local` is within them.
    fn end(self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let (date, time) = (local.date(), local.time());
        let within_evening = time >= self.from.0;
        let within_morning = time < self.to.0;
        match self.pass_midnight() {
            false => (within_evening && within_morning).then(|| date.and_time(self.to.0)),
            true if within_evening => Some(after(date, 1).and_time(self.to.0)),
            true => within_morning.then(|| date.and_time(self.to.0)),
        }
    }
}

/// Day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WeekDay {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl WeekDay {
    fn is(self, weekday: Weekday) -> bool {
        self as u32 == weekday.num_days_from_monday()
    }
}

/// Hours on some days of the week. Hours past midnight belong to the day of their beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CalendarWindow", into = "CalendarWindow")]
pub struct Window {
    days: Vec<WeekDay>,
    hours: Hours,
}

/// Times on some days of the week.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CalendarWindow {
    /// Days of the week. Empty: all days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    days: Vec<WeekDay>,
    /// Time of day at which it opens.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "10:00"))]
    from: TimeOfDay,
    /// Time of day at which it closes.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "16:00"))]
    to: TimeOfDay,
}

impl TryFrom<CalendarWindow> for Window {
    type Error = &'static str;

    fn try_from(CalendarWindow { days, from, to }: CalendarWindow) -> Result<Self, Self::Error> {
        Ok(Self { days, hours: Ends { from, to }.try_into()? })
    }
}

impl From<Window> for CalendarWindow {
    fn from(Window { days, hours: Hours { from, to } }: Window) -> Self {
        Self { days, from, to }
    }
}

impl Window {
    fn is_on(&self, date: NaiveDate) -> bool {
        self.days.is_empty() || self.days.iter().any(|day| day.is(date.weekday()))
    }

    fn is_open(&self, local: NaiveDateTime) -> bool {
        let (date, time) = (local.date(), local.time());
        let Hours { from, to } = self.hours;
        match self.hours.pass_midnight() {
            false => self.is_on(date) && from.0 <= time && time < to.0,
            true => self.is_on(date) && from.0 <= time || self.is_on(after(date, -1)) && time < to.0,
        }
    }

    /// Returns the next opening after `local`.
    fn next(&self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let opens = |days| {
            Some(after(local.date(), days))
                .filter(|date| self.is_on(*date))
                .map(|date| date.and_time(self.hours.from.0))
        };
        (0..=7).filter_map(opens).find(|opens| *opens > local)
    }
}

fn after(date: NaiveDate, days: i64) -> NaiveDate {
    let by = Days::new(days.unsigned_abs());
    let moved = if days < 0 { date.checked_sub_days(by) } else { date.checked_add_days(by) };
    moved.unwrap_or(date) // a quarter of a million years from now
}

/// Times at which an app's deliveries may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// Time zone of the app, for its windows and for recipients with an unknown zone.
    pub zone: Tz,
    /// Hours in the recipient's time zone during which only transactional messages are sent. `None`: none.
    pub quiet_hours: Option<Hours>,
    /// Windows during which engagement deliveries are sent. Empty: always.
    pub off_peak: Vec<Window>,
}

impl Default for Calendar {
    /// Returns a calendar in UTC without restrictions.
    fn default() -> Self {
        Self { zone: Tz::UTC, quiet_hours: None, off_peak: Vec::new() }
    }
}

/// Returns a zone by its IANA name, ignoring case.
pub fn zone(name: &str) -> Option<Tz> {
    name.parse().ok()
}

impl Calendar {
    /// Parses a stored calendar. Invalid values, which only manual changes can produce, count as absent.
    pub fn restore(timezone: &str, quiet_hours: Option<Value>, off_peak: Option<Value>) -> Self {
        fn parsed<T: serde::de::DeserializeOwned>(stored: Option<Value>) -> Option<T> {
            serde_json::from_value(stored?).ok()
        }
        let zone = zone(timezone).unwrap_or_default();
        Self { zone, quiet_hours: parsed(quiet_hours), off_peak: parsed(off_peak).unwrap_or_default() }
    }

    /// Whether every delivery may be sent at any time.
    pub fn is_always_open(&self) -> bool {
        self.quiet_hours.is_none() && self.off_peak.is_empty()
    }

    /// Returns the time from which a delivery of `tier` may be sent: `now`, or later. `recipient` is the IANA name of the
    /// recipient's zone, if known.
    ///
    /// If all windows are within quiet hours, the time is more than a week ahead, so the delivery expires.
    pub fn opens_at(&self, tier: Tier, recipient: Option<&str>, now: Timestamp) -> Timestamp {
        let mut at = now;
        for _ in 0..ROUNDS_MAX {
            let quiet_until = self.quiet_until(tier, recipient, at);
            let open = quiet_until.unwrap_or(at);
            let window = self.window_from(tier, open);
            if window.is_none() {
                return open;
            }
            at = window.unwrap_or(open);
        }
        at
    }

    /// Returns the start of the app's next window if all deliveries of `tier` wait for it, for any recipient. `None`: they need
    /// not wait.
    pub fn window_from(&self, tier: Tier, now: Timestamp) -> Option<Timestamp> {
        let local = now.with_timezone(&self.zone).naive_local();
        let waits = tier == Tier::Engagement
            && !self.off_peak.is_empty()
            && !self.off_peak.iter().any(|window| window.is_open(local));
        let opens = || self.off_peak.iter().filter_map(|window| window.next(local)).min();
        waits.then(opens).flatten().map(|opens| instant(self.zone, opens, now))
    }

    fn quiet_until(&self, tier: Tier, recipient: Option<&str>, now: Timestamp) -> Option<Timestamp> {
        let hours = self.quiet_hours.filter(|_| tier != Tier::Transactional)?;
        let zone = recipient.and_then(zone).unwrap_or(self.zone);
        let end = hours.end(now.with_timezone(&zone).naive_local())?;
        Some(instant(zone, end, now))
    }
}

/// Returns the first instant with the local time `local` in the zone, or the end of the gap if it is skipped.
pub fn moment(zone: Tz, local: NaiveDateTime) -> Timestamp {
    let shown = zone.from_local_datetime(&local).earliest();
    // Each gap begins and ends at a quarter of an hour.
    let quarter = || local.duration_trunc(TimeDelta::minutes(15)).unwrap_or(local);
    shown.map_or_else(|| instant(zone, quarter(), Timestamp::MIN_UTC), |moment| moment.to_utc())
}

/// Returns the first instant after `now` with a local time of at least `local`.
fn instant(zone: Tz, local: NaiveDateTime, now: Timestamp) -> Timestamp {
    let step = TimeDelta::minutes(15); // every gap is a multiple of it
    let mut skipped = TimeDelta::zero();
    while skipped <= GAP_MAX {
        let shown = zone.from_local_datetime(&(local + skipped));
        let moments = [shown.earliest(), shown.latest()];
        if let Some(moment) = moments.into_iter().flatten().map(|moment| moment.to_utc()).find(|moment| *moment > now) {
            return moment;
        }
        skipped += step;
    }
    now + step // no zone does this
}
