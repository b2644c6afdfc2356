//! Series of each kind, made and registered in one step.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// From a millisecond to some ten seconds, which is the deadline of an attempt.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 11))
}

pub(super) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub(super) fn histograms<L: Labels>(registry: &mut Registry, name: &str, help: &str) -> Histograms<L> {
    let family = Family::new_with_constructor(durations as fn() -> Histogram);
    registry.register_with_unit(name, help, Unit::Seconds, family.clone());
    family
}

pub(super) fn histogram(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = durations();
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

pub(super) trait Labels:
    EncodeLabelSet + Clone + Eq + std::hash::Hash + fmt::Debug + Send + Sync + 'static
{
}
impl<L: EncodeLabelSet + Clone + Eq + std::hash::Hash + fmt::Debug + Send + Sync + 'static> Labels for L {}

pub(super) fn counters<L: Labels>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Counter> {
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

pub(super) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

pub(super) fn seconds(registry: &mut Registry, name: &str, help: &str) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    registry.register_with_unit(name, help, Unit::Seconds, gauge.clone());
    gauge
}

pub(super) fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}
