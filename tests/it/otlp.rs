//! OpenTelemetry: a message can be traced from its request to the gateway's response, and the metrics equal those of Prometheus. No fault
//! of the collector affects deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::Method;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use crate::support::app::scalar;
use crate::support::collector::{Answer, Collector, Span, texts};
use crate::support::engine::without_engine;
use crate::support::http::request_status;
use crate::support::simulator_rules::until_report;
use crate::support::{Server, TempDir, TestApp, seed};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// A stop that has to hand over what is left takes no longer.
const STOP_WITHIN: Duration = Duration::from_secs(20);

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Sends a message by way of a process, as a caller that is traced so.
async fn send(app: &TestApp, server: &Server, to: Value, traceparent: &str) {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str()), ("traceparent", traceparent)];
    let body = json!({"to": to, "content": {"title": "Hush", "body": "Not for collectors"}});
    assert_eq!(request_status(server.address, Method::POST, "/v1/apps/shop/messages", &headers, body).await, 202);
}

/// Stops a process, which hands over what is left.
async fn stop(server: Server) {
    server.terminate();
    assert!(server.end(STOP_WITHIN).await.success());
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.inner.name == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_spans_request_to_gateway_response() {
    let app = without_engine().await;
    let collector = Collector::start(Answer::Take).await;
    let subscriber = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let told = ["--otel-exporter-otlp-endpoint", &collector.url()];
    let api = Server::with(&app, &[&["--roles", "api"][..], &told].concat()).await;
    let worker = Server::with(&app, &[&["--roles", "worker,maintenance"][..], &told].concat()).await;
    send(&app, &api, json!({"users": ["ann"]}), &traceparent("01")).await;
    until_report(&app, |report| report.accepted == 1).await;
    stop(api).await;
    stop(worker).await;

    let spans = collector.taken().spans;
    let [request] = named(&spans, "POST /v1/apps/{app}/messages")[..] else { panic!("{spans:#?}") };
    assert_eq!((hex(&request.inner.trace_id), hex(&request.inner.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!(request.inner.kind(), SpanKind::Server);
    let attributes = request.attributes();
    assert_eq!(attributes["url.scheme"], "http");
    assert_eq!(
        (&*attributes["http.route"], &*attributes["http.response.status_code"]),
        ("/v1/apps/{app}/messages", "202")
    );

    let [delivery] = named(&spans, "deliver")[..] else { panic!("{spans:#?}") };
    assert!(delivery.is_child_of(request), "{delivery:?}");
    assert_ne!(delivery.resource["service.instance.id"], request.resource["service.instance.id"]);
    assert_eq!(delivery.resource["service.name"], "bellwire");
    let attributes = delivery.attributes();
    assert_eq!(attributes.keys().filter(|key| !key.starts_with("bellwire.")).count(), 0, "{attributes:?}");
    let said = ["tier", "gateway", "attempt", "outcome"].map(|key| attributes[&format!("bellwire.{key}")].as_str());
    assert_eq!(said, ["promotional", "fcm", "1", "accepted"]);

    let mut stages: Vec<_> = spans.iter().filter(|span| span.is_child_of(delivery)).collect();
    stages.sort_by_key(|span| (span.inner.start_time_unix_nano, span.inner.end_time_unix_nano));
    let names: BTreeSet<_> = stages.iter().map(|span| span.inner.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["claim", "wait", "seal", "POST", "settle"]));
    assert_eq!(stages.len(), names.len(), "each once: {stages:#?}");
    assert_eq!(stages[0].inner.start_time_unix_nano, delivery.inner.start_time_unix_nano);
    assert_eq!(stages[4].inner.end_time_unix_nano, delivery.inner.end_time_unix_nano);
    for pair in stages.windows(2) {
        assert_eq!(pair[0].inner.end_time_unix_nano, pair[1].inner.start_time_unix_nano, "without a gap: {pair:?}");
    }
    let [post] = named(&spans, "POST")[..] else { panic!("{spans:#?}") };
    let attributes = post.attributes();
    assert_eq!((post.inner.kind(), &*attributes["http.response.status_code"]), (SpanKind::Client, "201"));
    assert_eq!((&*attributes["server.address"], &*attributes["server.port"]), ("fcm.bellwire.test", "443"));

    let told = format!("{spans:?}");
    for secret in [subscriber.endpoint.as_str(), subscriber.id.as_str(), "ann\"", "Hush", &app.key] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_first_campaign_deliveries_are_traced() {
    let app = without_engine().await;
    let collector = Collector::start(Answer::Take).await;
    seed(&app, "fcm", 0..300).await;
    let server = Server::with(&app, &["--otel-exporter-otlp-endpoint", &collector.url()]).await;
    send(&app, &server, json!({"all": true}), &traceparent("01")).await;
    until_report(&app, |report| report.accepted == 300).await;
    stop(server).await;
    let spans = collector.taken().spans;
    let [request] = named(&spans, "POST /v1/apps/{app}/messages")[..] else { panic!("{spans:#?}") };
    let deliveries = named(&spans, "deliver");
    assert_eq!(deliveries.iter().filter(|delivery| delivery.is_child_of(request)).count(), 10);
    assert_eq!((deliveries.len(), spans.len()), (10, 1 + 10 * 6), "each with its five stages");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sampler_and_keyed_callers_decide_tracing() {
    let app = without_engine().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    for (sampler, flags, is_traced) in [
        ("always_off", "01", false),
        ("parentbased_always_on", "00", false),
        ("parentbased_always_off", "01", true),
        ("always_on", "00", true),
    ] {
        let collector = Collector::start(Answer::Take).await;
        let told = ["--otel-exporter-otlp-endpoint", &collector.url(), "--otel-traces-sampler", sampler];
        let server = Server::with(&app, &told).await;
        let stored = || async { scalar(&app.pool, "SELECT count(traceparent) FROM messages").await };
        let before = stored().await;
        send(&app, &server, to.clone(), &traceparent(flags)).await;
        // A browser is not believed.
        let browser = [("traceparent", &*traceparent("01"))];
        assert_eq!(
            request_status(server.address, Method::GET, "/v1/apps/shop/config", &browser, Value::Null).await,
            200
        );
        stop(server).await;
        assert_eq!(stored().await - before, i64::from(is_traced), "{sampler} {flags}");
        let taken = collector.taken();
        let of_caller = taken.spans.iter().filter(|span| hex(&span.inner.trace_id) == TRACE);
        let of_caller: BTreeSet<_> = of_caller.map(|span| span.inner.name.as_str()).collect();
        assert_eq!(of_caller.contains("POST /v1/apps/{app}/messages"), is_traced, "{sampler} {flags}: {of_caller:?}");
        assert!(!of_caller.contains("GET /v1/apps/{app}/config"), "{sampler} {flags}: {of_caller:?}");
        let asked = taken.asked.iter().any(|path| path == "v1/traces");
        assert_eq!(asked, is_traced || sampler.ends_with("always_on"), "{sampler} {flags}: of its own at most");
    }
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn untraced_messages_store_no_trace_context() {
    let app = without_engine().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let server = Server::with(&app, &["--otel-traces-sampler", "always_on"]).await;
    send(&app, &server, json!({"subscriptions": [subscriber.id]}), &traceparent("01")).await;
    until_report(&app, |report| report.accepted == 1).await;
    stop(server).await;
    assert_eq!(scalar(&app.pool, "SELECT count(traceparent) FROM messages").await, 0);
    app.finish().await;
}

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Value of a metric with these labels.
fn number(points: &[NumberDataPoint], of: &[(&str, &str)]) -> Option<Number> {
    points.iter().find(|point| texts(&point.attributes) == labels(of))?.value
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_exported_periodically_and_at_shutdown() {
    let app = without_engine().await;
    let collector = Collector::start(Answer::Take).await;
    seed(&app, "fcm", 0..300).await;
    let told = ["--otel-exporter-otlp-endpoint", &collector.url(), "--otel-metric-export-interval", "1000"];
    let server = Server::with(&app, &told).await;
    collector.until(|taken| taken.asked.iter().filter(|path| *path == "v1/metrics").count() >= 2).await;
    send(&app, &server, json!({"all": true}), &traceparent("00")).await;
    until_report(&app, |report| report.accepted == 300).await;
    stop(server).await;

    let metrics = collector.taken().metrics;
    let cumulative = AggregationTemporality::Cumulative as i32;
    let Some(Data::Sum(attempts)) = &metrics["bellwire_attempts"].data else { panic!("{metrics:?}") };
    assert!(attempts.is_monotonic && attempts.aggregation_temporality == cumulative);
    let accepted = [("gateway", "fcm"), ("status", "2xx"), ("tier", "promotional")];
    assert_eq!(number(&attempts.data_points, &accepted), Some(Number::AsInt(300)));
    let Some(Data::Histogram(took)) = &metrics["bellwire_attempt_seconds"].data else { panic!("{metrics:?}") };
    let of_fcm = labels(&[("gateway", "fcm")]);
    let point = took.data_points.iter().find(|point| texts(&point.attributes) == of_fcm).expect("a point of FCM");
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (300, 300));
    assert_eq!((point.bucket_counts.len(), metrics["bellwire_attempt_seconds"].unit.as_str()), (12, "s"));
    assert_eq!(took.aggregation_temporality, cumulative);
    let Some(Data::Histogram(requests)) = &metrics["http.server.request.duration"].data else { panic!("{metrics:?}") };
    let sent = [
        ("http.request.method", "POST"),
        ("http.response.status_code", "202"),
        ("http.route", "/v1/apps/{app}/messages"),
        ("url.scheme", "http"),
    ];
    let point = requests.data_points.iter().find(|point| texts(&point.attributes) == labels(&sent));
    assert_eq!(point.expect("a point of the route").count, 1);
    let Some(Data::Gauge(active)) = &metrics["bellwire_subscriptions_active"].data else { panic!("{metrics:?}") };
    assert_eq!(number(&active.data_points, &[("gateway", "wns")]), Some(Number::AsInt(0)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_collector_delays_nothing() {
    let app = without_engine().await;
    let collector = Collector::start(Answer::Hang).await;
    seed(&app, "fcm", 0..300).await;
    let told = ["--otel-exporter-otlp-endpoint", &collector.url(), "--otel-metric-export-interval", "1000"];
    let server = Server::with(&app, &told).await;
    send(&app, &server, json!({"all": true}), &traceparent("01")).await;
    collector.until(|taken| taken.asked.iter().any(|path| path == "v1/traces")).await;
    // It has a request in hand that it never answers.
    send(&app, &server, json!({"all": true}), &traceparent("01")).await;
    until_report(&app, |report| report.accepted == 600).await;
    server.terminate();
    assert!(server.end(Duration::from_secs(10)).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirecting_collector_never_leaks_the_secret() {
    let app = without_engine().await;
    let collector = Collector::start(Answer::Redirect).await;
    let dir = TempDir::new();
    let file = dir.path().join("settings.toml");
    std::fs::write(&file, "otel_exporter_otlp_headers = 'x-secret=of%20mine'\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let url = collector.url();
    let told = ["--config", file, "--otel-exporter-otlp-endpoint", &url, "--otel-metric-export-interval", "1000"];
    let mut server = Server::with(&app, &told).await;
    let line = server.until_said("OpenTelemetry collector").await;
    assert!(line.contains("it answered 308 Permanent Redirect") && line.contains("WARN"), "{line}");
    let taken = collector.until(|taken| taken.asked.len() >= 3).await;
    assert!(taken.asked.iter().all(|path| path == "v1/metrics"), "{:?}", taken.asked);
    assert_eq!(taken.headers["x-secret"], "of mine");
    assert_eq!(taken.headers["content-type"], "application/x-protobuf");

    collector.answers(Answer::TakeAtLength);
    let line = server.until_said("OpenTelemetry collector").await;
    assert!(line.contains("again"), "one line until it works: {line}");
    collector.until(|taken| taken.asked.len() >= 5).await;
    server.terminate();
    let rest = server.rest_of_log().await;
    assert!(!rest.contains("OpenTelemetry collector") && !rest.contains("of mine"), "{rest}");
    app.finish().await;
}
