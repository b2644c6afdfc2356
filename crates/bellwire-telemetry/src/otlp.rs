//! OpenTelemetry: traces and metrics for a collector, by OTLP over HTTP. Nothing of it exists unless a collector is set.
//!
//! ```text
//!  spans ──► queue (bounded; what does not fit is lost) ──► a thread of the SDK ──┐
//!  metrics, read as often as the settings say ──► figures ────────────────────────┴──► collector
//! ```
//!
//! Creating a span never waits for the collector, and nothing is sent twice.

mod collector;
mod figures;
mod spans;

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider};
use tokio::time::timeout;
use tracing::{debug, info};
use url::Url;

use crate::metrics::Metrics;
use bellwire_core::clock::{Clock, Timestamp};
use collector::{Collector, SpanSink, resource_of};
pub use spans::Tracer;
pub use spans::{DeliverySpan, Stage, TraceOrigin, current};

/// Instrumentation scope of spans and metrics.
const SCOPE: &str = "bellwire";
const SPANS_WAITING_MAX: usize = 4_096;
const SPANS_AT_ONCE: usize = 512;
const GATHER: Duration = Duration::from_secs(2);
/// Time limit for the last export at shutdown.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct OtlpConfig {
    /// URL for traces. `None`: no traces.
    pub traces: Option<Url>,
    /// URL for metrics. `None`: not exported.
    pub metrics: Option<Url>,
    /// Trusted certificates (PEM) for the collector, in addition to Mozilla's roots.
    pub extra_ca_pem: Option<Vec<u8>>,
    pub headers: HeaderMap,
    pub service_name: String,
    /// Additional resource attributes, which override Bellwire's own.
    pub resource: BTreeMap<String, String>,
    pub sampling: Sampling,
    /// Share of traced requests, 0 to 1, for samplers that use one.
    pub share: f64,
    /// Interval of metrics exports.
    pub metrics_every: Duration,
}

/// Selection of traced requests: the samplers of OpenTelemetry's specification. With parent-based samplers, a caller's own sampling
/// decision applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    AlwaysOn,
    AlwaysOff,
    Share,
    ParentOrAlwaysOn,
    ParentOrAlwaysOff,
    ParentOrShare,
}

impl Sampling {
    fn sampler(self, share: f64) -> Sampler {
        let or = |root| Sampler::ParentBased(Box::new(root));
        match self {
            Self::AlwaysOn => Sampler::AlwaysOn,
            Self::AlwaysOff => Sampler::AlwaysOff,
            Self::Share => Sampler::TraceIdRatioBased(share),
            Self::ParentOrAlwaysOn => or(Sampler::AlwaysOn),
            Self::ParentOrAlwaysOff => or(Sampler::AlwaysOff),
            Self::ParentOrShare => or(Sampler::TraceIdRatioBased(share)),
        }
    }
}

#[derive(Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
    metrics: Option<Collector>,
    is_tracing: bool,
    resource: ResourceAttributesWithSchema,
    clock: Clock,
    began: Timestamp,
    metrics_every: Duration,
}

impl Otlp {
    /// Starts the export on the current runtime. The collector need not be reachable.
    ///
    /// # Errors If its certificates are invalid.
    pub fn start(settings: OtlpConfig, clock: Clock) -> Result<Self, bellwire_gateway::SettingsError> {
        let OtlpConfig { traces, metrics, extra_ca_pem, headers, service_name, .. } = settings;
        // Replicas are of one service, and their series must not be taken for each other's.
        let resource = Resource::builder_empty()
            .with_service_name(service_name)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", clock.uuid().to_string()))
            .with_attributes(settings.resource.into_iter().map(|(name, value)| KeyValue::new(name, value)))
            .build();
        let host = |url: &Option<Url>| url.as_ref().and_then(Url::host_str).map(str::to_owned);
        info!(traces = host(&traces), metrics = host(&metrics), "telemetry is exported");
        let collector = |url: Url| Collector::new(url, extra_ca_pem.as_deref(), headers.clone());
        let (traces, metrics) = (traces.map(collector).transpose()?, metrics.map(collector).transpose()?);
        let is_tracing = traces.is_some();
        let gathering = BatchConfigBuilder::default()
            .with_max_queue_size(SPANS_WAITING_MAX)
            .with_max_export_batch_size(SPANS_AT_ONCE)
            .with_scheduled_delay(GATHER)
            .build();
        let mut provider = SdkTracerProvider::builder()
            .with_sampler(settings.sampling.sampler(settings.share))
            .with_resource(resource.clone());
        if let Some(traces) = traces {
            let sink = BatchSpanProcessor::builder(SpanSink::new(traces, &resource));
            provider = provider.with_span_processor(sink.with_batch_config(gathering).build());
        }
        let (provider, resource, began) = (provider.build(), (&resource).into(), clock.now());
        Ok(Self { provider, metrics, is_tracing, resource, clock, began, metrics_every: settings.metrics_every })
    }

    pub fn tracer(&self) -> Tracer {
        if !self.is_tracing {
            return Tracer::off();
        }
        Tracer::new(self.provider.tracer(SCOPE), self.clock.clone())
    }

    /// Returns the interval of metrics exports.
    pub fn metrics_every(&self) -> Duration {
        self.metrics_every
    }

    pub async fn tell_metrics(&self, metrics: &Metrics) {
        let Some(collector) = &self.metrics else { return };
        let metrics = figures::read(metrics, self.began, self.clock.now());
        let scope_metrics = ScopeMetrics { scope: Some(collector::scope()), metrics, ..ScopeMetrics::default() };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource_of(&self.resource)),
                scope_metrics: vec![scope_metrics],
                ..ResourceMetrics::default()
            }],
        };
        // Whether it was taken has been logged, and the next ones tell all of this again.
        let _ = collector.send(&request).await;
    }

    /// Exports the remaining spans and a last set of `metrics`, within [`FLUSH_WITHIN`]. Spans created later are dropped.
    pub async fn stop<'m>(&self, metrics: impl Future<Output = &'m Metrics>) {
        let provider = self.provider.clone();
        // It blocks until the SDK's thread is done.
        let spans = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_WITHIN));
        let metrics = timeout(FLUSH_WITHIN, async { self.tell_metrics(metrics.await).await });
        let (spans, metrics) = tokio::join!(spans, metrics);
        if !matches!(spans, Ok(Ok(()))) || metrics.is_err() {
            debug!("the last spans or metrics are lost");
        }
    }
}
