//! Scheduled times of messages.

use chrono::{NaiveDateTime, TimeDelta};

use crate::api::http::problem::Faults;
use bellwire_core::clock::Timestamp;
use bellwire_core::request_time;
use bellwire_rules::policy::calendar;

const AHEAD_MAX: TimeDelta = TimeDelta::days(90);
/// Times in the past by at most this are accepted as now: clocks differ, and requests are retried. Earlier times are mistakes.
pub(in crate::api) const LATE_MAX: TimeDelta = TimeDelta::minutes(5);

const SEND_AT: &str = "/send_at";
pub(in crate::api) const TIMEZONE: &str = "/timezone";

/// Reads `send_at` and `timezone`. None: it goes out at once, or something is wrong with them and was noted.
pub(in crate::api) fn read(
    send_at: Option<&str>,
    timezone: Option<&str>,
    now: Timestamp,
    faults: &mut Faults,
) -> Option<Timestamp> {
    let Some(text) = send_at else {
        faults.require(timezone.is_none(), TIMEZONE, "needs a `send_at` without an offset");
        return None;
    };
    match instant(text, timezone) {
        Ok(at) if at > now + AHEAD_MAX => faults.refuse(SEND_AT, "must lie at most 90 days ahead"),
        Ok(at) if at < now - LATE_MAX => faults.refuse(SEND_AT, "lies in the past"),
        Ok(at) => return (at > now).then_some(at),
        Err((pointer, detail)) => faults.refuse(pointer, detail),
    }
    None
}

/// Returns the moment of a time with an offset, or of a local time in a zone: the first one if clocks repeat it, and the end of
/// the gap if they skip it.
pub(in crate::api) fn instant(text: &str, timezone: Option<&str>) -> Result<Timestamp, (&'static str, &'static str)> {
    match (request_time::parse(text), timezone) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err((TIMEZONE, "must be left out where `send_at` has an offset")),
        (None, zone) => {
            let local = local(text).ok_or((SEND_AT, "must be a time such as 2026-12-01T09:00:00Z"))?;
            let zone = zone.ok_or((SEND_AT, "must have an offset, such as `Z`, or come with `timezone`"))?;
            let zone = calendar::zone(zone).ok_or((TIMEZONE, "must be an IANA time zone such as Europe/Vienna"))?;
            Ok(calendar::moment(zone, local))
        }
    }
}

/// A date and a time of day, the seconds of which may be left out.
pub(in crate::api) fn local(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"].iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn time_is_absolute_or_local_and_unique() {
        for (send_at, timezone, instant) in [
            ("2026-12-01T09:00:00Z", None, "2026-12-01T09:00:00Z"),
            ("2026-12-01T09:00:00+05:30", None, "2026-12-01T03:30:00Z"),
            ("2026-12-01T09:00:00", Some("Asia/Kolkata"), "2026-12-01T03:30:00Z"),
            ("2026-12-01T09:00", Some("Europe/Vienna"), "2026-12-01T08:00:00Z"),
            ("2026-12-01T09:00", Some("Asia/Kathmandu"), "2026-12-01T03:15:00Z"),
        ] {
            let mut faults = Faults::default();
            let read = read(Some(send_at), timezone, now(), &mut faults);
            assert_eq!(read, Some(instant.parse().unwrap()), "{send_at} {timezone:?}: {faults:?}");
        }
        for (local, zone, moment) in [
            ("2027-03-28T02:37", "Europe/Vienna", "2027-03-28T01:00:00Z"), // clocks go from 02:00 to 03:00
            ("2026-10-25T02:30", "Europe/Vienna", "2026-10-25T00:30:00Z"), // clocks show it twice
            ("2027-10-03T02:10", "Australia/Lord_Howe", "2027-10-02T15:30:00Z"), // half an hour
        ] {
            let instant = super::instant(local, Some(zone)).unwrap();
            assert_eq!(instant, moment.parse::<Timestamp>().unwrap(), "{local} {zone}");
        }
    }

    #[test]
    fn wrong_times_are_refused_recent_past_is_now() {
        for (send_at, timezone, pointer) in [
            (Some("2026-12-01T09:00:00"), None, SEND_AT),
            (Some("tomorrow"), Some("Europe/Vienna"), SEND_AT),
            (Some("2026-12-01T09:00:00"), Some("Mars/Olympus"), TIMEZONE),
            (Some("2026-12-01T09:00:00Z"), Some("Europe/Vienna"), TIMEZONE),
            (None, Some("Europe/Vienna"), TIMEZONE),
            (Some("2027-02-18T12:00:01Z"), None, SEND_AT),
            (Some("2026-11-20T11:54:59Z"), None, SEND_AT),
        ] {
            let mut faults = Faults::default();
            assert_eq!(read(send_at, timezone, now(), &mut faults), None);
            let problem = faults.finish().unwrap_err();
            assert_eq!(problem.errors[0].pointer.as_deref(), Some(pointer), "{send_at:?} {timezone:?}");
        }
        let mut faults = Faults::default();
        assert_eq!(read(Some("2026-11-20T11:55:00Z"), None, now(), &mut faults), None);
        assert_eq!(read(Some("2026-11-20T12:00:00Z"), None, now(), &mut faults), None);
        assert!(faults.finish().is_ok());
    }
}
