//! Converts metrics to OTLP.

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::common::v1::KeyValue as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use opentelemetry_proto::transform::common::tonic::Attributes;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::metrics::{Labels, Metrics, Registered, Value};
use bellwire_core::clock::Timestamp;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Period over which something was counted.
#[derive(Clone, Copy)]
struct CountingPeriod {
    from_ns: u64,
    to_ns: u64,
}

/// Reads all metrics. Counters began at `began`.
pub(super) fn read(metrics: &Metrics, began: Timestamp, now: Timestamp) -> Vec<Metric> {
    let span = CountingPeriod { from_ns: nanoseconds(began), to_ns: nanoseconds(now) };
    metrics.registered().filter_map(|registered| metric(registered, span)).collect()
}

fn nanoseconds(at: Timestamp) -> u64 {
    at.timestamp_nanos_opt().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

/// Returns `None` for a metric without series.
fn metric(registered: &Registered, span: CountingPeriod) -> Option<Metric> {
    let points = registered.read();
    if points.is_empty() {
        return None;
    }
    let numbers =
        |from_ns| points.iter().filter_map(|point| number(point, CountingPeriod { from_ns, ..span })).collect();
    let data = match registered.kind() {
        MetricType::Counter => Data::Sum(Sum {
            data_points: numbers(span.from_ns),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricType::Histogram => {
            let data_points = points.iter().filter_map(|point| histogram(point, span)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality: CUMULATIVE })
        }
        // A constant, such as the version, is a gauge of 1 with labels.
        _ => Data::Gauge(Gauge { data_points: numbers(0) }),
    };
    let unit = match &registered.unit {
        Some(Unit::Seconds) => "s",
        Some(unit) => unit.as_str(),
        None => "",
    };
    let (name, description, unit) =
        (conventional(&registered.name).to_owned(), registered.help.clone(), unit.to_owned());
    Some(Metric { name, description, unit, data: Some(data), ..Metric::default() })
}

fn number((labels, value): &(Labels, Value), span: CountingPeriod) -> Option<NumberDataPoint> {
    let value = match value {
        Value::Int(number) => Number::AsInt(*number),
        Value::Float(number) => Number::AsDouble(*number),
        Value::Histogram { .. } => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: span.from_ns,
        time_unix_nano: span.to_ns,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram((labels, value): &(Labels, Value), span: CountingPeriod) -> Option<HistogramDataPoint> {
    let Value::Histogram { sum, buckets } = value else { return None };
    let (bounds, bucket_counts): (Vec<f64>, Vec<u64>) = buckets.iter().copied().unzip();
    Some(HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: span.from_ns,
        time_unix_nano: span.to_ns,
        count: bucket_counts.iter().sum(),
        sum: Some(*sum),
        bucket_counts,
        explicit_bounds: bounds.into_iter().filter(|bound| bound.is_finite()).collect(),
        ..HistogramDataPoint::default()
    })
}

fn attributes(labels: &Labels) -> Vec<Attribute> {
    let attribute = |&(name, ref value): &(&'static str, String)| match (conventional(name), value.parse::<i64>()) {
        (name @ "http.response.status_code", Ok(status)) => KeyValue::new(name, status),
        (name, _) => KeyValue::new(name, value.clone()),
    };
    Attributes::from(labels.iter().map(attribute)).0
}

/// Returns the name that OpenTelemetry's semantic conventions have for a metric or a label, or the name itself.
fn conventional(name: &str) -> &str {
    match name {
        "http_server_request_duration_seconds" => "http.server.request.duration",
        "http_request_method" => "http.request.method",
        "http_response_status_code" => "http.response.status_code",
        "http_route" => "http.route",
        "url_scheme" => "url.scheme",
        "error_type" => "error.type",
        _ => name,
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/telemetry/unit/otlp/figures.rs"]
mod tests;
