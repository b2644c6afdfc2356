//! Local times of recipients: groups time zones that have a time of day at the same instant.
//!
//! Browsers report the name of their zone. All known names are grouped by the instant of a local time. There are about 38
//! groups, because some zones differ by half or a quarter of an hour. Each group gets one message.

use std::collections::BTreeMap;

use chrono::{Days, NaiveDateTime};
use chrono_tz::{TZ_VARIANTS, Tz};
use serde::{Deserialize, Serialize};

use crate::policy::calendar::moment;
use bellwire_core::clock::Timestamp;
use bellwire_core::named;

named! {
    /// Rule for recipients whose local time is already past when a campaign is started.
    #[cfg_attr(feature = "openapi", schema(as = PastZones))]
    pub enum Past {
        /// The message at that time on the next day.
        Tomorrow = "tomorrow",
        /// No message.
        Skip = "skip",
    }
}

/// Time zones of a message's recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zones {
    /// These time zones.
    In(Vec<String>),
    /// All other time zones, and recipients with an unknown zone: the message of the app's own zone.
    NotIn(Vec<String>),
}

impl Zones {
    /// Whether the message is for recipients in this zone. `None`: unknown zone.
    pub fn holds(&self, zone: Option<&str>) -> bool {
        let is_in = |names: &[String]| zone.is_some_and(|zone| names.iter().any(|name| name == zone));
        match self {
            Self::In(names) => is_in(names),
            Self::NotIn(names) => !is_in(names),
        }
    }
}

/// Returns the instants of a local time with their zones, in order. An instant that is not after `now` moves to the next day or
/// is omitted, according to `past`. Recipients with an unknown zone belong to `home`.
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

/// Groups zones by the instant on the next day. Zones that agree today may differ tomorrow, when summer time begins in some.
fn tomorrow(zones: &[Tz], local: NaiveDateTime, now: Timestamp) -> Vec<(Timestamp, Zones)> {
    let mut by_instant = BTreeMap::<Timestamp, Vec<String>>::new();
    for zone in zones {
        by_instant.entry(next_day(*zone, local, now)).or_default().push(zone.name().to_owned());
    }
    by_instant.into_iter().map(|(instant, names)| (instant, Zones::In(names))).collect()
}

/// Returns the first day after that of `local` whose time of day is still in the future in the zone.
fn next_day(zone: Tz, local: NaiveDateTime, now: Timestamp) -> Timestamp {
    let today = now.with_timezone(&zone).date_naive();
    let time = local.time();
    let days = (0..=2).filter_map(|n| today.checked_add_days(Days::new(n)));
    let instants = days.filter(|day| *day > local.date()).map(|day| moment(zone, day.and_time(time)));
    instants.into_iter().find(|instant| *instant > now).unwrap_or(now)
}
