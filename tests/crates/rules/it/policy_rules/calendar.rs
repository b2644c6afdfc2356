//! Quiet hours and off-peak windows.

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_rules::policy::calendar::{Calendar, Hours, Window};
use chrono::TimeDelta;
use chrono_tz::Tz;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hours(from: &str, to: &str) -> Hours {
    serde_json::from_value(serde_json::json!({"from": from, "to": to})).unwrap()
}

fn window(days: &[&str], from: &str, to: &str) -> Window {
    serde_json::from_value(serde_json::json!({"days": days, "from": from, "to": to})).unwrap()
}

fn calendar(quiet: Option<Hours>, off_peak: Vec<Window>) -> Calendar {
    Calendar { zone: Tz::Europe__Berlin, quiet_hours: quiet, off_peak }
}

fn nights() -> Calendar {
    calendar(Some(hours("22:00", "08:00")), Vec::new())
}

#[test]
fn quiet_hours_never_hold_transactional_deliveries() {
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
fn unknown_zone_falls_back_to_the_app() {
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
fn engagement_waits_for_the_calendar_window() {
    let window = window(&["tue", "sat"], "23:00", "01:00");
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
fn window_opening_in_quiet_hours_starts_after() {
    let early = window(&[], "06:00", "10:00");
    let both = calendar(Some(hours("22:00", "08:00")), vec![early]);
    assert_eq!(both.opens_at(Tier::Engagement, None, at("2026-11-20T12:00:00Z")), at("2026-11-21T07:00:00Z"));
}

#[test]
fn a_window_within_quiet_hours_never_opens() {
    let night = window(&[], "01:00", "02:00");
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
fn open_time_is_open_and_not_past() {
    let weekend = window(&["sat", "sun"], "09:00", "11:00");
    let workdays = window(&["mon", "wed"], "20:00", "04:00");
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
