//! Errors of the API: RFC 9457 problems with a stable `code` and the location of each fault.

mod code;

use std::ops::{Deref, DerefMut};

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bellwire_net::http_server::refusal::RefusalBody;
use serde::{Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::found_values::add_value;
pub(crate) use code::ProblemCode;
pub(crate) use code::{PROBLEM_KINDS, ProblemKind};

/// Maximum faults in one response.
pub(crate) const TOLD_MAX: usize = 100;
const MEDIA_TYPE: &str = "application/problem+json";

/// Error response. Boxed, because most functions here return one as their error type and few do so at run time.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Details>);

impl Deref for Problem {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

/// Response to a refused request, as `application/problem+json`.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Details {
    /// Path of the page about this kind of problem: `/docs/problems/` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// Summary of this kind of problem.
    pub title: String,
    /// HTTP status.
    #[schema(value_type = u16)]
    #[serde(serialize_with = "as_number")]
    pub status: StatusCode,
    /// Stable code of this kind of problem, for programs.
    #[schema(value_type = String)]
    pub code: ProblemCode,
    /// Description of this occurrence, as text to display.
    pub detail: String,
    /// Path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// `X-Request-Id` of the request, which the log contains, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// All faults of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    #[serde(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// One fault of a request and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// RFC 6901 pointer into the body. Null: not in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Name of the faulty query or path parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Name of the faulty header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The fault and the violated rule.
    pub detail: String,
}

fn as_number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// Builds the bodies of responses that the HTTP server sends itself, without the router.
pub(crate) const REFUSAL: RefusalBody = RefusalBody { media_type: MEDIA_TYPE, write: Problem::of_server };

impl Problem {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let kind = code.kind();
        Self(Box::new(Details {
            kind: kind.page(),
            title: kind.title(),
            status: kind.status,
            code,
            detail: detail.into(),
            instance: None,
            request_id: None,
            errors: Vec::new(),
            headers: Vec::new(),
        }))
    }

    /// 401: no key or token, or an invalid one.
    pub(crate) fn unauthorized(detail: &'static str) -> Self {
        Self::new(ProblemCode::Unauthorized, detail)
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="bellwire""#))
    }

    /// 401: the key or token is malformed, unknown, expired or revoked (RFC 6750 section 3.1).
    pub(crate) fn invalid_token(detail: &'static str) -> Self {
        let challenge = HeaderValue::from_static(r#"Bearer realm="bellwire", error="invalid_token""#);
        Self::new(ProblemCode::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, challenge)
    }

    /// 403: the caller is known, but may not do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::Forbidden, detail)
    }

    /// 403 for one member of the body; without that member the request would be allowed.
    pub(crate) fn forbidden_member(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        let errors = vec![FieldError::member(pointer, detail)];
        let mut problem = Self::forbidden(summary(&errors));
        problem.errors = errors;
        problem
    }

    /// 404: does not exist, or the caller may not see it.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(ProblemCode::NotFound, format!("There is no such {what}."))
    }

    /// 409: the app has the maximum number of topics.
    pub(crate) fn too_many_topics() -> Self {
        let max = bellwire_store::audience::topics::TOPICS_MAX;
        Self::new(ProblemCode::TooManyTopics, format!("An app may have at most {max} topics."))
    }

    /// 422: well-formed, but members of the body are wrong.
    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        let mut problem = Self::new(ProblemCode::Invalid, summary(&errors));
        problem.errors = errors;
        problem
    }

    /// 422 with one pointer.
    pub(crate) fn invalid_member(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::member(pointer, detail)])
    }

    /// 400: a query or path parameter is wrong.
    pub(crate) fn invalid_parameter(parameter: impl Into<String>, detail: impl Into<String>) -> Self {
        let (parameter, detail) = (parameter.into(), detail.into());
        let mut problem = Self::new(ProblemCode::InvalidParameter, format!("Parameter `{parameter}`: {detail}"));
        problem.errors = vec![FieldError { pointer: None, parameter: Some(parameter), header: None, detail }];
        problem
    }

    /// 400: a header is wrong.
    pub(crate) fn invalid_header(name: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let mut problem = Self::new(ProblemCode::InvalidHeader, format!("Header `{name}`: {detail}"));
        problem.errors = vec![FieldError { pointer: None, parameter: None, header: Some(name.into()), detail }];
        problem
    }

    /// 500: the server failed. The cause goes to the log only.
    pub(crate) fn internal() -> Self {
        Self::new(ProblemCode::Internal, "Internal error. The server's log has the cause.")
    }

    /// Prefixes the pointers of all faults with `place`, for a body within another body.
    pub(crate) fn under(mut self, place: &str) -> Self {
        let details = &mut *self.0;
        for pointer in details.errors.iter_mut().filter_map(|error| error.pointer.as_mut()) {
            pointer.insert_str(0, place);
        }
        if let [FieldError { pointer: Some(_), .. }] = details.errors.as_slice() {
            details.detail = summary(&details.errors);
        }
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Builds the body of a response that the HTTP server sends itself: the request head is invalid, or too many connections
    /// are open.
    fn of_server(status: StatusCode, detail: &str) -> String {
        let code = match status {
            StatusCode::BAD_REQUEST => ProblemCode::MalformedHead,
            StatusCode::URI_TOO_LONG => ProblemCode::UriTooLong,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ProblemCode::HeadTooLarge,
            _ => ProblemCode::TooManyConnections,
        };
        serde_json::to_string(&*Self::new(code, detail).0).expect("a problem consists of strings and numbers")
    }

    /// Serialises the body. The router's outermost layer calls it after setting path and request id.
    pub(crate) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.0).expect("a problem consists of strings and numbers")
    }
}

/// Returns the `detail` of a problem with these faults.
fn summary(errors: &[FieldError]) -> String {
    match errors {
        [FieldError { pointer: Some(pointer), detail, .. }] if pointer.is_empty() => format!("The body {detail}"),
        [FieldError { pointer: Some(pointer), detail, .. }] => format!("{pointer}: {detail}"),
        errors => format!("{} members of the body are wrong.", errors.len()),
    }
}

impl FieldError {
    /// Creates a fault of a member of the body.
    pub(crate) fn member(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), parameter: None, header: None, detail: detail.into() }
    }
}

/// Appends the offending values to the faults.
pub(crate) fn with_values(mut errors: Vec<FieldError>, body: &Value) -> Vec<FieldError> {
    for FieldError { pointer, detail, .. } in &mut errors {
        pointer.iter().for_each(|pointer| add_value(detail, pointer, body));
    }
    errors
}

/// Collects the faults of a body, so that a response lists all of them.
#[derive(Debug, Clone, Default)]
#[must_use]
pub(crate) struct Faults {
    errors: Vec<FieldError>,
    /// Number of schema faults, which are at the start of the list.
    of_shape: usize,
    /// Request body, to show offending values. May be empty.
    body: Bytes,
}

impl Faults {
    /// Starts with the schema faults of a body.
    pub(crate) fn of_body(body: Bytes, errors: Vec<FieldError>) -> Self {
        Self { of_shape: errors.len(), errors, body }
    }

    /// Adds a fault, unless a schema fault of the same, an inner or an outer member may have caused it.
    pub(crate) fn refuse(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        let error = FieldError::member(pointer, detail);
        let place = error.pointer.as_deref().unwrap_or_default();
        let is_within = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut known = self.errors[..self.of_shape].iter().filter_map(|known| known.pointer.as_deref());
        let follows = known.any(|known| is_within(known, place) || is_within(place, known));
        // A body of a megabyte can have tens of thousands of faults. Those beyond the limit would help no one.
        if self.errors.len() < TOLD_MAX && !follows && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Adds the faults of a part. Fails if the part was refused for another reason.
    pub(crate) fn absorb(&mut self, refused: Problem) -> Result<(), Problem> {
        if refused.code != ProblemCode::Invalid {
            return Err(refused);
        }
        for FieldError { pointer, detail, .. } in refused.errors.iter().cloned() {
            self.refuse(pointer.unwrap_or_default(), detail);
        }
        Ok(())
    }

    /// Returns a problem with these faults and those in `refused`, if the check cannot continue.
    pub(crate) fn with(&self, refused: Problem) -> Problem {
        let mut faults = self.clone();
        faults.absorb(refused).and_then(|()| faults.finish()).err().unwrap_or_else(Problem::internal)
    }

    /// Adds a fault unless `holds`.
    pub(crate) fn require(&mut self, holds: bool, pointer: &str, detail: &str) {
        if !holds {
            self.refuse(pointer, detail);
        }
    }

    /// Whether a member has no schema fault, so that its parsed value is the given one.
    pub(crate) fn is_well_formed(&self, pointer: &str) -> bool {
        self.errors[..self.of_shape].iter().all(|known| known.pointer.as_deref() != Some(pointer))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// Returns the problem if any fault was added.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let body = serde_json::from_slice(&self.body).unwrap_or_default();
        Err(Problem::invalid(with_values(self.errors, &body)))
    }
}

/// Escapes a member name as one pointer segment (RFC 6901 section 3).
pub(crate) fn pointer_segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&sqlx::Error> for Problem {
    /// Converts a database error, and logs it. No other code logs these errors.
    fn from(error: &sqlx::Error) -> Self {
        if bellwire_store::is_unstorable(error) {
            tracing::warn!(error = %error, "a request contained a value that the database does not store");
            return Self::new(
                ProblemCode::Invalid,
                "A text contains NUL (U+0000), or a time lies outside the years 1 to 9999.",
            );
        }
        let transient = bellwire_store::is_transient(error) || matches!(error, sqlx::Error::PoolClosed);
        tracing::error!(error = %error, transient, "a request failed in the database");
        if !transient {
            return Self::internal();
        }
        let (code, detail) = if bellwire_store::is_conflict(error) {
            (
                ProblemCode::DatabaseConflict,
                "Other transactions kept changing what this request needs, so that it was undone. Try again shortly.",
            )
        } else if bellwire_store::is_statement_timeout(error) {
            (
                ProblemCode::DatabaseTimeout,
                "A statement took longer than it may, so that the request was undone. Try again shortly.",
            )
        } else {
            (ProblemCode::DatabaseUnavailable, "The database cannot be reached. Try again shortly.")
        };
        Self::new(code, detail).with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

impl From<bellwire_vault::Unopenable> for Problem {
    fn from(error: bellwire_vault::Unopenable) -> Self {
        tracing::error!(error = %error, "a request failed on a sealed value");
        Self::internal()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.extend(self.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/problem.rs"]
mod tests;
