//! When a campaign is due.

use chrono::NaiveDateTime;
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use serde::{Deserialize, Serialize};

use super::zones::Past;
use crate::model::clock::Timestamp;

/// Longest cron expression, in octets.
pub(crate) const CRON_MAX: usize = 200;

/// The least time between two runs, in seconds: what recurs more often is no campaign.
pub(crate) const INTERVAL_MIN_S: i64 = 300;
/// So many times are looked at for it: more than a pattern of minutes has in two hours.
const TIMES_LOOKED_AT: usize = 64;

/// When a campaign is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    /// As soon as it is started.
    Now,
    /// Then, or, if that has passed when it is started, at once.
    At(Timestamp),
    /// When clocks where recipients are show that.
    Recipients {
        /// What they show.
        local: NaiveDateTime,
        /// What becomes of those for whom that has passed.
        past: Past,
    },
    /// Again and again.
    Cron(Recurrence),
    /// So many seconds after the last run of the campaign that it follows began.
    After(i64),
}

/// A cron expression in a time zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recurrence {
    /// Minute, hour, day of the month, month, day of the week.
    pub expression: String,
    /// The zone whose clocks it goes by.
    pub zone: Tz,
}

impl Recurrence {
    /// Reads an expression; says what is wrong with it.
    pub(crate) fn parse(expression: &str, zone: Tz) -> Result<Self, String> {
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

    /// The first time after `now`. A time of day that clocks skip comes at the end of the gap, one that they show twice comes
    /// once. None: there is none within a lifetime.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let local = now.with_timezone(&self.zone);
        self.cron()?.find_next_occurrence(&local, false).ok().map(|at| at.to_utc())
    }

    /// The last time after `since` and not after `now`.
    pub(crate) fn last(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let local = now.with_timezone(&self.zone);
        let last = self.cron()?.find_previous_occurrence(&local, true).ok()?.to_utc();
        (last > since).then_some(last)
    }
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn vienna(expression: &str) -> Recurrence {
        Recurrence::parse(expression, Tz::Europe__Vienna).unwrap()
    }

    #[test]
    fn a_time_of_day_stays_what_it_is_when_clocks_change() {
        let nine = vienna("0 9 * * *");
        assert_eq!(nine.next(at("2027-03-27T08:00:00Z")), Some(at("2027-03-28T07:00:00Z")));
        assert_eq!(nine.next(at("2027-03-28T07:00:00Z")), Some(at("2027-03-29T07:00:00Z")));
        let skipped = vienna("30 2 * * *");
        assert_eq!(skipped.next(at("2027-03-27T12:00:00Z")), Some(at("2027-03-28T01:00:00Z")));
        let twice = vienna("30 2 * * *");
        let first = twice.next(at("2026-10-24T12:00:00Z")).unwrap();
        assert_eq!(first, at("2026-10-25T00:30:00Z"));
        assert_eq!(twice.next(first), Some(at("2026-10-26T01:30:00Z")));
        assert_eq!(vienna("0 9 * * MON").next(at("2026-11-20T12:00:00Z")), Some(at("2026-11-23T08:00:00Z")));
    }

    #[test]
    fn of_all_that_were_missed_the_last_counts() {
        let hourly = vienna("0 * * * *");
        let last = hourly.last(at("2026-11-20T03:00:00Z"), at("2026-11-20T12:34:56Z"));
        assert_eq!(last, Some(at("2026-11-20T12:00:00Z")));
        assert_eq!(hourly.last(at("2026-11-20T12:00:00Z"), at("2026-11-20T12:34:56Z")), None);
        assert_eq!(
            hourly.last(at("2026-11-20T11:00:00Z"), at("2026-11-20T12:00:00Z")),
            Some(at("2026-11-20T12:00:00Z"))
        );
    }

    #[test]
    fn what_comes_more_often_than_every_five_minutes_is_refused() {
        for often in ["* * * * *", "*/4 * * * *", "0,1 9 * * *", "58,2 * * * *", "58,2 22,23 1 * *", "59,0 * * * SUN"] {
            let refused = Recurrence::parse(often, Tz::Europe__Vienna);
            assert_eq!(refused, Err("must leave at least 5 minutes between two runs".to_owned()), "{often}");
        }
        for fine in ["*/5 * * * *", "0 * * * *", "58,3 * * * *", "2,58 9 * * *", "0 9 * * MON", "0 0 29 2 *"] {
            assert!(Recurrence::parse(fine, Tz::Europe__Vienna).is_ok(), "{fine}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_and_what_never_comes_is_none() {
        for wrong in ["", "* * *", "60 * * * *", "0 0 9 * * *", "@sometimes", &"*".repeat(CRON_MAX + 1)] {
            assert!(Recurrence::parse(wrong, Tz::UTC).is_err(), "{wrong}");
        }
        let never = Recurrence::parse("0 0 30 2 *", Tz::UTC);
        assert!(never.is_err() || never.unwrap().next(at("2026-11-20T12:00:00Z")).is_none());
    }
}
