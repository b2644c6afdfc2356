//! Registered metrics. Two exporters read them: the text of `/metrics` and OTLP.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{self, Unit};

use super::labels::Labels;

/// Current value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Histogram {
        sum: f64,
        /// Upper bounds in ascending order, the last one infinite, each with the number of observations since the previous
        /// bound.
        buckets: Vec<(f64, u64)>,
    },
}

pub(super) trait Readable: registry::Metric {
    /// Appends the current values. `labels` are those of its family.
    fn read(&self, labels: Labels, points: &mut Vec<(Labels, Value)>);
}

macro_rules! readable {
    ($($Metric:ty => $value:expr),+) => {$(
        impl Readable for $Metric {
            fn read(&self, labels: Labels, points: &mut Vec<(Labels, Value)>) {
                points.push((labels, $value(self.get())));
            }
        }
    )+};
}

readable! {
    Counter => |n| Value::Int(i64::try_from(n).unwrap_or(i64::MAX)),
    Counter<f64, AtomicU64> => Value::Float,
    Gauge => Value::Int,
    Gauge<f64, AtomicU64> => Value::Float
}

#[derive(Debug)]
pub struct Registered {
    /// Name with prefix and unit, without the suffixes of the text format.
    pub name: String,
    pub help: String,
    pub unit: Option<Unit>,
    metric: Box<dyn Readable>,
}

impl Registered {
    pub fn kind(&self) -> MetricType {
        self.metric.metric_type()
    }

    pub fn read(&self) -> Vec<(Labels, Value)> {
        let mut points = Vec::new();
        self.metric.read(Labels::new(), &mut points);
        points
    }
}

#[derive(Debug)]
pub(super) struct Registry {
    prefix: &'static str,
    pub metrics: Vec<Registered>,
    /// Registry of the same metrics, for the text format.
    pub text: registry::Registry,
}

impl Registry {
    pub(super) fn with_prefix(prefix: &'static str) -> Self {
        Self { prefix, metrics: Vec::new(), text: registry::Registry::with_prefix(prefix) }
    }

    /// Registers a metric and returns it.
    pub(super) fn add<M: Readable + Clone>(&mut self, name: &str, help: &str, unit: Option<Unit>, metric: M) -> M {
        let suffix = unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let (full_name, full_help) = (format!("{}_{name}{suffix}", self.prefix), format!("{help}."));
        match unit.clone() {
            Some(unit) => self.text.register_with_unit(name, help, unit, metric.clone()),
            None => self.text.register(name, help, metric.clone()),
        }
        self.metrics.push(Registered { name: full_name, help: full_help, unit, metric: Box::new(metric.clone()) });
        metric
    }
}
