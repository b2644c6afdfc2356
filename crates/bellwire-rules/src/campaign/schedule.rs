//! Times of a campaign.

use chrono::{LocalResult, NaiveDateTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};
use serde::{Deserialize, Serialize};

use super::zones::Past;
use crate::policy::calendar::moment;
use bellwire_core::clock::Timestamp;

/// Longest cron expression, in octets.
pub(crate) const CRON_MAX: usize = 200;

/// The least time between two runs, in seconds: what recurs more often is no campaign.
pub(crate) const INTERVAL_MIN_S: i64 = 300;
/// Maximum number of times checked: more than a pattern of minutes has in two hours.
const TIMES_LOOKED_AT: usize = 64;
/// Longer than any stretch of time that clocks show twice, or skip: those of Antarctica/Troll change by two hours.
const REPEATED_MAX: TimeDelta = TimeDelta::hours(3);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Now,
    /// Then, or, if that has passed when it is started, at once.
    At(Timestamp),
    Recipients {
        local: NaiveDateTime,
        past: Past,
    },
    Cron(Recurrence),
    /// So many seconds after the last run of the campaign that it follows began.
    After(i64),
}

/// A cron expression in a time zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurrence {
    /// Minute, hour, day of the month, month, day of the week.
    pub expression: String,
    /// The zone whose clocks it goes by.
    pub zone: Tz,
}

impl Recurrence {
    /// Reads an expression. The error describes the mistake.
    pub fn parse(expression: &str, zone: Tz) -> Result<Self, String> {
        if expression.len() > CRON_MAX {
            return Err(format!("must be at most {CRON_MAX} octets"));
        }
        let recurrence = Self { expression: expression.to_owned(), zone };
        parser().parse(expression).map_err(|error| format!("is no cron expression of five fields: {error}"))?;
        if recurrence.is_too_often() {
            return Err(format!("must leave at least {} minutes between two runs", INTERVAL_MIN_S / 60));
        }
        Ok(recurrence)
    }

    /// Whether two of its times are closer than that. Where clocks change they may come closer.
    fn is_too_often(&self) -> bool {
        let unchanging = Self { zone: Tz::UTC, ..self.clone() };
        let times = std::iter::successors(unchanging.next(Timestamp::UNIX_EPOCH), |at| unchanging.next(*at));
        let times: Vec<Timestamp> = times.take(TIMES_LOOKED_AT).collect();
        times.windows(2).any(|pair| (pair[1] - pair[0]).num_seconds() < INTERVAL_MIN_S)
    }

    fn cron(&self) -> Option<Cron> {
        parser().parse(&self.expression).ok()
    }

    /// Returns the first run after `now`. None: there is none within a lifetime.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let cron = self.cron()?;
        let mut next = None;
        for local in cron.iter_from(self.shown(now) - REPEATED_MAX, Direction::Forward) {
            let runs = self.runs_at(&cron, local).into_iter().flatten();
            next = runs.chain(next).filter(|at| *at > now).min();
            if next.is_some() && moment(self.zone, local.naive_utc()) > now {
                return next;
            }
        }
        next
    }

    /// Returns the last run after `since` and not after `now`.
    pub fn last(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let cron = self.cron()?;
        let mut last = None;
        for local in cron.iter_from(self.shown(now) + REPEATED_MAX, Direction::Backward) {
            let runs = self.runs_at(&cron, local).into_iter().flatten();
            last = runs.chain(last).filter(|at| *at <= now).max();
            if last.is_some() && local < self.shown(now) - REPEATED_MAX || moment(self.zone, local.naive_utc()) <= since
            {
                break;
            }
        }
        last.filter(|at| *at > since)
    }

    /// The time that clocks show at an instant, as if it were UTC: the expression is matched against clocks alone.
    fn shown(&self, at: Timestamp) -> Timestamp {
        at.with_timezone(&self.zone).naive_local().and_utc()
    }

    /// Returns the instants at which a wall-clock time of the expression runs: one, by [`moment`]. An expression that names each
    /// hour keeps its interval where clocks change by at least that interval. It runs again when clocks repeat a time, and leaves
    /// out a time that they skip.
    fn runs_at(&self, cron: &Cron, local: Timestamp) -> [Option<Timestamp>; 2] {
        let first = moment(self.zone, local.naive_utc());
        let keeps_interval = |change: TimeDelta| {
            let next = cron.find_next_occurrence(&local, false);
            cron.pattern.hours.values().len() == 24 && next.is_ok_and(|next| next - local <= change)
        };
        match self.zone.from_local_datetime(&local.naive_utc()) {
            LocalResult::Single(_) => [Some(first), None],
            LocalResult::Ambiguous(one, other) => {
                let again = one.max(other).to_utc();
                [Some(first), Some(again).filter(|_| keeps_interval(again - first))]
            }
            LocalResult::None => {
                let second = TimeDelta::seconds(1);
                let skipped = self.shown(first) - self.shown(first - second) - second;
                [Some(first).filter(|_| !keeps_interval(skipped)), None]
            }
        }
    }
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
}
