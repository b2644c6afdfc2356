//! Schedules of a campaign.

use chrono::{LocalResult, NaiveDateTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};
use serde::{Deserialize, Serialize};

use super::trigger::Trigger;
use super::zones::Past;
use crate::policy::calendar::moment;
use bellwire_core::clock::Timestamp;

/// Maximum bytes of a cron expression.
pub(crate) const CRON_MAX: usize = 200;

/// Minimum seconds between two runs.
pub(crate) const INTERVAL_MIN_S: i64 = 300;
/// Maximum number of run times checked: more than a pattern of minutes has in two hours.
const TIMES_LOOKED_AT: usize = 64;
/// Longer than any clock change: Antarctica/Troll changes by two hours.
const REPEATED_MAX: TimeDelta = TimeDelta::hours(3);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Now,
    /// At this time, or when the campaign is started if that is later.
    At(Timestamp),
    Recipients {
        local: NaiveDateTime,
        past: Past,
    },
    Cron(Recurrence),
    /// Seconds after the start of the followed campaign's last run.
    After(i64),
    /// For one person after the other, because of events.
    Trigger(Box<Trigger>),
}

/// A cron expression in a time zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurrence {
    /// Expression: minute, hour, day of the month, month, day of the week.
    pub expression: String,
    /// Time zone of the expression.
    pub zone: Tz,
}

impl Recurrence {
    /// Parses an expression. The error describes the fault.
    pub fn parse(expression: &str, zone: Tz) -> Result<Self, String> {
        if expression.len() > CRON_MAX {
            return Err(format!("must be at most {CRON_MAX} octets"));
        }
        let recurrence = Self { expression: expression.to_owned(), zone };
        parser().parse(expression).map_err(|_| explain(expression))?;
        if recurrence.is_too_often() {
            return Err(format!("must leave at least {} minutes between two runs", INTERVAL_MIN_S / 60));
        }
        Ok(recurrence)
    }

    /// Whether two of its times are closer than the minimum. Clock changes are not considered.
    fn is_too_often(&self) -> bool {
        let unchanging = Self { zone: Tz::UTC, ..self.clone() };
        let times = std::iter::successors(unchanging.next(Timestamp::UNIX_EPOCH), |at| unchanging.next(*at));
        let times: Vec<Timestamp> = times.take(TIMES_LOOKED_AT).collect();
        times.windows(2).any(|pair| (pair[1] - pair[0]).num_seconds() < INTERVAL_MIN_S)
    }

    fn cron(&self) -> Option<Cron> {
        parser().parse(&self.expression).ok()
    }

    /// Returns the first run after `now`. `None`: no run in the foreseeable future.
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

    /// Returns the last run after `since` and not after `now`. `None`: no run.
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

    /// Returns the local time of an instant, as if it were UTC, for matching with the expression.
    fn shown(&self, at: Timestamp) -> Timestamp {
        at.with_timezone(&self.zone).naive_local().and_utc()
    }

    /// Returns the instants at which a local time of the expression runs: normally one, by [`moment`]. An expression that names
    /// every hour keeps its interval across clock changes: it runs twice at a repeated time, and not at a skipped one.
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

/// Fields of an expression, with their values.
const FIELDS: [(&str, &str); 5] = [
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7, or SUN to SAT"),
];

/// Describes the wrong fields of an expression that cannot be parsed.
fn explain(expression: &str) -> String {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let names = FIELDS.map(|(name, _)| name).join(", ");
        return format!("must have five fields separated by spaces ({names}), but has {}", fields.len());
    }
    let is_wrong = |place: usize| {
        let mut alone = ["*"; FIELDS.len()];
        alone[place] = fields[place];
        parser().parse(&alone.join(" ")).is_err()
    };
    let wrong = FIELDS.iter().enumerate().filter(|(place, _)| is_wrong(*place));
    let wrong: Vec<_> =
        wrong.map(|(place, (name, range))| format!("the {name} {:?} must be {range}", fields[place])).collect();
    if wrong.is_empty() { "must be a cron expression such as `0 9 * * MON`".to_owned() } else { wrong.join("; ") }
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
}
