//! Spans: of requests, and of what becomes of the deliveries that they ask for.
//!
//! ```text
//!  POST /v1/apps/{app}/messages
//!    └─ deliver ─┬─ claim    from the statement that claims it, or gives birth to it, to the queue
//!                ├─ wait     for its turn
//!                ├─ seal     its payload is rendered, signed for and encrypted
//!                ├─ POST     to the gateway, until its answer
//!                └─ settle   until its outcome is written
//! ```
//!
//! Which request a message came with is stored with it, as `traceparent`: other processes may deliver it, and much later.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use http::{HeaderMap, Method, header};
use opentelemetry::context::FutureExt as _;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::named;

use crate::metrics::{OTHER_METHOD, method_name};

/// Maximum number of traced attempts of one message, until a worker reads the message again, once a minute. A campaign must not become ten
/// million spans.
const TURNS_TRACED: u32 = 10;
/// Header with the caller's span (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";

/// Creates spans; without a collector it does nothing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracer(Option<On>);

#[derive(Debug, Clone)]
struct On {
    tracer: SdkTracer,
    clock: Clock,
}

impl Tracer {
    /// Builds an exporter that records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    pub(super) fn new(tracer: SdkTracer, clock: Clock) -> Self {
        Self(Some(On { tracer, clock }))
    }

    /// Starts the span of a request. `None` if the request is not traced. `route` is the pattern, never the path. A caller's parent span is
    /// accepted only with a key: browsers must not decide what is traced.
    pub fn request(
        &self, method: &Method, route: &str, scheme: &'static str, headers: &HeaderMap,
    ) -> Option<RequestSpan> {
        let On { tracer, clock } = self.0.as_ref()?;
        let told = headers.get(TRACEPARENT).filter(|_| headers.contains_key(header::AUTHORIZATION));
        let caller = told.and_then(|value| value.to_str().ok()).and_then(parse);
        let method = method_name(method);
        let verb = if method == OTHER_METHOD { "HTTP" } else { method };
        let name = if route.is_empty() { verb.to_owned() } else { format!("{verb} {route}") };
        let mut attributes = vec![KeyValue::new("http.request.method", method), KeyValue::new("url.scheme", scheme)];
        if !route.is_empty() {
            attributes.push(KeyValue::new("http.route", route.to_owned()));
        }
        let builder = tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(SystemTime::from(clock.now()))
            .with_attributes(attributes);
        let span = builder.start_with_context(tracer, &parent(caller));
        let context = Context::new().with_span(span);
        let is_sampled = context.span().span_context().is_sampled();
        is_sampled.then(|| RequestSpan { context, clock: clock.clone() })
    }

    /// Returns the trace origin of a message's deliveries if they are sampled. `traceparent` is the value stored with the
    /// message.
    pub fn origin(&self, traceparent: Option<&str>) -> Option<TraceOrigin> {
        let _on = self.0.as_ref()?;
        Some(TraceOrigin { request: traceparent.and_then(parse)?, turns: AtomicU32::new(0) })
    }

    /// Starts the span of a delivery at the time of its claim, `began`. `None`: not traced. `attributes` must not contain
    /// endpoint, payload, key or user.
    pub fn delivery(
        &self, origin: &TraceOrigin, began: Timestamp, attributes: impl FnOnce() -> Vec<KeyValue>,
    ) -> Option<Box<DeliverySpan>> {
        let On { tracer, clock } = self.0.as_ref()?;
        if !origin.has_turns_left() {
            return None;
        }
        let builder =
            tracer.span_builder("deliver").with_start_time(SystemTime::from(began)).with_attributes(attributes());
        let span = builder.start_with_context(tracer, &parent(Some(origin.request.clone())));
        if !span.span_context().is_sampled() {
            return None;
        }
        let (tracer, clock) = (tracer.clone(), clock.clone());
        Some(Box::new(DeliverySpan { tracer, clock, span, stage: Some(Stage::Claim), stage_began: began }))
    }
}

/// Trace context of a message's request, with the number of its traced deliveries so far.
#[derive(Debug)]
pub struct TraceOrigin {
    request: SpanContext,
    turns: AtomicU32,
}

impl TraceOrigin {
    fn has_turns_left(&self) -> bool {
        // Not counted beyond, lest it begin anew.
        self.turns.load(Ordering::Relaxed) < TURNS_TRACED && self.turns.fetch_add(1, Ordering::Relaxed) < TURNS_TRACED
    }
}

/// Span of a running request. If it is dropped without being [ended](Self::end), the client has disconnected.
#[derive(Debug)]
pub struct RequestSpan {
    context: Context,
    clock: Clock,
}

impl RequestSpan {
    /// Runs `answering` within this span, so that [`current`] returns its context there.
    pub fn around<F: Future>(&self, answering: F) -> impl Future<Output = F::Output> + use<F> {
        answering.with_context(self.context.clone())
    }

    pub fn end(self, status: u16) {
        let span = self.context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if status >= 500 {
            span.set_status(Status::error(""));
            span.set_attribute(KeyValue::new("error.type", status.to_string()));
        }
        span.end_with_timestamp(self.clock.now().into());
    }
}

/// Returns the `traceparent` of the current request. `None`: not traced.
pub fn current() -> Option<String> {
    Context::map_current(|context| {
        if !context.span().span_context().is_sampled() {
            return None;
        }
        let mut carrier = HashMap::new();
        TraceContextPropagator::new().inject_context(context, &mut carrier);
        carrier.remove(TRACEPARENT)
    })
}

named! {
    /// Stages of one delivery attempt.
    pub enum Stage {
        /// Claim from the database, and decryption of its recipient's address.
        Claim = "claim",
        /// Waiting in the fair queue.
        Wait = "wait",
        /// Rendering, signing and encryption of the payload.
        Seal = "seal",
        /// POST to the push service.
        Post = "POST",
        /// Storing of the result.
        Settle = "settle",
    }
}

/// Span of one claim of a delivery. It ends when it is dropped, after the result was written or abandoned.
#[derive(Debug)]
pub struct DeliverySpan {
    tracer: SdkTracer,
    clock: Clock,
    span: Span,
    /// Current stage. `None`: none.
    stage: Option<Stage>,
    stage_began: Timestamp,
}

impl DeliverySpan {
    /// Ends the current stage, and begins the next one.
    pub fn enter(&mut self, next: Stage) {
        self.leave(Vec::new());
        self.stage = Some(next);
    }

    /// Ends the POST. `authority` is the gateway's `host[:port]`, `status` that of its response, if one arrived.
    pub fn answered(&mut self, authority: &str, status: Option<u16>) {
        let (host, port) = address(authority);
        let result = match status {
            Some(status) => KeyValue::new("http.response.status_code", i64::from(status)),
            None => KeyValue::new("error.type", "no_answer"),
        };
        let host = KeyValue::new("server.address", host.to_owned());
        self.leave(vec![host, KeyValue::new("server.port", i64::from(port)), result]);
    }

    /// Sets the result of the delivery.
    pub fn conclude(&mut self, outcome: &'static str) {
        self.span.set_attribute(KeyValue::new("bellwire.outcome", outcome));
    }

    fn leave(&mut self, mut attributes: Vec<KeyValue>) {
        let Some(stage) = self.stage.take() else { return };
        let began = std::mem::replace(&mut self.stage_began, self.clock.now());
        let kind = match stage {
            Stage::Post => {
                attributes.push(KeyValue::new("http.request.method", "POST"));
                SpanKind::Client
            }
            _ => SpanKind::Internal,
        };
        let builder = self
            .tracer
            .span_builder(stage.name())
            .with_kind(kind)
            .with_start_time(SystemTime::from(began))
            .with_attributes(attributes);
        let turn = parent(Some(self.span.span_context().clone()));
        builder.start_with_context(&self.tracer, &turn).end_with_timestamp(self.stage_began.into());
    }
}

impl Drop for DeliverySpan {
    fn drop(&mut self) {
        self.leave(Vec::new());
        self.span.end_with_timestamp(self.stage_began.into());
    }
}

/// Returns a context whose spans are children of this one, or of none.
fn parent(of: Option<SpanContext>) -> Context {
    of.map_or_else(Context::new, |span| Context::new().with_remote_span_context(span))
}

fn parse(traceparent: &str) -> Option<SpanContext> {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

/// Splits `host[:port]` of an HTTPS URL. An IPv6 address is returned without brackets.
fn address(authority: &str) -> (&str, u16) {
    let with_port = authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = with_port.unwrap_or((authority, 443));
    (host.trim_matches(['[', ']']), port)
}

#[cfg(test)]
#[path = "../../../../tests/crates/telemetry/unit/otlp/spans.rs"]
mod tests;
