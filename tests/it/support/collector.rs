//! A collector of OpenTelemetry: takes spans and metrics by OTLP over HTTP, or does what a bad one does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1 as proto;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::app::PATIENCE;

/// Behaviour on a request.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    Take,
    /// Accepts the request and never ends its response.
    TakeAtLength,
    /// Redirects requests to `/elsewhere`.
    Redirect,
    /// No response.
    Hang,
}

/// Received data.
#[derive(Debug, Default, Clone)]
pub struct Taken {
    /// Paths of all requests.
    pub asked: Vec<String>,
    /// Headers of the last one.
    pub headers: HeaderMap,
    pub spans: Vec<Span>,
    /// The last of each name.
    pub metrics: BTreeMap<String, Metric>,
}

/// A span.
#[derive(Debug, Clone)]
pub struct Span {
    pub inner: proto::Span,
    /// Attributes of the process.
    pub resource: BTreeMap<String, String>,
}

impl Span {
    /// Attributes as strings.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        texts(&self.inner.attributes)
    }

    /// Whether that one is its parent.
    pub fn is_child_of(&self, parent: &Span) -> bool {
        (&self.inner.trace_id, &self.inner.parent_span_id) == (&parent.inner.trace_id, &parent.inner.span_id)
    }
}

/// Attributes by their names, as texts.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

struct Shared {
    answer: Mutex<Answer>,
    taken: Mutex<Taken>,
    changed: Notify,
}

/// A collector that listens until it is dropped.
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

impl Collector {
    pub async fn start(answer: Answer) -> Self {
        let shared = Arc::new(Shared { answer: Mutex::new(answer), taken: Mutex::default(), changed: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = axum::Router::new().route("/{*path}", any(take)).with_state(shared.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, shared, _serving: serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it does that.
    pub fn answers(&self, answer: Answer) {
        *self.shared.answer.lock() = answer;
    }

    /// Data received so far.
    pub fn taken(&self) -> Taken {
        self.shared.taken.lock().clone()
    }

    /// Waits until it was sent what is wanted.
    pub async fn until(&self, wanted: impl Fn(&Taken) -> bool) -> Taken {
        let waited = timeout(PATIENCE, async {
            loop {
                let changed = self.shared.changed.notified();
                let taken = self.taken();
                if wanted(&taken) {
                    return taken;
                }
                changed.await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("this was never sent; it was sent {:#?}", self.taken()))
    }
}

async fn take(
    State(shared): State<Arc<Shared>>, Path(path): Path<String>, headers: HeaderMap, body: Bytes,
) -> Response {
    let answer = *shared.answer.lock();
    {
        let mut taken = shared.taken.lock();
        taken.asked.push(path.clone());
        taken.headers = headers;
        if matches!(answer, Answer::Take | Answer::TakeAtLength) {
            keep(&mut taken, &path, body);
        }
    }
    shared.changed.notify_waiters();
    match answer {
        Answer::Take => StatusCode::OK.into_response(),
        Answer::TakeAtLength => "more and more ".repeat(100_000).into_response(),
        Answer::Redirect => (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/elsewhere")]).into_response(),
        Answer::Hang => std::future::pending().await,
    }
}

fn keep(taken: &mut Taken, path: &str, body: Bytes) {
    match path {
        "v1/traces" => {
            let request = ExportTraceServiceRequest::decode(body).expect("spans in protobuf");
            for of_resource in request.resource_spans {
                let resource = texts(&of_resource.resource.unwrap_or_default().attributes);
                let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
                taken.spans.extend(spans.map(|inner| Span { inner, resource: resource.clone() }));
            }
        }
        "v1/metrics" => {
            let request = ExportMetricsServiceRequest::decode(body).expect("metrics in protobuf");
            let scopes = request.resource_metrics.into_iter().flat_map(|of_resource| of_resource.scope_metrics);
            let metrics = scopes.flat_map(|of_scope| of_scope.metrics);
            taken.metrics.extend(metrics.map(|metric| (metric.name.clone(), metric)));
        }
        other => panic!("nothing of OTLP goes to {other}"),
    }
}
