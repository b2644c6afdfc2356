//! The recipients' clock: which time zones show a time of day at the same instant.
//!
//! Browsers report the name of their zone. All known names are grouped by the instant at which clocks there show a local time.
//! About 38 groups exist, because some zones differ from others by half or a quarter of an hour. Each group is one message.

use std::collections::BTreeMap;

use chrono::{Days, NaiveDateTime};
use chrono_tz::{TZ_VARIANTS, Tz};
use serde::{Deserialize, Serialize};

use crate::policy::calendar::moment;
use bellwire_core::clock::Timestamp;
use bellwire_core::named;

named! {
    /// Rule for recipients whose time has passed when a campaign is started.
    #[cfg_attr(feature = "openapi", schema(as = PastZones))]
    pub enum Past {
        /// They get it at that time of the next day.
        Tomorrow = "tomorrow",
        /// They get no message.
        Skip = "skip",
    }
}

/// Recipients of a message of a campaign by local time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zones {
    /// Those in these zones.
    In(Vec<String>),
    /// Everybody but those in these: those in the app's zone and its like, and those whose zone is not known.
    NotIn(Vec<String>),
}

impl Zones {
    /// Whether the message is for recipients in that zone. `None`: the recipient's zone is unknown.
    pub fn holds(&self, zone: Option<&str>) -> bool {
        let is_in = |names: &[String]| zone.is_some_and(|zone| names.iter().any(|name| name == zone));
        match self {
            Self::In(names) => is_in(names),
            Self::NotIn(names) => !is_in(names),
        }
    }
}

/// The instants at which clocks show `local`, and who sees it then, the first first. Where the instant is not after `now`, it is
/// that of the next day or none at all, as `past` has it. Those whose zone is unknown count as in `home`.
pub fn groups(local: NaiveDateTime, past: Past, home: Tz, now: Timestamp) -> Vec<(Timestamp, Zones)> {
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
