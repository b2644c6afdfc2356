//! Unit tests of `src/api/messages/send_at.rs`, which includes them.

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
