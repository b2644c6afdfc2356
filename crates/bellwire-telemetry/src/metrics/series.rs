//! Metrics of each kind, created and registered in one step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::histogram::exponential_buckets;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Unit;

use super::labels::{LabelSet, Labels};
use super::registry::{Readable, Registry, Value};

/// Series of one metric, by their labels. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Family<L, M> {
    series: Arc<RwLock<BTreeMap<L, M>>>,
    create: fn() -> M,
}

impl<L, M: Default> Default for Family<L, M> {
    fn default() -> Self {
        Self::created_by(M::default)
    }
}

impl<L, M> Family<L, M> {
    pub(super) fn created_by(create: fn() -> M) -> Self {
        Self { series: Arc::default(), create }
    }
}

impl<L: LabelSet, M: Clone> Family<L, M> {
    /// Returns the series with these labels, a new one if there is none.
    pub(super) fn of(&self, labels: L) -> M {
        if let Some(known) = self.series.read().get(&labels) {
            return known.clone();
        }
        self.series.write().entry(labels).or_insert_with(self.create).clone()
    }

    /// Removes all series of this family.
    pub(super) fn clear(&self) {
        self.series.write().clear();
    }
}

impl<L: LabelSet, M: Readable + TypedMetric> EncodeMetric for Family<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let series = self.series.read();
        series.iter().try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(&labels.labels())?))
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.series.read().is_empty()
    }
}

impl<L: LabelSet, M: Readable + TypedMetric> Readable for Family<L, M> {
    fn read(&self, _: Labels, points: &mut Vec<(Labels, Value)>) {
        self.series.read().iter().for_each(|(labels, metric)| metric.read(labels.labels(), points));
    }
}

/// Upper bound in seconds and number of observations of each bucket.
type Buckets = Vec<(f64, u64)>;

/// Histogram of durations: their sum, and the buckets. Clones share the observations.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Mutex<(f64, Buckets)>>);

impl Default for Histogram {
    /// Creates buckets from a millisecond to some ten seconds, the deadline of an attempt.
    fn default() -> Self {
        Self::with_bounds(exponential_buckets(0.001, 2.5, 11))
    }
}

impl Histogram {
    fn with_bounds(bounds: impl Iterator<Item = f64>) -> Self {
        let buckets = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        Self(Arc::new(Mutex::new((0.0, buckets))))
    }

    /// Buckets that OpenTelemetry's semantic conventions recommend for requests.
    pub(super) fn of_requests() -> Self {
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
        Self::with_bounds(bounds.into_iter())
    }

    /// Adds a duration to the histogram, in seconds.
    pub fn observe(&self, seconds: f64) {
        let (sum, buckets) = &mut *self.0.lock();
        *sum += seconds;
        if let Some((_, n)) = buckets.iter_mut().find(|(bound, _)| *bound >= seconds) {
            *n += 1;
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let (sum, buckets) = &*self.0.lock();
        encoder.encode_histogram::<NoLabelSet>(*sum, buckets.iter().map(|(_, n)| n).sum(), buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl Readable for Histogram {
    fn read(&self, labels: Labels, points: &mut Vec<(Labels, Value)>) {
        let (sum, buckets) = self.0.lock().clone();
        points.push((labels, Value::Histogram { sum, buckets }));
    }
}

/// The constant 1, with the program's version as label.
#[derive(Debug, Clone, Default)]
pub(super) struct Build;

const VERSION: (&str, &str) = ("version", env!("CARGO_PKG_VERSION"));

impl EncodeMetric for Build {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_info(&[VERSION])
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Info
    }
}

impl Readable for Build {
    fn read(&self, _: Labels, points: &mut Vec<(Labels, Value)>) {
        points.push((vec![(VERSION.0, VERSION.1.to_owned())], Value::Int(1)));
    }
}

pub(super) fn plain<M: Readable + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registry.add(name, help, None, M::default())
}

pub(super) fn seconds<M: Readable + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registry.add(name, help, Some(Unit::Seconds), M::default())
}
