//! Reads requests: JSON bodies, query strings and path parameters. A refusal names the faulty member or parameter.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use futures_util::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use utoipa::ToSchema;

use super::app_ref::AppRef;
use super::found_values::with_found;
use super::nul::{refuse_nul, reject_nul};
use super::problem::{FieldError, Problem, ProblemCode, pointer_segment, with_values};
use super::schema_errors::{in_plain_words, mismatches};
use crate::api::ApiState;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{
    AlertId, ApiKeyId, DeadLetterId, ErasureId, IdentityKeyId, ImportId, MessageId, PasskeyId, SessionId,
    SubscriptionId, TeammateId, VapidKeyId, WebhookDeliveryId, WebhookId,
};
use bellwire_store::audience::diagnoses::DiagnosisCode;
use bellwire_store::keys::apps::{self, App};

/// Header with the key of a request that may be repeated.
pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// A parsed JSON body and its bytes, which an `Idempotency-Key` is bound to.
#[derive(Debug)]
pub(crate) struct Json<T>(pub T, pub Bytes);

impl<T: DeserializeOwned + ToSchema> FromRequest<ApiState> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let bytes = json_octets(request, state).await?;
        parse(&bytes).map(|value| Self(value, bytes))
    }
}

/// Reads the body of a request with a JSON content type.
pub(crate) async fn json_octets(request: Request, state: &ApiState) -> Result<Bytes, Problem> {
    if !is_json(request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok())) {
        return Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            "The body must be sent as `Content-Type: application/json`.",
        ));
    }
    Octets::from_request(request, state).await.map(|Octets(bytes)| bytes)
}

/// Raw body of any content type, within the caller's limits.
#[derive(Debug)]
pub(crate) struct Octets(pub Bytes);

impl FromRequest<ApiState> for Octets {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let limit = request.extensions().get::<BodyLimit>().map_or(state.settings.body_max_bytes, |limit| limit.0);
        let mut request = request;
        let recheck = request.extensions_mut().remove::<Recheck>();
        let octets = read_body(request, limit, state.settings.body_timeout).await?;
        if let Some(Recheck(recheck)) = recheck {
            recheck(state.clone()).await?;
        }
        Ok(Self(octets))
    }
}

/// Rechecks the permission of a request. A slow body delays its action, so the permission must still be valid at the end of the
/// body. Stored in the request's extensions by authentication.
#[derive(Clone)]
pub(crate) struct Recheck(Arc<dyn Fn(ApiState) -> BoxFuture<'static, Result<(), Problem>> + Send + Sync>);

impl Recheck {
    pub(crate) fn new<F>(ask: impl Fn(ApiState) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        Self(Arc::new(move |state| Box::pin(ask(state))))
    }

    /// Runs the check. Call it before each part of a body that is processed as it arrives.
    pub(crate) async fn ask(&self, state: &ApiState) -> Result<(), Problem> {
        (self.0)(state.clone()).await
    }
}

/// Maximum bytes of this request's body. Stored in the extensions of requests from browsers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit(pub usize);

/// Reads a whole body of at most `limit` bytes. 408 if it takes longer than `within`.
pub(crate) async fn read_body(request: Request, limit: usize, within: Duration) -> Result<Bytes, Problem> {
    let body = request.into_body();
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    tokio::time::timeout(within, gather(body, limit)).await.unwrap_or_else(|_| Err(too_slow(within)))
}

/// Copies the received chunks into one buffer. A chunk that is kept would keep its whole read buffer of eight kilobytes.
async fn gather(mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut octets = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| malformed("The connection closed before the end of the body.".into()))?;
        let Some(data) = frame.data_ref() else { continue };
        if data.len() > limit - octets.len() {
            return Err(too_large(limit));
        }
        octets.extend_from_slice(data);
    }
    Ok(octets.into())
}

/// Parses JSON. The error lists all schema faults by pointer.
pub(crate) fn parse<T: DeserializeOwned + ToSchema>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde would read a struct from an array too, member by member.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid_member("", "must be an object"));
    }
    reject_nul(bytes)?;
    // The path of each member is kept only for error messages.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let at = pointer(error.path());
        let error = error.into_inner();
        // Serde takes a number where it wants a word for a mistake of grammar.
        match serde_json::from_slice::<Value>(bytes) {
            Ok(body) => wrong_form::<T>(&body, at, &without_position(&error)),
            Err(error) => malformed(format!("The body is not JSON: {error}.")),
        }
    })?;
    deserializer.end().map_err(|error| malformed(format!("The body is not JSON: {error}.")))?;
    Ok(value)
}

/// Returns a body's schema faults. If there are none, returns serde's error: the schema does not describe the syntax of a time
/// or an id.
fn wrong_form<T: ToSchema>(body: &Value, at: String, said: &str) -> Problem {
    let mut errors = mismatches::<T>(body);
    let is_below = |error: &FieldError| error.pointer.as_deref().is_some_and(|pointer| pointer.starts_with(&at));
    if !errors.iter().any(is_below) {
        let detail = match said.starts_with("expected value") {
            true => "must be a value of another type".to_owned(),
            false => in_plain_words(said),
        };
        errors.push(FieldError::member(at, detail));
    }
    Problem::invalid(with_values(errors, body))
}

fn is_json(content_type: Option<&str>) -> bool {
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}

/// Returns a 413 problem: the body exceeds the limit.
fn too_large(limit: usize) -> Problem {
    let detail = format!("The body may have at most {limit} octets.");
    Problem::new(ProblemCode::BodyTooLarge, detail)
}

/// Returns a 408 problem: the body took too long.
pub(crate) fn too_slow(within: Duration) -> Problem {
    let detail = format!("The body did not come within {} s.", within.as_secs_f64());
    Problem::new(ProblemCode::BodyTooSlow, detail).with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

pub(crate) fn malformed(detail: String) -> Problem {
    Problem::new(ProblemCode::MalformedJson, detail)
}

/// Converts the path of a serde error to an RFC 6901 pointer.
pub(crate) fn pointer(path: &Path) -> String {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(format!("/{index}")),
            Segment::Map { key } => Some(format!("/{}", pointer_segment(key))),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// Returns serde_json's message without its ` at line 1 column 2`, which the pointer replaces.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).to_owned()
}

#[derive(Debug)]
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Parses a query string. The error lists the faults by parameter.
pub(crate) fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        refuse_nul(&name, &value)?;
    }
    let pairs = serde_urlencoded::Deserializer::new(url::form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let parameter = error.path().to_string();
        Problem::invalid_parameter(parameter, in_plain_words(&error.into_inner().to_string()))
    })
}

/// Parameter of a route's path.
pub(crate) trait PathParam: FromStr<Err: Display> {
    const NAME: &'static str;
}

macro_rules! path_param {
    ($($kind:ty = $name:literal),+) => { $(impl PathParam for $kind { const NAME: &'static str = $name; })+ };
}
path_param!(
    SubscriptionId = "subscription",
    DiagnosisCode = "code",
    MessageId = "message",
    VapidKeyId = "vapid_key",
    ApiKeyId = "api_key",
    DeadLetterId = "dead_letter",
    AlertId = "alert",
    WebhookId = "webhook",
    WebhookDeliveryId = "webhook_delivery",
    IdentityKeyId = "identity_key",
    TeammateId = "teammate",
    SessionId = "session",
    PasskeyId = "passkey",
    ErasureId = "erasure",
    ImportId = "import",
    AppRef = "app",
    TopicName = "topic",
    TemplateName = "template",
    UserId = "user",
    Tier = "tier"
);

#[derive(Debug)]
pub(crate) struct PathId<T>(pub T);

impl<T: PathParam, S: Send + Sync> FromRequestParts<S> for PathId<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let raw = path_param(parts, state, T::NAME).await?;
        raw.parse().map(Self).map_err(|rule: T::Err| Problem::invalid_parameter(T::NAME, with_found(rule, &raw)))
    }
}

/// Returns a path parameter, percent-decoded. Refuses NUL.
pub(crate) async fn path_param<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| Problem::new(ProblemCode::InvalidPath, "The path is not percent-encoded UTF-8."))?;
    let found = params.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    let value = found.expect("handlers ask only for what their route names");
    refuse_nul(name, value)?;
    Ok(value.to_owned())
}

pub(crate) async fn named_app(state: &ApiState, name: AppRef) -> Result<App, Problem> {
    let (id, slug) = name.parts();
    apps::find(&state.pool, id, slug).await?.ok_or_else(|| Problem::not_found("app"))
}

/// Topic name: 1 to 128 unreserved URL characters or `%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicName(pub String);

pub(crate) const TOPIC_NAME_RULE: &str = "must be 1 to 128 letters, digits or any of `_.~%-`";

impl FromStr for TopicName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits =
            (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.~%-".contains(&b));
        if fits { Ok(Self(text.to_owned())) } else { Err(TOPIC_NAME_RULE) }
    }
}

/// Name of a stored template: 1 to 64 lower-case letters, digits and hyphens, without a leading hyphen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateName(pub String);

pub(crate) const TEMPLATE_NAME_RULE: &str =
    "must be 1 to 64 lower-case letters, digits or dashes, and not begin with a dash";

impl FromStr for TemplateName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(is_known) && !text.starts_with('-');
        if fits { Ok(Self(text.to_owned())) } else { Err(TEMPLATE_NAME_RULE) }
    }
}

/// User id, chosen by the site: 1 to 255 characters without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserId(pub String);

pub(crate) const USER_ID_RULE: &str = "must be 1 to 255 characters without control characters";

impl FromStr for UserId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_plain_text(text, 255) { Ok(Self(text.to_owned())) } else { Err(USER_ID_RULE) }
    }
}

/// Whether a text can be a user id.
pub(crate) fn is_user_id(text: &str) -> bool {
    text.parse::<UserId>().is_ok()
}

/// Whether a text has 1 to `max_chars` characters and no control characters.
pub(crate) fn is_plain_text(text: &str, max_chars: usize) -> bool {
    !text.is_empty() && text.chars().count() <= max_chars && !text.chars().any(char::is_control)
}

/// Deserialises a member that may be absent, null or a value: the outer `Option` is `None` if it is absent (RFC 7396).
pub(crate) fn nullable<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    serde::Deserialize::deserialize(deserializer).map(Some)
}

/// Deserialises a member of a `PATCH` that cannot be null: absent, or a value (RFC 7396).
pub(crate) fn not_null<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    serde::Deserialize::deserialize(deserializer).map(Some)
}

/// Deserialises a member of a `PATCH` that null resets to its default (RFC 7396).
pub(crate) fn null_is_default<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    let value: Option<T> = serde::Deserialize::deserialize(deserializer)?;
    Ok(Some(value.unwrap_or_default()))
}

/// Converts a fault of a message's content.
impl From<bellwire_core::message::Problem> for FieldError {
    fn from(problem: bellwire_core::message::Problem) -> Self {
        Self::member(problem.pointer, problem.detail)
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/extract.rs"]
mod tests;
