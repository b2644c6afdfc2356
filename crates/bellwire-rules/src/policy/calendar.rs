//! When a tier may send: quiet hours in the recipient's zone, off-peak windows in the app's.
//!
//! Transactional deliveries never wait. Promotional and engagement ones respect quiet hours; engagement ones also wait
//! for an off-peak window, if the app has set any. Times of day are local ones, so that a change to summer time moves no
//! window; a time that such a change skips is taken as the first moment after it, one that comes twice as the first.

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
/// Quiet hours and windows are reconciled so many times before giving up: they may exclude each other for good.
const ROUNDS_MAX: usize = 16;
/// The longest gap that a zone has ever cut out of a day.
const GAP_MAX: TimeDelta = TimeDelta::days(1);

/// A time of day, written `HH:MM`.
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

/// From one time of day until, not including, another: past midnight if that is the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "Ends", into = "Ends")]
pub struct Hours {
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "22:00"))]
    from: TimeOfDay,
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "08:00"))]
    to: TimeOfDay,
}

/// How [`Hours`] are written.
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

    /// When they end, if `local` lies within them.
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

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Day {
    fn is(self, weekday: Weekday) -> bool {
        self as u32 == weekday.num_days_from_monday()
    }
}

/// Hours on some days of the week. What passes midnight belongs to the day on which it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenWindow", into = "WrittenWindow")]
pub struct Window {
    days: Vec<Day>,
    hours: Hours,
}

/// How a [`Window`] is written.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WrittenWindow {
    /// On which days; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    days: Vec<Day>,
    /// When it opens.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "10:00"))]
    from: TimeOfDay,
    /// When it closes.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "16:00"))]
    to: TimeOfDay,
}

impl TryFrom<WrittenWindow> for Window {
    type Error = &'static str;

    fn try_from(WrittenWindow { days, from, to }: WrittenWindow) -> Result<Self, Self::Error> {
        Ok(Self { days, hours: Ends { from, to }.try_into()? })
    }
}

impl From<Window> for WrittenWindow {
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

    /// When it opens next after `local`.
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

/// When an app's deliveries may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// The app's zone: for its windows, and for recipients whose own is unknown.
    pub zone: Tz,
    /// Hours in which only transactional messages are sent, by the recipient's clock.
    pub quiet_hours: Option<Hours>,
    /// When engagement deliveries may be sent. None: always.
    pub off_peak: Vec<Window>,
}

/// The zone of an IANA name, in any case.
pub fn zone(name: &str) -> Option<Tz> {
    name.parse().ok()
}

impl Calendar {
    /// A calendar as it is stored. What does not parse, which only a hand can have written, counts as not set.
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

    /// When a delivery of `tier` may be sent: `now`, or later. `recipient` names its zone, which may be unknown to us.
    ///
    /// Windows that lie within quiet hours for good never let it through: then the time is more than a week ahead, and it
    /// expires.
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

    /// When all deliveries of `tier` must wait for a window of the app's, whoever they are for: until when.
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

/// The first moment at which clocks in the zone show `local`, or, where they skip it, the first that they show after the gap.
pub fn moment(zone: Tz, local: NaiveDateTime) -> Timestamp {
    let shown = zone.from_local_datetime(&local).earliest();
    // Every gap begins and ends at a quarter of an hour.
    let quarter = || local.duration_trunc(TimeDelta::minutes(15)).unwrap_or(local);
    shown.map_or_else(|| instant(zone, quarter(), Timestamp::MIN_UTC), |moment| moment.to_utc())
}

/// The first moment after `now` at which clocks in the zone show at least `local`.
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
