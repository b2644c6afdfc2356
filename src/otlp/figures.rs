//! What `/metrics` shows, as OTLP has it: one instrumentation, two forms. The text is our own, in the form of OpenMetrics.

use std::collections::BTreeMap;

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::common::v1::KeyValue as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use opentelemetry_proto::transform::common::tonic::Attributes;

use crate::model::clock::Timestamp;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Labels with their values, in the order of the text.
type Labels = Vec<(String, String)>;

/// Samples that one `# TYPE` stands above.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    unit: &'a str,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    name: &'a str,
    labels: Labels,
    value: &'a str,
}

/// From when to when something was counted.
#[derive(Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
}

/// Every metric of an exposition. What is counted has been since `began`.
pub(super) fn translate(exposition: &str, began: Timestamp, now: Timestamp) -> Vec<Metric> {
    let span = Span { from_ns: nanoseconds(began), to_ns: nanoseconds(now) };
    families(exposition).into_iter().map(|family| metric(&family, span)).collect()
}

fn nanoseconds(at: Timestamp) -> u64 {
    at.timestamp_nanos_opt().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

fn families(exposition: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in exposition.lines() {
        let Some(told) = line.strip_prefix("# ") else {
            let sample = sample(line);
            if let Some((family, sample)) = families.last_mut().zip(sample) {
                family.samples.push(sample);
            }
            continue;
        };
        let mut words = told.splitn(3, ' ');
        let (Some(what), Some(name), Some(told)) = (words.next(), words.next(), words.next()) else { continue };
        if families.last().is_none_or(|family| family.name != name) {
            families.push(Family { name, ..Family::default() });
        }
        let family = families.last_mut().expect("it was just pushed");
        match what {
            "HELP" => family.help = told,
            "TYPE" => family.kind = told,
            "UNIT" => family.unit = told,
            _ => {}
        }
    }
    families
}

/// `name{label="value",…} value`
fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    Some(Sample { name, labels, value: rest.trim() })
}

/// Labels up to their closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        rest = loop {
            match chars.next()? {
                (end, '"') => break &quoted[end + 1..],
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
    }
}

fn metric(family: &Family<'_>, span: Span) -> Metric {
    let data = match family.kind {
        "counter" => {
            let data_points = numbers(family, span);
            Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
        }
        "histogram" => {
            Data::Histogram(Histogram { data_points: histograms(family, span), aggregation_temporality: CUMULATIVE })
        }
        // What is known for good, such as the version, is a gauge of 1 with labels.
        _ => Data::Gauge(Gauge { data_points: numbers(family, span) }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: match family.unit {
            "seconds" => "s".to_owned(),
            "bytes" => "By".to_owned(),
            other => other.to_owned(),
        },
        data: Some(data),
        ..Metric::default()
    }
}

fn numbers(family: &Family<'_>, span: Span) -> Vec<NumberDataPoint> {
    let point = |sample: &Sample<'_>| {
        let whole = sample.value.parse().ok().map(Value::AsInt);
        Some(NumberDataPoint {
            attributes: attributes(&sample.labels),
            start_time_unix_nano: if family.kind == "counter" { span.from_ns } else { 0 },
            time_unix_nano: span.to_ns,
            value: Some(whole.or_else(|| sample.value.parse().ok().map(Value::AsDouble))?),
            ..NumberDataPoint::default()
        })
    };
    family.samples.iter().filter_map(point).collect()
}

/// One point for each set of labels. The text's buckets hold those below them, too; a point's do not.
fn histograms(family: &Family<'_>, span: Span) -> Vec<HistogramDataPoint> {
    let mut points = BTreeMap::<Labels, HistogramDataPoint>::new();
    for sample in &family.samples {
        let (bounds, labels): (Labels, Labels) = sample.labels.iter().cloned().partition(|(name, _)| name == "le");
        let point = points.entry(labels).or_default();
        match sample.name.strip_prefix(family.name) {
            Some("_sum") => point.sum = sample.value.parse().ok(),
            Some("_count") => point.count = sample.value.parse().unwrap_or(0),
            Some("_bucket") => {
                let below: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(sample.value.parse::<u64>().unwrap_or(below).saturating_sub(below));
                let bound = bounds.first().and_then(|(_, bound)| bound.parse::<f64>().ok());
                point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
            }
            _ => {}
        }
    }
    let complete = |(labels, point): (Labels, HistogramDataPoint)| HistogramDataPoint {
        attributes: attributes(&labels),
        start_time_unix_nano: span.from_ns,
        time_unix_nano: span.to_ns,
        ..point
    };
    points.into_iter().map(complete).collect()
}

fn attributes(labels: &Labels) -> Vec<Attribute> {
    Attributes::from(labels.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()))).0
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value;

    use super::*;

    const TEXT: &str = concat!(
        "# HELP a_posts POSTs.\n# TYPE a_posts counter\n",
        "a_posts_total{gateway=\"fcm\",route=\"/x/{y}\"} 3\na_posts_total{gateway=\"a\\\\b\\\"c\\nd, e=\\\"f\"} 0\n",
        "# HELP a_took_seconds Time.\n# TYPE a_took_seconds histogram\n# UNIT a_took_seconds seconds\n",
        "a_took_seconds_sum{tier=\"x\"} 1.5\na_took_seconds_count{tier=\"x\"} 4\n",
        "a_took_seconds_bucket{le=\"0.1\",tier=\"x\"} 1\na_took_seconds_bucket{le=\"1.0\",tier=\"x\"} 3\n",
        "a_took_seconds_bucket{le=\"+Inf\",tier=\"x\"} 4\n",
        "# HELP a_offset_seconds Ahead.\n# TYPE a_offset_seconds gauge\n# UNIT a_offset_seconds seconds\n",
        "a_offset_seconds -0.25\n",
        "# HELP a_build What runs.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n# EOF\n",
    );

    fn read() -> Vec<Metric> {
        let at = |s| Timestamp::from_timestamp(s, 0).unwrap();
        translate(TEXT, at(1), at(2))
    }

    fn named(attributes: &[Attribute]) -> Vec<String> {
        let text = |attribute: &Attribute| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => format!("{}={text}", attribute.key),
            other => panic!("{other:?}"),
        };
        attributes.iter().map(text).collect()
    }

    #[test]
    fn each_family_becomes_a_metric_of_its_kind() {
        let metrics = read();
        let told: Vec<_> = metrics.iter().map(|m| (m.name.as_str(), m.description.as_str(), m.unit.as_str())).collect();
        let expected = [
            ("a_posts", "POSTs.", ""),
            ("a_took_seconds", "Time.", "s"),
            ("a_offset_seconds", "Ahead.", "s"),
            ("a_build", "What runs.", ""),
        ];
        assert_eq!(told, expected);
        let Some(Data::Sum(posts)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(posts.is_monotonic && posts.aggregation_temporality == CUMULATIVE);
        let [first, second] = &posts.data_points[..] else { panic!("{posts:?}") };
        assert_eq!((first.value, second.value), (Some(Value::AsInt(3)), Some(Value::AsInt(0))));
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1_000_000_000, 2_000_000_000));
        let Some(Data::Gauge(offset)) = &metrics[2].data else { panic!("{metrics:?}") };
        assert_eq!(offset.data_points[0].value, Some(Value::AsDouble(-0.25)));
        assert!(matches!(&metrics[3].data, Some(Data::Gauge(build)) if build.data_points.len() == 1));
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        let Some(Data::Sum(posts)) = read().swap_remove(0).data else { panic!("a sum") };
        assert_eq!(named(&posts.data_points[0].attributes), ["gateway=fcm", "route=/x/{y}"]);
        assert_eq!(named(&posts.data_points[1].attributes), ["gateway=a\\b\"c\nd, e=\"f"]);
        for broken in ["a{", "a{b", "a{b=\"c", "a{b=\"c\\", "a"] {
            assert!(sample(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_histograms_buckets_hold_what_lies_between_their_bounds() {
        let Some(Data::Histogram(took)) = read().swap_remove(1).data else { panic!("a histogram") };
        let [point] = &took.data_points[..] else { panic!("{took:?}") };
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 2, 1][..], &[0.1, 1.0][..]));
        assert_eq!((point.count, point.sum, named(&point.attributes)), (4, Some(1.5), vec!["tier=x".to_owned()]));
        assert_eq!(took.aggregation_temporality, CUMULATIVE);
    }

    /// Samples as Prometheus would be shown them, each by its name and labels.
    fn samples_of(metric: &Metric) -> Vec<(String, f64)> {
        let name = |suffix: &str, labels: &[Attribute]| format!("{}{suffix} {}", metric.name, named(labels).join(","));
        let value = |point: &NumberDataPoint| match point.value {
            Some(Value::AsInt(number)) => number as f64,
            Some(Value::AsDouble(number)) => number,
            None => panic!("{point:?}"),
        };
        let numbers = |suffix: &str, points: &[NumberDataPoint]| {
            points.iter().map(|point| (name(suffix, &point.attributes), value(point))).collect()
        };
        let histogram = |point: &HistogramDataPoint| {
            let below = |n: usize| point.bucket_counts[..=n].iter().sum::<u64>() as f64;
            let bounds = point.explicit_bounds.iter().copied().chain([f64::INFINITY]);
            let bucket = |(n, bound)| (name(&format!("_bucket {bound}"), &point.attributes), below(n));
            let sum = (name("_sum", &point.attributes), point.sum.unwrap());
            let count = (name("_count", &point.attributes), point.count as f64);
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
    fn a_collector_is_told_what_prometheus_is_shown_and_nothing_else() {
        use crate::model::delivery::Tier;
        use crate::model::lane::Gateway;

        let metrics = crate::metrics::Metrics::new();
        metrics.attempt(Gateway::Wns, Tier::Promotional, Some(201), std::time::Duration::from_millis(30));
        metrics.request("POST", "/v1/apps/{app}/messages", 202);
        metrics.clock_offset_s.set(-0.25);
        let text = metrics.render();
        let mut shown: Vec<(String, f64)> = Vec::new();
        for sample in text.lines().filter(|line| !line.starts_with('#')).map(|line| sample(line).unwrap()) {
            let (le, labels): (Labels, Labels) = sample.labels.into_iter().partition(|(name, _)| name == "le");
            let le: String = le.iter().map(|(_, bound)| format!(" {}", bound.parse::<f64>().unwrap())).collect();
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
            shown.push((format!("{}{le} {labels}", sample.name), sample.value.parse().unwrap()));
        }
        let at = Timestamp::UNIX_EPOCH;
        let mut told: Vec<_> = translate(&text, at, at).iter().flat_map(samples_of).collect();
        shown.sort_by(|a, b| a.partial_cmp(b).unwrap());
        told.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert!(shown.len() > 250, "only {}", shown.len());
        assert_eq!(told, shown);
    }
}
