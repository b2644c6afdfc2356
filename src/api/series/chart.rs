//! Sums aggregates by bucket and group, and computes the measures. Each group has all buckets, empty ones included.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::measure::Dimension;
use super::query::Query;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::fact::{Fact, FactCounts, Loss};
use bellwire_core::id::{AppId, LaneId, MessageId};
use bellwire_core::lane::Gateway;
use bellwire_store::outcomes::rollups::{LaneOf, RollupRow};

/// Maximum points in a response.
pub(super) const POINTS_MAX: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Lane(LaneId),
    Text(String),
}

impl Label {
    fn json(&self) -> Value {
        match self {
            Label::Lane(lane) => lane.0.into(),
            Label::Text(text) => text.as_str().into(),
        }
    }
}

#[derive(Debug)]
struct SeriesGroup {
    buckets: Vec<FactCounts>,
    active: i64,
}

#[derive(Debug, PartialEq)]
pub(super) struct Point {
    /// Start of the bucket. `None`: one bucket for the whole range.
    pub at: Option<Timestamp>,
    /// Value of each dimension.
    pub dimensions: Map<String, Value>,
    pub metrics: Map<String, Value>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    /// The chart would have more than [`POINTS_MAX`] points.
    Points,
    Rows,
}

/// Properties that distinguish aggregates, except time.
type SeriesKey = (Option<LaneId>, Gateway, Option<Tier>, Option<MessageId>);

pub(super) struct Chart<'a> {
    query: &'a Query,
    lanes: BTreeMap<LaneId, &'a LaneOf>,
    groups: Vec<SeriesGroup>,
    by_labels: BTreeMap<Vec<Label>, usize>,
    /// Index of the group for each kind of row seen so far. `None`: such rows belong to no group.
    by_kind: HashMap<SeriesKey, Option<usize>>,
    groups_max: usize,
}

impl<'a> Chart<'a> {
    /// Creates an empty chart. `lanes` are the lanes that rows may refer to.
    pub(super) fn new(query: &'a Query, lanes: &'a [LaneOf]) -> Self {
        let parts = query.split().map_or(1, |split| split.values(&query.filters).len());
        let points = usize::try_from(query.buckets()).unwrap_or(usize::MAX).saturating_mul(parts).max(1);
        let lanes = lanes.iter().map(|lane| (lane.lane, lane)).collect();
        let groups_max = POINTS_MAX / points;
        Self { query, lanes, groups: Vec::new(), by_labels: BTreeMap::new(), by_kind: HashMap::new(), groups_max }
    }

    pub(super) fn add(&mut self, row: &RollupRow) -> Result<(), TooMany> {
        let bucket = self.query.bucket_s.map_or(0, |seconds| (row.start - self.query.from).num_seconds() / seconds);
        let Some(group) = self.group_of(row)? else { return Ok(()) };
        let Some(counts) = usize::try_from(bucket).ok().and_then(|bucket| group.buckets.get_mut(bucket)) else {
            return Ok(());
        };
        row.facts.iter().zip(&row.ns).for_each(|(fact, n)| counts.add_stored(*fact, *n));
        Ok(())
    }

    /// Adds the current number of active subscriptions of a lane.
    pub(super) fn add_active(&mut self, lane: LaneId, n: i64) -> Result<(), TooMany> {
        let Some(lane) = self.lanes.get(&lane).copied() else { return Ok(()) };
        let row = RollupRow {
            start: self.query.until,
            lane: Some(lane.lane),
            gateway: lane.gateway,
            tier: None,
            message: None,
            facts: Vec::new(),
            ns: Vec::new(),
        };
        if let Some(group) = self.group_of(&row)? {
            group.active += n;
        }
        Ok(())
    }

    /// Subtracts gains and losses after the range from the current number of active subscriptions.
    pub(super) fn undo(&mut self, row: &RollupRow) -> Result<(), TooMany> {
        let mut counts = FactCounts::default();
        row.facts.iter().zip(&row.ns).for_each(|(fact, n)| counts.add_stored(*fact, *n));
        if let Some(group) = self.group_of(row)? {
            group.active -= net(&counts);
        }
        Ok(())
    }

    /// Returns all points, sorted by time and group.
    pub(super) fn finish(mut self) -> Result<Vec<Point>, TooMany> {
        if self.grouping().next().is_none() {
            self.group(Vec::new())?; // even if nothing happened
        }
        let measures: Vec<_> = self.query.measures.iter().map(|measure| (measure, measure.name())).collect();
        let split = self.query.split();
        let split_name = self.query.dimensions.iter().find(|one| one.split().is_some()).map(|one| one.name());
        let parts: Vec<_> =
            split.map_or(vec![None], |split| split.values(&self.query.filters).into_iter().map(Some).collect());
        let names: Vec<_> = self.grouping().map(Dimension::name).collect();
        let mut points = Vec::new();
        for (labels, group) in &self.by_labels {
            let group = &self.groups[*group];
            let (mut active, mut newest_first) = (group.active, Vec::new());
            for (n, counts) in group.buckets.iter().enumerate().rev() {
                let at = self.query.bucket_s.map(|seconds| {
                    self.query.from + chrono::TimeDelta::seconds(seconds * i64::try_from(n).unwrap_or(i64::MAX))
                });
                for part in parts.iter().rev() {
                    let labels = names.iter().zip(labels).map(|(name, label)| ((*name).to_owned(), label.json()));
                    let mut dimensions: Map<_, _> = labels.collect();
                    if let (Some(name), Some(part)) = (split_name, part) {
                        dimensions.insert(name.to_owned(), (*part).into());
                    }
                    let value = |(measure, name): &(&super::measure::Measure, String)| {
                        (name.clone(), measure.value(counts, active, *part, &self.query.filters))
                    };
                    newest_first.push(Point { at, dimensions, metrics: measures.iter().map(value).collect() });
                }
                active -= net(counts);
            }
            points.extend(newest_first.into_iter().rev());
        }
        points.sort_by_key(|point| point.at); // stable: groups stay in their order
        Ok(points)
    }

    fn grouping(&self) -> impl Iterator<Item = Dimension> + use<'_, 'a> {
        self.query.dimensions.iter().copied().filter(|dimension| dimension.split().is_none())
    }

    /// Returns the group of a row. `None`: the row lacks a requested dimension.
    fn group_of(&mut self, row: &RollupRow) -> Result<Option<&mut SeriesGroup>, TooMany> {
        let kind = (row.lane, row.gateway, row.tier, row.message);
        let group = match self.by_kind.get(&kind) {
            Some(known) => *known,
            None => {
                let labels: Option<Vec<_>> = self.grouping().map(|dimension| self.label(dimension, row)).collect();
                let group = labels.map(|labels| self.group(labels)).transpose()?;
                self.by_kind.insert(kind, group);
                group
            }
        };
        Ok(group.map(|group| &mut self.groups[group]))
    }

    /// Returns a row's value of a dimension. `None`: the row has none, for example no tier.
    fn label(&self, dimension: Dimension, row: &RollupRow) -> Option<Label> {
        let app = |lane: LaneId| self.lanes.get(&lane).map(|lane| AppId::to_string(&lane.app));
        match dimension {
            Dimension::App => row.lane.and_then(app).map(Label::Text),
            Dimension::Lane => row.lane.map(Label::Lane),
            Dimension::Gateway => Some(Label::Text(row.gateway.name().to_owned())),
            Dimension::Tier => row.tier.map(|tier| Label::Text(tier.name().to_owned())),
            Dimension::Message => row.message.map(|message| Label::Text(message.to_string())),
            Dimension::Outcome | Dimension::Status | Dimension::Reason => None,
        }
    }

    /// Returns the index of the group with these labels, and creates it if needed.
    fn group(&mut self, labels: Vec<Label>) -> Result<usize, TooMany> {
        if let Some(known) = self.by_labels.get(&labels) {
            return Ok(*known);
        }
        if self.groups.len() >= self.groups_max {
            return Err(TooMany::Points);
        }
        let buckets = usize::try_from(self.query.buckets()).unwrap_or(0);
        self.groups.push(SeriesGroup { buckets: vec![FactCounts::default(); buckets], active: 0 });
        self.by_labels.insert(labels, self.groups.len() - 1);
        Ok(self.groups.len() - 1)
    }
}

/// Returns the change in active subscriptions: gains minus losses.
fn net(counts: &FactCounts) -> i64 {
    let lost: u64 = Loss::ALL.into_iter().map(|loss| counts.of(Fact::Lost(loss))).sum();
    i64::try_from(counts.of(Fact::Won)).unwrap_or(i64::MAX) - i64::try_from(lost).unwrap_or(i64::MAX)
}
