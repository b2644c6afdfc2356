//! Parameters of a chart: measures × dimensions × range × step. An error names the faulty parameter.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::TimeDelta;

use super::filters::Filters;
use super::measure::{Dimension, Measure, Split};
use super::pieces::{down, pieces, up};
use crate::api::http::found_values::with_found;
use crate::api::http::nul::refuse_nul;
use crate::api::http::problem::Problem;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::fact::{Loss, StatusClass};
use bellwire_core::id::LaneId;
use bellwire_core::lane::Gateway;
use bellwire_core::request_time;
use bellwire_store::outcomes::rollups::{MetricsKept, Piece, RollupStep};

/// Maximum buckets of a request.
pub(super) const BUCKETS_MAX: i64 = 1_500;
/// Default range of a request.
const RANGE_DEFAULT: TimeDelta = TimeDelta::hours(1);
/// Maximum values of one filter.
const VALUES_MAX: usize = 100;
/// Maximum messages in a filter.
const MESSAGES_MAX: usize = 20;

/// Allowed steps, with their length in seconds.
const STEPS: [(&str, i64); 12] = [
    ("1m", 60),
    ("5m", 300),
    ("10m", 600),
    ("15m", 900),
    ("30m", 1_800),
    ("1h", 3_600),
    ("2h", 7_200),
    ("3h", 10_800),
    ("4h", 14_400),
    ("6h", 21_600),
    ("12h", 43_200),
    ("1d", 86_400),
];

/// Checked request. Names of apps, lanes and messages are checked later.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Query {
    /// Start of the first bucket.
    pub from: Timestamp,
    /// End of the last bucket.
    pub until: Timestamp,
    /// Length of a bucket in seconds. `None`: one bucket for the whole range.
    pub bucket_s: Option<i64>,
    pub step: Option<&'static str>,
    /// Aggregates that cover the range.
    pub pieces: Vec<Piece>,
    pub measures: Vec<Measure>,
    pub dimensions: Vec<Dimension>,
    pub filters: Filters,
}

impl Query {
    /// Parses the query string. `of_one_app`: the request is for one app, so the dimension and filter `app` are refused.
    pub(super) fn read(text: &str, of_one_app: bool, kept: MetricsKept, now: Timestamp) -> Result<Self, Problem> {
        let mut given = RawParameters::read(text)?;
        let end = given.time("until")?.unwrap_or(now);
        let start = given.time("since")?.unwrap_or(end - RANGE_DEFAULT);
        if end <= start {
            return Err(Problem::invalid_parameter("until", "must be later than `since`"));
        }
        let step = given.step()?;
        let measures: Vec<Measure> = given.named("measures", Measure::named, &Measure::names())?;
        if measures.is_empty() {
            let detail = format!("is required: one or more of {}", Measure::names());
            return Err(Problem::invalid_parameter("measures", detail));
        }
        let dimensions = given.named("by", Dimension::from_name, &Dimension::names())?;
        let filters = given.filters()?;
        if of_one_app && dimensions.contains(&Dimension::App) {
            return Err(Problem::invalid_parameter("by", "`app` is for `/v1/metrics`, which shows all apps"));
        }
        let bucket_s = step.map(|(_, seconds)| seconds);
        let (from, until, pieces) = put_together(start, end, bucket_s, kept, now)?;
        let step = step.map(|(name, _)| name);
        let query = Self { from, until, bucket_s, step, pieces, measures, dimensions, filters };
        query.check()?;
        Ok(query)
    }

    pub(super) fn buckets(&self) -> i64 {
        self.bucket_s.map_or(1, |seconds| (self.until - self.from).num_seconds() / seconds)
    }

    /// Returns the split of the measures. `None`: no measure is split.
    pub(super) fn split(&self) -> Option<Split> {
        self.dimensions.iter().find_map(|dimension| dimension.split())
    }

    fn check(&self) -> Result<(), Problem> {
        let buckets = self.buckets();
        if buckets > BUCKETS_MAX {
            let detail =
                format!("the range has {buckets} steps, and the maximum is {BUCKETS_MAX}: choose longer steps");
            return Err(Problem::invalid_parameter("step", detail));
        }
        if self.dimensions.contains(&Dimension::Message) && self.filters.messages.is_empty() {
            return Err(Problem::invalid_parameter("message", "is required with the dimension `message`"));
        }
        for measure in &self.measures {
            let has_not = |dimension: &Dimension| format!("`{}` has no `{}`", measure.name(), dimension.name());
            if let Some(dimension) = self.dimensions.iter().find(|dimension| !measure.has(**dimension)) {
                return Err(Problem::invalid_parameter("by", has_not(dimension)));
            }
            if let Some(dimension) = self.filters.used().into_iter().find(|dimension| !measure.has(*dimension)) {
                return Err(Problem::invalid_parameter(dimension.name(), has_not(&dimension)));
            }
        }
        Ok(())
    }
}

impl Filters {
    fn used(&self) -> Vec<Dimension> {
        let used = [
            (Dimension::App, !self.apps.is_empty()),
            (Dimension::Lane, !self.lanes.is_empty()),
            (Dimension::Gateway, !self.gateways.is_empty()),
            (Dimension::Tier, !self.tiers.is_empty()),
            (Dimension::Message, !self.messages.is_empty()),
            (Dimension::Outcome, !self.outcomes.is_empty()),
            (Dimension::Status, !self.statuses.is_empty()),
            (Dimension::Reason, !self.reasons.is_empty()),
        ];
        used.into_iter().filter(|(_, is_used)| *is_used).map(|(dimension, _)| dimension).collect()
    }
}

/// Widens the range to whole buckets, and chooses the longest stored aggregates that fit. Without buckets, widens it to the
/// shortest aggregates stored for either end.
fn put_together(
    start: Timestamp, end: Timestamp, bucket_s: Option<i64>, kept: MetricsKept, now: Timestamp,
) -> Result<(Timestamp, Timestamp, Vec<Piece>), Problem> {
    let is_kept = |at: Timestamp, step: RollupStep| at >= now - kept.of(step);
    let found = match bucket_s {
        Some(seconds) => {
            let fits = |step: &RollupStep| seconds % step.seconds() == 0 && is_kept(start, *step);
            let (from, until) = (down(start, seconds), up(end, seconds));
            RollupStep::ALL.into_iter().rev().find(fits).map(|step| (from, until, vec![Piece { step, from, until }]))
        }
        None => {
            let shortest = |at: Timestamp| RollupStep::ALL.into_iter().find(|step| is_kept(at, *step));
            shortest(start).zip(shortest(end)).map(|(at_start, at_end)| {
                let (from, until) = (down(start, at_start.seconds()), up(end, at_end.seconds()));
                (from, until, pieces(from, until))
            })
        }
    };
    found.ok_or_else(|| {
        let days = |step| kept.of(step).as_secs() / 86_400;
        let [minutes, hours, by_day] = RollupStep::ALL.map(days);
        let detail = format!(
            "is too far back for this step: metrics are kept by the minute for {minutes} days, by the hour for \
             {hours}, by the day for {by_day}"
        );
        Problem::invalid_parameter("since", detail)
    })
}

/// Parameters before parsing: `name=a&name=b` and `name=a,b` are equivalent.
struct RawParameters(BTreeMap<String, Vec<String>>);

impl RawParameters {
    fn read(text: &str) -> Result<Self, Problem> {
        let mut given = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            refuse_nul(&name, &value)?;
            let values = value.split(',').map(|value| value.trim().to_owned());
            given.entry(name.into_owned()).or_default().extend(values.filter(|value| !value.is_empty()));
        }
        if let Some((name, _)) = given.iter().find(|(_, values)| values.len() > VALUES_MAX) {
            return Err(Problem::invalid_parameter(name, format!("takes at most {VALUES_MAX} values")));
        }
        Ok(Self(given))
    }

    fn one(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut values = self.0.remove(name).unwrap_or_default();
        match values.len() {
            0 => Ok(None),
            1 => Ok(values.pop()),
            _ => Err(Problem::invalid_parameter(name, "must be given once")),
        }
    }

    fn time(&mut self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        // A `+` that was not percent-encoded reads as a space.
        let time = request_time::parse(&text.replace(' ', "+"));
        let refused = || Problem::invalid_parameter(name, "must be a time such as `2026-11-01T00:00:00Z`");
        time.map(Some).ok_or_else(refused)
    }

    fn step(&mut self) -> Result<Option<(&'static str, i64)>, Problem> {
        let Some(text) = self.one("step")? else { return Ok(None) };
        let found = STEPS.into_iter().find(|(name, _)| *name == text);
        let names = STEPS.map(|(name, _)| name).join(", ");
        let refused = || Problem::invalid_parameter("step", format!("must be one of {names}"));
        found.map(Some).ok_or_else(refused)
    }

    /// Parses a list of named values, without duplicates.
    fn named<T: PartialEq>(
        &mut self, name: &str, read: impl Fn(&str) -> Option<T>, names: &str,
    ) -> Result<Vec<T>, Problem> {
        let mut read_so_far = Vec::new();
        for value in self.0.remove(name).unwrap_or_default() {
            let rule = || with_found(format!("must be one of {names}"), &value);
            let one = read(&value).ok_or_else(|| Problem::invalid_parameter(name, rule()))?;
            if !read_so_far.contains(&one) {
                read_so_far.push(one);
            }
        }
        Ok(read_so_far)
    }

    /// Parses a list of ids or numbers.
    fn parsed<T: FromStr>(&mut self, name: &str, rule: &str) -> Result<Vec<T>, Problem> {
        let values = self.0.remove(name).unwrap_or_default();
        let refused = |value| Problem::invalid_parameter(name, with_found(rule, value));
        let read = values.iter().map(|value| value.parse().map_err(|_| refused(value)));
        read.collect()
    }

    fn filters(&mut self) -> Result<Filters, Problem> {
        fn by_name<T: Copy>(all: impl IntoIterator<Item = T>, name: fn(T) -> &'static str, text: &str) -> Option<T> {
            all.into_iter().find(|one| name(*one) == text)
        }
        fn names<T>(all: impl IntoIterator<Item = T>, name: fn(T) -> &'static str) -> String {
            all.into_iter().map(name).collect::<Vec<_>>().join(", ")
        }
        let messages = self.parsed("message", "must be the id of a message")?;
        if messages.len() > MESSAGES_MAX {
            let detail = format!("takes at most {MESSAGES_MAX} messages");
            return Err(Problem::invalid_parameter("message", detail));
        }
        Ok(Filters {
            apps: self.0.remove("app").unwrap_or_default(),
            lanes: self.parsed("lane", "must be the number of a lane")?.into_iter().map(LaneId).collect(),
            gateways: self.named("gateway", Gateway::from_name, &names(Gateway::ALL, Gateway::name))?,
            tiers: self.named("tier", |text| text.parse().ok(), &names(Tier::ALL, Tier::name))?,
            messages,
            outcomes: self.named(
                "outcome",
                |text| by_name(Measure::OUTCOMES, Ending::name, text),
                &names(Measure::OUTCOMES, Ending::name),
            )?,
            statuses: self.named(
                "status",
                |text| by_name(StatusClass::ALL, StatusClass::name, text),
                &names(StatusClass::ALL, StatusClass::name),
            )?,
            reasons: self.named(
                "reason",
                |text| by_name(Loss::ALL, Loss::name, text),
                &names(Loss::ALL, Loss::name),
            )?,
        })
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/series/query.rs"]
mod tests;
