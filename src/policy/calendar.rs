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

use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;

/// Windows that an app may set.
pub(crate) const WINDOWS_MAX: usize = 50;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Ends", into = "Ends")]
pub(crate) struct Hours {
    #[schema(value_type = String, example = "22:00")]
    from: TimeOfDay,
    #[schema(value_type = String, example = "08:00")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Day {
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
pub(crate) struct Window {
    days: Vec<Day>,
    hours: Hours,
}

/// How a [`Window`] is written.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenWindow {
    /// On which days; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    days: Vec<Day>,
    /// When it opens.
    #[schema(value_type = String, example = "10:00")]
    from: TimeOfDay,
    /// When it closes.
    #[schema(value_type = String, example = "16:00")]
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
pub(crate) struct Calendar {
    /// The app's zone: for its windows, and for recipients whose own is unknown.
    pub zone: Tz,
    /// When promotional and engagement deliveries wait.
    pub quiet_hours: Option<Hours>,
    /// When engagement deliveries may be sent. None: always.
    pub off_peak: Vec<Window>,
}

/// The zone of an IANA name, in any case.
pub(crate) fn zone(name: &str) -> Option<Tz> {
    name.parse().ok()
}

impl Calendar {
    /// A calendar as it is stored. What does not parse, which only a hand can have written, counts as not set.
    pub(crate) fn restore(timezone: &str, quiet_hours: Option<Value>, off_peak: Option<Value>) -> Self {
        fn parsed<T: serde::de::DeserializeOwned>(stored: Option<Value>) -> Option<T> {
            serde_json::from_value(stored?).ok()
        }
        let zone = zone(timezone).unwrap_or_default();
        Self { zone, quiet_hours: parsed(quiet_hours), off_peak: parsed(off_peak).unwrap_or_default() }
    }

    /// Whether every delivery may be sent at any time.
    pub(crate) fn is_always_open(&self) -> bool {
        self.quiet_hours.is_none() && self.off_peak.is_empty()
    }

    /// When a delivery of `tier` may be sent: `now`, or later. `recipient` names its zone, which may be unknown to us.
    ///
    /// Windows that lie within quiet hours for good never let it through: then the time is more than a week ahead, and it
    /// expires.
    pub(crate) fn opens_at(&self, tier: Tier, recipient: Option<&str>, now: Timestamp) -> Timestamp {
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
    pub(crate) fn window_from(&self, tier: Tier, now: Timestamp) -> Option<Timestamp> {
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
pub(crate) fn moment(zone: Tz, local: NaiveDateTime) -> Timestamp {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hours(from: &str, to: &str) -> Hours {
        serde_json::from_value(serde_json::json!({"from": from, "to": to})).unwrap()
    }

    fn calendar(quiet: Option<Hours>, off_peak: Vec<Window>) -> Calendar {
        Calendar { zone: Tz::Europe__Berlin, quiet_hours: quiet, off_peak }
    }

    fn nights() -> Calendar {
        calendar(Some(hours("22:00", "08:00")), Vec::new())
    }

    #[test]
    fn quiet_hours_hold_promotional_and_engagement_and_never_transactional() {
        let night = at("2026-11-20T22:30:00Z"); // 23:30 in Berlin
        for (tier, opens) in [
            (Tier::Transactional, night),
            (Tier::Promotional, at("2026-11-21T07:00:00Z")),
            (Tier::Engagement, at("2026-11-21T07:00:00Z")),
        ] {
            assert_eq!(nights().opens_at(tier, None, night), opens, "{tier:?}");
        }
        let day = at("2026-11-20T07:00:00Z");
        assert_eq!(nights().opens_at(Tier::Promotional, None, day), day, "the end is not quiet any more");
        let last = at("2026-11-20T06:59:59Z");
        assert_eq!(nights().opens_at(Tier::Promotional, None, last), day);
    }

    #[test]
    fn the_recipients_zone_counts_and_the_apps_where_it_is_unknown() {
        let night = at("2026-11-20T22:30:00Z");
        let opens = |zone| nights().opens_at(Tier::Promotional, zone, night);
        assert_eq!(opens(Some("America/New_York")), night);
        assert_eq!(opens(Some("Asia/Tokyo")), at("2026-11-20T23:00:00Z"));
        assert_eq!(opens(Some("Mars/Olympus_Mons")), opens(None));
    }

    #[test]
    fn hours_within_a_day_end_that_day() {
        let siesta = calendar(Some(hours("13:00", "15:30")), Vec::new());
        assert_eq!(siesta.opens_at(Tier::Promotional, None, at("2026-07-01T11:00:00Z")), at("2026-07-01T13:30:00Z"));
        let before = at("2026-07-01T10:59:00Z");
        assert_eq!(siesta.opens_at(Tier::Promotional, None, before), before);
    }

    #[test]
    fn engagement_waits_for_a_window_of_the_apps_calendar() {
        let window = Window { days: vec![Day::Tue, Day::Sat], hours: hours("23:00", "01:00") };
        let off_peak = calendar(None, vec![window]);
        let opens = |now| off_peak.opens_at(Tier::Engagement, Some("Asia/Tokyo"), at(now));
        assert_eq!(opens("2026-11-20T12:00:00Z"), at("2026-11-21T22:00:00Z"), "Friday noon to Saturday night");
        assert_eq!(opens("2026-11-21T22:00:00Z"), at("2026-11-21T22:00:00Z"));
        assert_eq!(opens("2026-11-21T23:59:59Z"), at("2026-11-21T23:59:59Z"), "Sunday, but Saturday's window");
        assert_eq!(opens("2026-11-22T00:00:00Z"), at("2026-11-24T22:00:00Z"));
        let noon = at("2026-11-20T12:00:00Z");
        assert_eq!(off_peak.opens_at(Tier::Promotional, None, noon), noon);
    }

    #[test]
    fn a_window_that_opens_in_quiet_hours_is_used_after_them() {
        let early = Window { days: Vec::new(), hours: hours("06:00", "10:00") };
        let both = calendar(Some(hours("22:00", "08:00")), vec![early]);
        assert_eq!(both.opens_at(Tier::Engagement, None, at("2026-11-20T12:00:00Z")), at("2026-11-21T07:00:00Z"));
    }

    #[test]
    fn a_window_within_quiet_hours_never_opens() {
        let night = Window { days: Vec::new(), hours: hours("01:00", "02:00") };
        let never = calendar(Some(hours("22:00", "08:00")), vec![night]);
        let now = at("2026-11-20T12:00:00Z");
        assert!(never.opens_at(Tier::Engagement, None, now) > now + TimeDelta::days(7));
    }

    #[test]
    fn summer_time_moves_no_window() {
        // On 2027-03-28 clocks in Berlin go from 02:00 to 03:00; on 2026-10-25 from 03:00 to 02:00.
        let gap = calendar(Some(hours("22:00", "02:30")), Vec::new());
        assert_eq!(gap.opens_at(Tier::Promotional, None, at("2027-03-28T00:30:00Z")), at("2027-03-28T01:00:00Z"));
        let twice = |now| gap.opens_at(Tier::Promotional, None, at(now));
        assert_eq!(twice("2026-10-24T23:00:00Z"), at("2026-10-25T00:30:00Z"));
        assert_eq!(twice("2026-10-25T01:10:00Z"), at("2026-10-25T01:30:00Z"), "02:10 comes twice, and is quiet twice");
        let nine = nights();
        assert_eq!(nine.opens_at(Tier::Promotional, None, at("2027-03-27T23:00:00Z")), at("2027-03-28T06:00:00Z"));
    }

    #[test]
    fn what_opens_is_open_and_never_in_the_past() {
        let weekend = Window { days: vec![Day::Sat, Day::Sun], hours: hours("09:00", "11:00") };
        let workdays = Window { days: vec![Day::Mon, Day::Wed], hours: hours("20:00", "04:00") };
        let both = calendar(Some(hours("23:30", "06:45")), vec![weekend, workdays]);
        for zone in [None, Some("Pacific/Apia"), Some("America/St_Johns"), Some("Australia/Lord_Howe")] {
            for quarter in 0..4 * 24 * 21 {
                let now = at("2026-10-20T00:07:00Z") + TimeDelta::minutes(15) * quarter;
                for tier in Tier::ALL {
                    let opens = both.opens_at(tier, zone, now);
                    assert!(opens >= now && opens <= now + TimeDelta::days(8), "{zone:?} {now} {opens}");
                    assert_eq!(both.opens_at(tier, zone, opens), opens, "{zone:?} {tier:?} {now}");
                }
            }
        }
    }

    #[test]
    fn times_are_read_strictly() {
        let read = |from: &str, to: &str| serde_json::from_value::<Hours>(serde_json::json!({"from": from, "to": to}));
        assert!(read("00:00", "23:59").is_ok());
        for (from, to) in [
            ("24:00", "01:00"),
            ("1:00", "02:00"),
            ("01:00:00", "02:00"),
            ("+1:00", "02:00"),
            ("08:00", "08:00"),
            ("", "01:00"),
        ] {
            assert!(read(from, to).is_err(), "{from} {to}");
        }
        let json = serde_json::to_value(hours("07:05", "23:00")).unwrap();
        assert_eq!(json, serde_json::json!({"from": "07:05", "to": "23:00"}));
    }
}
