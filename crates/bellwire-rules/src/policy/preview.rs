//! Timetable of a policy, without any delivery.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::decide::GUIDE_WINDOW;
use super::{Policy, Retry, RetryDelay, RetryPhase};

/// Retries of a policy in order. Times are nominal: without holds, breakers and the duration of POSTs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timetable {
    /// Form of the policy: `guide`, `sns` or `qstash`.
    pub form: &'static str,
    /// Number of retries if each of them fails.
    pub retries: u32,
    /// Number of POSTs: the first one and the retries.
    pub posts: u32,
    /// Seconds from the first failure to the last retry, without jitter.
    pub window_s: f64,
    /// Shortest possible window with jitter, in seconds.
    pub shortest_window_s: f64,
    /// Longest possible window with jitter, in seconds.
    pub longest_window_s: f64,
    /// Retries. Consecutive ones with the same delay share a row.
    pub rows: Vec<RetrySpan>,
    /// Reason why the retries end early. Absent: all retries are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<TimetableCut>,
}

/// End of a timetable before the last retry of its policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimetableCut {
    /// `ttl`: the time to live ends. `guide_window`: the 24 hours of the guide's form end.
    pub by: &'static str,
    /// Seconds after acceptance. Retries due then or later are not made.
    pub after_s: f64,
    /// Retries that the policy allows.
    pub retries_allowed: u32,
}

/// Retries from number `first` to `last` (from 1), each with the same delay.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetrySpan {
    /// Number of the first retry.
    pub first: u32,
    /// Number of the last retry.
    pub last: u32,
    /// RetryPhase of these retries.
    pub phase: RetryPhase,
    /// Seconds after the previous attempt, without jitter.
    pub delay_s: f64,
    /// Shortest possible delay with jitter, in seconds.
    pub shortest_s: f64,
    /// Longest possible delay with jitter, in seconds.
    pub longest_s: f64,
    /// Seconds from the first failure to the last of these retries, without jitter.
    pub elapsed_s: f64,
}

/// Returns the timetable of a policy for a message with this time to live in seconds. `None`: unlimited.
pub fn preview(policy: &Policy, ttl_s: Option<u32>) -> Timetable {
    let ends = [
        ttl_s.map(|ttl_s| ("ttl", Duration::from_secs(ttl_s.into()))),
        matches!(policy.retry, Retry::Guide(_)).then_some(("guide_window", GUIDE_WINDOW)),
    ];
    let end = ends.into_iter().flatten().min_by_key(|(_, after)| *after);
    let mut rows: Vec<RetrySpan> = Vec::new();
    let mut before: Option<RetryDelay> = None;
    let [mut nominal, mut shortest, mut longest] = [Duration::ZERO; 3];
    let mut retries = 0;
    for (retry, step) in (1..).zip((0..).map_while(|n| policy.retry.step(n))) {
        if end.is_some_and(|(_, after)| nominal + step.nominal >= after) {
            break;
        }
        retries = retry;
        nominal += step.nominal;
        shortest += step.shortest;
        longest += step.longest;
        match rows.last_mut().filter(|_| before == Some(step)) {
            Some(row) => (row.last, row.elapsed_s) = (retry, nominal.as_secs_f64()),
            None => rows.push(RetrySpan {
                first: retry,
                last: retry,
                phase: step.phase,
                delay_s: step.nominal.as_secs_f64(),
                shortest_s: step.shortest.as_secs_f64(),
                longest_s: step.longest.as_secs_f64(),
                elapsed_s: nominal.as_secs_f64(),
            }),
        }
        before = Some(step);
    }
    Timetable {
        form: match policy.retry {
            Retry::Guide(_) => "guide",
            Retry::Phased(_) => "sns",
            Retry::Scripted(_) => "qstash",
        },
        retries,
        posts: retries + 1,
        window_s: nominal.as_secs_f64(),
        shortest_window_s: shortest.as_secs_f64(),
        longest_window_s: longest.as_secs_f64(),
        rows,
        cut_short: end.filter(|_| retries < policy.retry.retries()).map(|(by, after)| TimetableCut {
            by,
            after_s: after.as_secs_f64(),
            retries_allowed: policy.retry.retries(),
        }),
    }
}

/// Formats a table: one line per row, and the totals.
impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>15}  {:<12}  {:>12}  {:>25}  {:>14}",
            "retry", "phase", "delay s", "with jitter s", "elapsed s"
        )?;
        for row in &self.rows {
            let retry =
                if row.first == row.last { row.first.to_string() } else { format!("{}–{}", row.first, row.last) };
            let phase = match row.phase {
                RetryPhase::Immediate => "immediate",
                RetryPhase::PreBackoff => "pre-backoff",
                RetryPhase::Backoff => "backoff",
                RetryPhase::PostBackoff => "post-backoff",
            };
            let range = format!("{:.2}–{:.2}", row.shortest_s, row.longest_s);
            writeln!(f, "{retry:>15}  {phase:<12}  {:>12.2}  {range:>25}  {:>14.2}", row.delay_s, row.elapsed_s)?;
        }
        let Self { retries, posts, window_s, shortest_window_s, longest_window_s, .. } = self;
        let posts = match self.cut_short {
            Some(_) => format!("{posts} POSTs before jitter"),
            None => format!("{posts} POSTs at most"),
        };
        writeln!(
            f,
            "{retries} retries, {posts}, over {window_s:.2} s ({shortest_window_s:.2}–{longest_window_s:.2} s with jitter)"
        )?;
        let Some(TimetableCut { by, after_s, retries_allowed }) = self.cut_short else { return Ok(()) };
        let why = if by == "ttl" { "the time to live ends" } else { "the 24 hours of the guide's form end" };
        writeln!(f, "Cut short: the policy allows {retries_allowed} retries, but {why} after {after_s:.0} s.")
    }
}
