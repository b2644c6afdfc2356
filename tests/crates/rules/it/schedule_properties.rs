//! Properties of recurring schedules where clocks change, checked against a model that looks at every minute.

use std::collections::BTreeSet;

use chrono::{Days, NaiveDate, NaiveTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use proptest::prelude::*;

use bellwire_core::clock::Timestamp;
use bellwire_rules::campaign::schedule::Recurrence;

/// Zones with their days of change in 2027, and some without any. Clocks of Lord Howe change by half an hour, those of Troll by two.
const ZONES: [(&str, &str); 14] = [
    ("Europe/Vienna", "2027-03-28"),
    ("Europe/Vienna", "2027-10-31"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    ("Australia/Lord_Howe", "2027-04-04"),
    ("Australia/Lord_Howe", "2027-10-03"),
    ("Africa/Cairo", "2027-04-30"),
    ("Africa/Cairo", "2027-10-29"),
    ("America/Havana", "2027-03-14"),
    ("America/Havana", "2027-11-07"),
    ("America/Santiago", "2027-09-05"),
    ("Antarctica/Troll", "2027-03-28"),
    ("Asia/Kathmandu", "2027-06-01"),
    ("UTC", "2027-02-28"),
];

#[derive(Debug, Clone)]
struct Schedule {
    zone: Tz,
    first_day: NaiveDate,
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
}

impl Schedule {
    fn recurrence(&self) -> Recurrence {
        let list = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let expression = format!("{} {} * * *", list(&self.minutes), list(&self.hours));
        Recurrence::parse(&expression, self.zone).expect("a valid expression")
    }

    fn begin(&self) -> Timestamp {
        self.instant(self.first_day, 0, 0) - TimeDelta::seconds(1)
    }

    /// The first instant at which clocks show the time, or the first one after it where they skip the time.
    fn instant(&self, day: NaiveDate, hour: u32, minute: u32) -> Timestamp {
        let local = day.and_time(NaiveTime::from_hms_opt(hour, minute, 0).expect("a time of day"));
        let mut minutes = (0..=240).map(|later| local + TimeDelta::minutes(later));
        let shown = minutes.find_map(|local| self.zone.from_local_datetime(&local).earliest());
        shown.expect("no gap is longer than four hours").to_utc()
    }

    /// All runs of three days: each time of the expression once a day.
    fn runs(&self) -> BTreeSet<Timestamp> {
        let days = (0..3).map(|n| self.first_day + Days::new(n));
        let times = days.flat_map(|day| self.hours.iter().map(move |hour| (day, *hour)));
        times.flat_map(|(day, hour)| self.minutes.iter().map(move |minute| self.instant(day, hour, *minute))).collect()
    }
}

/// Up to three minutes that are five minutes apart, and up to eight hours: an expression that names every hour keeps intervals instead.
fn schedules() -> impl Strategy<Value = Schedule> {
    let minutes = prop::collection::btree_set((0..12u32).prop_map(|n| n * 5), 1..=3);
    let hours = prop::collection::btree_set(prop_oneof![3 => 0..5u32, 1 => 0..24u32], 1..=8);
    (prop::sample::select(&ZONES[..]), minutes, hours).prop_map(|((zone, change), minutes, hours)| {
        let change: NaiveDate = change.parse().expect("a date");
        Schedule { zone: zone.parse().expect("a zone"), first_day: change - Days::new(1), minutes, hours }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_wall_clock_time_runs_once_per_day(schedule in schedules()) {
        let (recurrence, expected) = (schedule.recurrence(), schedule.runs());
        let runs = std::iter::successors(recurrence.next(schedule.begin()), |at| recurrence.next(*at));
        let runs: Vec<Timestamp> = runs.take(expected.len()).collect();
        prop_assert_eq!(runs, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn last_run_is_the_one_before_next(schedule in schedules(), minute in 0..4_000i64) {
        let (recurrence, begin) = (schedule.recurrence(), schedule.begin());
        let now = begin + TimeDelta::minutes(minute);
        let expected = schedule.runs().range(..=now).next_back().copied();
        prop_assert_eq!(recurrence.last(begin, now), expected);
        if let Some(last) = expected {
            prop_assert!(recurrence.next(now).is_some_and(|next| next > now && last <= now));
        }
    }
}
