//! Requests to the OpenTelemetry collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
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
use tracing::{info, warn};
use url::Url;

use super::SCOPE;
use bellwire_net::outbound::{ExchangeError, ExchangeFailure, OutboundClient, OutboundLimits, PlainHttp};

/// Limits of a request. Data that the collector has not accepted in time are lost.
const LIMITS: OutboundLimits =
    OutboundLimits { timeout: Duration::from_secs(10), body_max_bytes: 64 << 10, idle_connections: 2 };

/// Failed request to the collector.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportFailure {
    #[error("the URL is invalid: {0}")]
    Invalid(#[from] http::Error),
    #[error("{}", .0.reason)]
    Exchange(#[from] ExchangeError),
    /// HTTP status other than 2xx. Redirects are included: the headers may contain a secret for the configured host only.
    #[error("it answered {0}")]
    Refused(StatusCode),
}

#[derive(Debug)]
pub(super) struct Collector {
    http: OutboundClient,
    endpoint: String,
    /// Host for logs: the URL's path may be a secret.
    host: String,
    headers: HeaderMap,
    failing: AtomicBool,
}

impl Collector {
    pub(super) fn new(
        endpoint: Url, extra_ca_pem: Option<&[u8]>, mut headers: HeaderMap,
    ) -> Result<Self, bellwire_gateway::SettingsError> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION"))));
        let http = OutboundClient::new(extra_ca_pem, None, PlainHttp::Anywhere, LIMITS)?;
        let host = endpoint.host_str().unwrap_or_default().to_owned();
        Ok(Self { http, endpoint: endpoint.into(), host, headers, failing: AtomicBool::new(false) })
    }

    /// Sends a message once. Logs the first failure, and the first success after it.
    pub(super) async fn send(&self, message: &impl Message) -> Result<(), ExportFailure> {
        let sent = self.post(message.encode_to_vec()).await;
        match &sent {
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                warn!(host = self.host, %error, "the OpenTelemetry collector accepts nothing; telemetry is lost until it does");
            }
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => {
                info!(host = self.host, "the OpenTelemetry collector accepts telemetry again");
            }
            _ => {}
        }
        sent
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), ExportFailure> {
        let mut request = Request::post(&self.endpoint).body(body.into())?;
        request.headers_mut().extend(self.headers.clone());
        let status = match self.http.exchange(request).await {
            Ok(response) => response.status(),
            // The body does not matter.
            Err(ExchangeError {
                reason: ExchangeFailure::TooLarge { status, .. } | ExchangeFailure::Incomplete { status, .. },
                ..
            }) => status,
            Err(error) => return Err(error.into()),
        };
        if status.is_success() { Ok(()) } else { Err(ExportFailure::Refused(status)) }
    }
}

#[derive(Debug)]
pub(super) struct SpanSink {
    collector: Arc<Collector>,
    resource: ResourceAttributesWithSchema,
    runtime: Handle,
}

impl SpanSink {
    /// Creates a sink whose requests run on the current runtime.
    pub(super) fn new(collector: Collector, resource: &Resource) -> Self {
        Self { collector: Arc::new(collector), resource: resource.into(), runtime: Handle::current() }
    }
}

impl SpanExporter for SpanSink {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let (collector, request) = (self.collector.clone(), ExportTraceServiceRequest { resource_spans });
        let sent = self.runtime.spawn(async move { collector.send(&request).await }).await;
        let failed = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure.to_string(),
            Err(cut_off) => cut_off.to_string(),
        };
        Err(OTelSdkError::InternalFailure(failed))
    }
}

/// Resource attributes of this process, sent with each request.
pub(super) fn resource_of(resource: &ResourceAttributesWithSchema) -> ResourceMessage {
    ResourceMessage { attributes: resource.attributes.0.clone(), ..ResourceMessage::default() }
}

/// Instrumentation scope of metrics.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope { name: SCOPE.to_owned(), ..InstrumentationScope::default() }
}
