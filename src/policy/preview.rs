//! What a policy would do, without doing it: its timetable.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{Phase, Policy, Retry, Step};

/// The retries of a policy in order. Times are nominal: holds, breakers and the time that POSTs take come on top, and
/// the message's TTL may end it early.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Timetable {
    /// The form it was written in: `guide`, `sns` or `qstash`.
    pub form: &'static str,
    /// Retries at most.
    pub retries: u32,
    /// POSTs at most: the retries and the first one.
    pub posts: u32,
    /// Seconds from the first failure to the last retry, before jitter.
    pub window_s: f64,
    /// The least that jitter makes of it.
    pub shortest_window_s: f64,
    /// The most.
    pub longest_window_s: f64,
    /// The retries; equal neighbours share a row.
    pub rows: Vec<Row>,
}

/// Retries `first` to `last`, counted from 1, each after the same delay.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Row {
    /// The first of them.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// Their phase.
    pub phase: Phase,
    /// Seconds after the attempt before, without jitter.
    pub delay_s: f64,
    /// The least that jitter makes of it.
    pub shortest_s: f64,
    /// The most.
    pub longest_s: f64,
    /// Seconds from the first failure to the last of them, before jitter.
    pub elapsed_s: f64,
}

/// The timetable of a policy.
pub fn preview(policy: &Policy) -> Timetable {
    let mut rows: Vec<Row> = Vec::new();
    let mut before: Option<Step> = None;
    let [mut nominal, mut shortest, mut longest] = [Duration::ZERO; 3];
    for (retry, step) in (1..).zip((0..).map_while(|n| policy.retry.step(n))) {
        nominal += step.nominal;
        shortest += step.shortest;
        longest += step.longest;
        match rows.last_mut().filter(|_| before == Some(step)) {
            Some(row) => (row.last, row.elapsed_s) = (retry, nominal.as_secs_f64()),
            None => rows.push(Row {
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
        retries: policy.retry.retries(),
        posts: policy.retry.retries() + 1,
        window_s: nominal.as_secs_f64(),
        shortest_window_s: shortest.as_secs_f64(),
        longest_window_s: longest.as_secs_f64(),
        rows,
    }
}

/// A table for people: one line a row, and the totals.
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
                Phase::Immediate => "immediate",
                Phase::PreBackoff => "pre-backoff",
                Phase::Backoff => "backoff",
                Phase::PostBackoff => "post-backoff",
            };
            let range = format!("{:.2}–{:.2}", row.shortest_s, row.longest_s);
            writeln!(f, "{retry:>15}  {phase:<12}  {:>12.2}  {range:>25}  {:>14.2}", row.delay_s, row.elapsed_s)?;
        }
        writeln!(
            f,
            "{} retries, {} POSTs at most, over {:.2} s ({:.2}–{:.2} s with jitter)",
            self.retries, self.posts, self.window_s, self.shortest_window_s, self.longest_window_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::delivery::Tier;
    use crate::policy::{Layer, Places, Terms};
    use serde_json::{Value, json};

    fn timetable(value: Value) -> Timetable {
        let layer = Layer::parse(&value, &Terms::default()).unwrap().layer;
        preview(&Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() }))
    }

    #[test]
    fn retries_exclude_the_first_post_in_every_form() {
        let example = json!({"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, "numNoDelayRetries": 3,
            "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "exponential"});
        for (value, form, retries, posts) in [
            (json!({"healthyRetryPolicy": example}), "sns", 50, 51),
            (json!({"retries": 3}), "qstash", 3, 4),
            (json!({"maxAttempts": 5}), "guide", 5, 6),
            (json!({"maxAttempts": 0}), "guide", 0, 1),
        ] {
            let table = timetable(value);
            assert_eq!((table.form, table.retries, table.posts), (form, retries, posts));
            assert_eq!(table.rows.iter().map(|row| row.last - row.first + 1).sum::<u32>(), retries);
        }
    }

    #[test]
    fn totals_and_rows_agree_with_the_policy() {
        let table =
            timetable(json!({"baseDelayMs": 1000, "maxDelayMs": 4000, "maxAttempts": 6, "immediateRetries": 2}));
        let rows: Vec<_> = table.rows.iter().map(|row| (row.first, row.last, row.phase, row.elapsed_s)).collect();
        let expected = [
            (1, 2, Phase::Immediate, 0.0),
            (3, 3, Phase::Backoff, 1.0),
            (4, 4, Phase::Backoff, 3.0),
            (5, 6, Phase::Backoff, 11.0),
        ];
        assert_eq!(rows, expected);
        assert_eq!(table.window_s, 11.0);
        assert!((table.shortest_window_s - 8.8).abs() < 1e-6 && (table.longest_window_s - 11.6).abs() < 1e-6);
    }

    #[test]
    fn the_longest_preset_fits_on_a_page() {
        let table = timetable(json!({"preset": "sns-aws-managed"}));
        assert_eq!((table.retries, table.posts), (100_015, 100_016));
        assert!((table.window_s - 2_000_049.67).abs() < 0.005);
        assert_eq!(table.rows.len(), 1 + 1 + 10 + 1);
        let text = table.to_string();
        assert!(text.contains("16–100015  post-backoff         20.00"), "{text}");
        assert!(
            text.ends_with(
                "100015 retries, 100016 POSTs at most, over 2000049.67 s (1600039.73–2000049.67 s with jitter)\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn it_serializes_by_names_that_tell_the_unit() {
        let json = serde_json::to_value(timetable(json!({"retries": 1, "retryDelay": "1500"}))).unwrap();
        assert_eq!(
            json["rows"][0],
            json!({"first": 1, "last": 1, "phase": "backoff", "delay_s": 1.5, "shortest_s": 1.5,
            "longest_s": 1.5, "elapsed_s": 1.5})
        );
        assert_eq!((&json["posts"], &json["window_s"]), (&json!(2), &json!(1.5)));
    }
}
