//! The collector: requests to it, with a bound on everything that it could make us wait for or keep.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{info, warn};
use url::Url;

use super::SCOPE;
use crate::gateway::{self, client_config};

/// Where spans go, beneath the endpoint.
const TRACES: &str = "v1/traces";
/// Where metrics go.
pub(super) const METRICS: &str = "v1/metrics";
/// What has not been taken after this is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of an answer that are read; longer ones end with their connection.
const ANSWER_MAX: usize = 64 * 1024;

/// Why something was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("it could not be asked: {0}")]
    Unreachable(String),
    /// Redirections, too: the headers may hold a secret, which goes to nobody but who was set.
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// A client of the collector.
#[derive(Debug)]
pub(super) struct Collector {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: String,
    /// Its name in logs: the URL's path may be a secret.
    host: String,
    headers: HeaderMap,
    failing: AtomicBool,
}

impl Collector {
    pub(super) fn new(
        endpoint: &Url,
        extra_ca_pem: Option<&[u8]>,
        mut headers: HeaderMap,
    ) -> Result<Self, gateway::SettingsError> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION"))));
        let mut tls = client_config(extra_ca_pem)?;
        tls.alpn_protocols.clear(); // the connector's own affair
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .pool_max_idle_per_host(2)
            .build(connector);
        let host = endpoint.host_str().unwrap_or_default().to_owned();
        let endpoint = endpoint.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http, endpoint, host, headers, failing: AtomicBool::new(false) })
    }

    /// Sends a message once. The first failure is logged, and the first success after it.
    pub(super) async fn send(&self, path: &str, message: &impl Message) -> Result<(), Failure> {
        let sent = timeout(PATIENCE, self.post(path, message.encode_to_vec())).await.unwrap_or(Err(Failure::Silent));
        match &sent {
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                warn!(host = self.host, %error, "the OpenTelemetry collector takes nothing; spans are lost until it does");
            }
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => {
                info!(host = self.host, "the OpenTelemetry collector takes spans and metrics again");
            }
            _ => {}
        }
        sent
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> Result<(), Failure> {
        let mut request = Request::post(format!("{}/{path}", self.endpoint))
            .body(Full::from(body))
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        request.headers_mut().extend(self.headers.clone());
        let answer = self.http.request(request).await.map_err(|error| {
            // The client's own words are only that it failed.
            let source = error.source().map(ToString::to_string);
            Failure::Unreachable(source.unwrap_or_else(|| error.to_string()))
        })?;
        let status = answer.status();
        // Read so that the connection can be used again. What it says changes nothing: nothing is sent twice.
        let _ = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        if status.is_success() { Ok(()) } else { Err(Failure::Refused(status)) }
    }
}

/// Takes spans from the SDK, on its thread.
#[derive(Debug)]
pub(super) struct SpanSink {
    collector: Arc<Collector>,
    resource: ResourceAttributesWithSchema,
    runtime: Handle,
}

impl SpanSink {
    /// A sink whose requests are made on the runtime that this is called on.
    pub(super) fn new(collector: Arc<Collector>, resource: &Resource) -> Self {
        Self { collector, resource: resource.into(), runtime: Handle::current() }
    }
}

impl SpanExporter for SpanSink {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let (collector, request) = (self.collector.clone(), ExportTraceServiceRequest { resource_spans });
        let sent = self.runtime.spawn(async move { collector.send(TRACES, &request).await }).await;
        let failed = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure.to_string(),
            Err(cut_off) => cut_off.to_string(),
        };
        Err(OTelSdkError::InternalFailure(failed))
    }
}

/// This process, as it stands in each request.
pub(super) fn resource_of(resource: &ResourceAttributesWithSchema) -> ResourceMessage {
    ResourceMessage { attributes: resource.attributes.0.clone(), ..ResourceMessage::default() }
}

/// By whom metrics are made.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope { name: SCOPE.to_owned(), ..InstrumentationScope::default() }
}
