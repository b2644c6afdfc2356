//! Unit tests of `crates/bellwire-telemetry/src/otlp/figures.rs`, which includes them.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value;

use super::*;
use bellwire_core::delivery::Tier;
use bellwire_core::lane::Gateway;

fn used() -> std::sync::Arc<Metrics> {
    let metrics = Metrics::new();
    metrics.attempt(Gateway::Wns, Tier::Promotional, Some(201), Duration::from_millis(250));
    metrics.attempt(Gateway::Wns, Tier::Promotional, Some(201), Duration::from_secs(100));
    let route = "/v1/apps/{app}/messages".to_owned();
    metrics.request(&http::Method::POST, route, "https", 503, Duration::from_millis(30));
    metrics.clock_offset_s.set(-0.25);
    metrics
}

fn named(attributes: &[Attribute]) -> Vec<String> {
    let text = |attribute: &Attribute| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => format!("{}=\"{text}\"", attribute.key.replace('.', "_")),
        Some(any_value::Value::IntValue(number)) => format!("{}=\"{number}\"", attribute.key.replace('.', "_")),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(text).collect()
}

#[test]
fn counters_have_time_span_and_gauges_an_instant() {
    let at = |s| Timestamp::from_timestamp(s, 0).unwrap();
    let metrics = read(&used(), at(1), at(2));
    let find = |name| metrics.iter().find(|metric| metric.name == name).unwrap();
    let times = |point: &NumberDataPoint| (point.start_time_unix_nano, point.time_unix_nano);
    let Some(Data::Sum(attempts)) = &find("bellwire_attempts").data else { panic!("{metrics:?}") };
    assert!(attempts.is_monotonic && attempts.aggregation_temporality == CUMULATIVE);
    assert_eq!(times(&attempts.data_points[0]), (1_000_000_000, 2_000_000_000));
    let offset = find("bellwire_clock_offset_seconds");
    assert_eq!((&*offset.unit, offset.description.ends_with('.')), ("s", true));
    let Some(Data::Gauge(gauge)) = &offset.data else { panic!("{offset:?}") };
    assert_eq!(times(&gauge.data_points[0]), (0, 2_000_000_000));
}

#[test]
fn request_durations_follow_semantic_conventions() {
    let metrics = read(&used(), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    let duration = metrics.iter().find(|metric| metric.name == "http.server.request.duration").unwrap();
    let Some(Data::Histogram(durations)) = &duration.data else { panic!("{duration:?}") };
    let [point] = &durations.data_points[..] else { panic!("{durations:?}") };
    let value = |attribute: &Attribute| attribute.value.clone().unwrap().value.unwrap();
    let values: Vec<_> = point.attributes.iter().map(|a| (a.key.as_str(), value(a))).collect();
    let text = |text: &str| any_value::Value::StringValue(text.to_owned());
    let expected = [
        ("http.request.method", text("POST")),
        ("http.response.status_code", any_value::Value::IntValue(503)),
        ("url.scheme", text("https")),
        ("http.route", text("/v1/apps/{app}/messages")),
        ("error.type", text("503")),
    ];
    assert_eq!(values, expected);
    let bounds = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
    assert_eq!((&*duration.unit, &point.explicit_bounds[..], point.bucket_counts[3]), ("s", &bounds[..], 1));
}

/// Lines that Prometheus is shown for a metric.
fn lines_of(metric: &Metric) -> Vec<String> {
    let name = match metric.name.as_str() {
        "http.server.request.duration" => "http_server_request_duration_seconds",
        name => name,
    };
    let line = |suffix: &str, labels: Vec<String>, value: String| match labels.as_slice() {
        [] => format!("{name}{suffix} {value}"),
        labels => format!("{name}{suffix}{{{}}} {value}", labels.join(",")),
    };
    let number = |point: &NumberDataPoint| match point.value {
        Some(Number::AsInt(number)) => number.to_string(),
        Some(Number::AsDouble(number)) => format!("{number:?}"),
        None => panic!("{point:?}"),
    };
    let numbers = |suffix: &str, points: &[NumberDataPoint]| {
        points.iter().map(|point| line(suffix, named(&point.attributes), number(point))).collect()
    };
    let histogram = |point: &HistogramDataPoint| {
        let labels = || named(&point.attributes);
        let bounds = point.explicit_bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        let bucket = |(n, bound)| {
            let labels = [vec![format!("le=\"{bound}\"")], labels()].concat();
            line("_bucket", labels, point.bucket_counts[..=n].iter().sum::<u64>().to_string())
        };
        let sum = line("_sum", labels(), format!("{:?}", point.sum.unwrap()));
        let count = line("_count", labels(), point.count.to_string());
        bounds.enumerate().map(bucket).chain([sum, count]).collect::<Vec<_>>()
    };
    match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => numbers("_total", &sum.data_points),
        Data::Gauge(gauge) if metric.name.ends_with("_build") => numbers("_info", &gauge.data_points),
        Data::Gauge(gauge) => numbers("", &gauge.data_points),
        Data::Histogram(histograms) => histograms.data_points.iter().flat_map(histogram).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn otlp_and_prometheus_show_the_same() {
    // Other tests change these between the two readings.
    let shared = ["process_", "bellwire_panics", "bellwire_slow_statements"];
    let is_shared = |line: &String| shared.iter().any(|name| line.starts_with(name));
    let metrics = used();
    let (text, at) = (metrics.render(), Timestamp::UNIX_EPOCH);
    let mut shown: Vec<String> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let mut exported: Vec<_> = read(&metrics, at, at).iter().flat_map(lines_of).collect();
    assert_eq!(exported.len(), shown.len());
    shown.retain(|line| !is_shared(line));
    exported.retain(|line| !is_shared(line));
    shown.sort();
    exported.sort();
    assert!(shown.len() > 250, "only {}", shown.len());
    assert_eq!(exported, shown);
}
