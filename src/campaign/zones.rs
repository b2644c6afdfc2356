//! The recipients' clock: which time zones show a time of day at the same instant.
//!
//! Browsers tell the name of their zone. All names that are known are put into groups by the instant at which clocks there
//! show a local time: about 38, among them those that lie half an hour or a quarter beside the others. A group is one message.

use std::collections::BTreeMap;

use chrono::{Days, NaiveDateTime};
use chrono_tz::{TZ_VARIANTS, Tz};
use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::named;
use crate::policy::calendar::moment;

named! {
    /// What becomes of those for whom the time has passed when a campaign is started.
    #[schema(as = PastZones)]
    pub(crate) enum Past {
        /// They get it at that time of the next day.
        Tomorrow = "tomorrow",
        /// They get nothing.
        Skip = "skip",
    }
}

/// Whom a message of a campaign by the recipients' clock is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Zones {
    /// Those in these zones.
    In(Vec<String>),
    /// Everybody but those in these: those in the app's zone and its like, and those whose zone is not known.
    NotIn(Vec<String>),
}

impl Zones {
    /// Whether a message for these is for somebody in that zone; none: theirs is not known.
    pub(crate) fn holds(&self, zone: Option<&str>) -> bool {
        let is_in = |names: &[String]| zone.is_some_and(|zone| names.iter().any(|name| name == zone));
        match self {
            Self::In(names) => is_in(names),
            Self::NotIn(names) => !is_in(names),
        }
    }
}

/// The instants at which clocks show `local`, and who sees it then, the first first. Where the instant is not after `now`, it is
/// that of the next day or none at all, as `past` has it. Those whose zone is unknown count as in `home`.
pub(crate) fn groups(local: NaiveDateTime, past: Past, home: Tz, now: Timestamp) -> Vec<(Timestamp, Zones)> {
    let mut by_instant = BTreeMap::<Timestamp, Vec<Tz>>::new();
    for zone in TZ_VARIANTS {
        by_instant.entry(moment(zone, local)).or_default().push(zone);
    }
    let names = |zones: &[Tz]| zones.iter().map(|zone| zone.name().to_owned()).collect::<Vec<_>>();
    let strangers: Vec<Tz> = by_instant.values().filter(|zones| !zones.contains(&home)).flatten().copied().collect();
    // Two groups can meet the next day, when clocks have changed in between: a message for each is right all the same.
    let mut groups = Vec::with_capacity(by_instant.len());
    for (instant, zones) in &by_instant {
        let is_home = zones.contains(&home);
        let whom = if is_home { Zones::NotIn(names(&strangers)) } else { Zones::In(names(zones)) };
        match past {
            _ if *instant > now => groups.push((*instant, whom)),
            Past::Skip => {}
            Past::Tomorrow if is_home => groups.push((next_day(home, local, now), whom)),
            Past::Tomorrow => groups.extend(tomorrow(zones, local, now)),
        }
    }
    groups.sort_by_key(|(instant, _)| *instant);
    groups
}

/// Zones whose clocks agreed today may differ tomorrow, when summer time begins in some.
fn tomorrow(zones: &[Tz], local: NaiveDateTime, now: Timestamp) -> Vec<(Timestamp, Zones)> {
    let mut by_instant = BTreeMap::<Timestamp, Vec<String>>::new();
    for zone in zones {
        by_instant.entry(next_day(*zone, local, now)).or_default().push(zone.name().to_owned());
    }
    by_instant.into_iter().map(|(instant, names)| (instant, Zones::In(names))).collect()
}

/// The first day after that of `local` on which its time of day is still to come in the zone.
fn next_day(zone: Tz, local: NaiveDateTime, now: Timestamp) -> Timestamp {
    let today = now.with_timezone(&zone).date_naive();
    let time = local.time();
    let days = (0..=2).filter_map(|n| today.checked_add_days(Days::new(n)));
    let instants = days.filter(|day| *day > local.date()).map(|day| moment(zone, day.and_time(time)));
    instants.into_iter().find(|instant| *instant > now).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn local(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// When somebody there gets it.
    fn of(groups: &[(Timestamp, Zones)], zone: &str) -> Option<Timestamp> {
        let mut meant = groups.iter().filter(|(_, zones)| match zones {
            Zones::In(names) => names.iter().any(|name| name == zone),
            Zones::NotIn(names) => !names.iter().any(|name| name == zone),
        });
        let found = meant.next().map(|(instant, _)| *instant);
        assert_eq!(meant.next(), None, "{zone} gets it twice");
        found
    }

    #[test]
    fn everybody_gets_it_once_when_their_clock_shows_the_time() {
        let groups = groups(local("2026-12-01T09:00:00"), Past::Skip, Tz::Europe__Vienna, at("2026-11-20T00:00:00Z"));
        assert!((30..=45).contains(&groups.len()), "{}", groups.len());
        assert!(groups.is_sorted_by_key(|(instant, _)| *instant));
        for (zone, instant) in [
            ("Pacific/Kiritimati", "2026-11-30T19:00:00Z"),
            ("Asia/Kolkata", "2026-12-01T03:30:00Z"),
            ("Asia/Calcutta", "2026-12-01T03:30:00Z"),
            ("Asia/Kathmandu", "2026-12-01T03:15:00Z"),
            ("Europe/Vienna", "2026-12-01T08:00:00Z"),
            ("Europe/Berlin", "2026-12-01T08:00:00Z"),
            ("Mars/Olympus", "2026-12-01T08:00:00Z"),
            ("America/St_Johns", "2026-12-01T12:30:00Z"),
            ("Pacific/Pago_Pago", "2026-12-01T20:00:00Z"),
        ] {
            assert_eq!(of(&groups, zone), Some(at(instant)), "{zone}");
        }
    }

    #[test]
    fn a_time_that_clocks_skip_comes_after_the_gap_and_one_that_they_show_twice_comes_once() {
        let spring = groups(local("2027-03-28T02:30:00"), Past::Skip, Tz::UTC, at("2027-03-01T00:00:00Z"));
        assert_eq!(of(&spring, "Europe/Vienna"), Some(at("2027-03-28T01:00:00Z")));
        assert_eq!(of(&spring, "Africa/Lagos"), Some(at("2027-03-28T01:30:00Z")), "no summer time there");
        let autumn = groups(local("2026-10-25T02:30:00"), Past::Skip, Tz::UTC, at("2026-10-01T00:00:00Z"));
        assert_eq!(of(&autumn, "Europe/Vienna"), Some(at("2026-10-25T00:30:00Z")));
        let half = groups(local("2027-10-03T02:10:00"), Past::Skip, Tz::UTC, at("2027-09-01T00:00:00Z"));
        assert_eq!(of(&half, "Australia/Lord_Howe"), Some(at("2027-10-02T15:30:00Z")), "half an hour");
    }

    #[test]
    fn those_for_whom_it_has_passed_get_it_tomorrow_or_not_at_all() {
        let now = at("2026-12-01T08:30:00Z");
        let when = local("2026-12-01T09:00:00");
        let skipped = groups(when, Past::Skip, Tz::Europe__Vienna, now);
        assert_eq!(of(&skipped, "Europe/Vienna"), None);
        assert_eq!(of(&skipped, "Asia/Tokyo"), None);
        assert_eq!(of(&skipped, "Europe/London"), Some(at("2026-12-01T09:00:00Z")));
        let moved = groups(when, Past::Tomorrow, Tz::Europe__Vienna, now);
        assert_eq!(of(&moved, "Europe/Vienna"), Some(at("2026-12-02T08:00:00Z")));
        assert_eq!(of(&moved, "Asia/Tokyo"), Some(at("2026-12-02T00:00:00Z")));
        assert_eq!(of(&moved, "Europe/London"), Some(at("2026-12-01T09:00:00Z")));
        let long_ago = groups(local("2026-11-01T09:00:00"), Past::Tomorrow, Tz::UTC, now);
        assert_eq!(of(&long_ago, "Asia/Tokyo"), Some(at("2026-12-02T00:00:00Z")), "the next nine o'clock");
        assert_eq!(of(&long_ago, "America/New_York"), Some(at("2026-12-01T14:00:00Z")));
    }
}
