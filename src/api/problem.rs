//! Every refusal of the API: an RFC 9457 problem with a stable `code` and the places of what is wrong.

use std::ops::{Deref, DerefMut};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problems;

/// Why a request is refused. Boxed, since every fallible function here returns one and hardly any does.
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

/// What a refused request is answered with, as `application/problem+json`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Details {
    /// Where this kind of problem is described: `/docs/problems/` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    #[schema(value_type = u16)]
    #[serde(with = "status_number")]
    pub status: StatusCode,
    /// Names this kind of problem for programs; never changes.
    pub code: String,
    /// What went wrong this time, for people.
    pub detail: String,
    /// Path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The request's `X-Request-Id`, by which the log knows it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Each thing that is wrong with the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    #[serde(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// One thing that is wrong with a request, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FieldError {
    /// RFC 6901 pointer into the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Name of a query or path parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Name of a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// What is wrong and what is allowed.
    pub detail: String,
}

mod status_number {
    use axum::http::StatusCode;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(status.as_u16())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StatusCode, D::Error> {
        StatusCode::from_u16(u16::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Problem {
    /// A problem of that status and code.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(
            problems::kind(code).is_some_and(|kind| kind.status == status.as_u16()),
            "{status} {code} has no page"
        );
        Self(Box::new(Details {
            kind: format!("{}{code}", problems::PAGES),
            title: status.canonical_reason().unwrap_or("Refused").into(),
            status,
            code: code.into(),
            detail: detail.into(),
            instance: None,
            request_id: None,
            errors: Vec::new(),
            headers: Vec::new(),
        }))
    }

    /// 401: no key or token, or one that is not valid (any more).
    pub(crate) fn unauthorized(detail: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="bellwire""#))
    }

    /// 403: who asks is known, but may not.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 403 with one pointer: the rest would have been allowed.
    pub(crate) fn forbidden_member(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        let mut problem = Self::forbidden(format!("{pointer}: {detail}"));
        problem.errors = vec![FieldError::member(pointer, detail)];
        problem
    }

    /// 404: not there, or not for the one who asks.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("There is no such {what}."))
    }

    /// 409: the app has as many topics as it may.
    pub(crate) fn too_many_topics() -> Self {
        let max = crate::store::audience::topics::TOPICS_MAX;
        Self::conflict("too_many_topics", format!("An app may have at most {max} topics."))
    }

    /// 409: the state of things does not allow it.
    pub(crate) fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// 422: well-formed, but members of the body are wrong.
    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [FieldError { pointer: Some(pointer), detail, .. }] => format!("{pointer}: {detail}"),
            errors => format!("{} members of the body are wrong.", errors.len()),
        };
        let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
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
        let mut problem =
            Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", format!("Parameter `{parameter}`: {detail}"));
        problem.errors = vec![FieldError { pointer: None, parameter: Some(parameter), header: None, detail }];
        problem
    }

    /// 400: a header is wrong.
    pub(crate) fn invalid_header(name: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let mut problem = Self::new(StatusCode::BAD_REQUEST, "invalid_header", format!("Header `{name}`: {detail}"));
        problem.errors = vec![FieldError { pointer: None, parameter: None, header: Some(name.into()), detail }];
        problem
    }

    /// 500: our fault. What happened is for the log only.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something went wrong here. The log tells what.")
    }

    /// The same of a body that is part of another one, at `place`.
    pub(crate) fn under(mut self, place: &str) -> Self {
        let details = &mut *self.0;
        // One with a single place says it in words, too.
        if let [FieldError { pointer: Some(_), .. }] = details.errors.as_slice() {
            details.detail.insert_str(0, place);
        }
        for pointer in details.errors.iter_mut().filter_map(|error| error.pointer.as_mut()) {
            pointer.insert_str(0, place);
        }
        self
    }

    /// Adds a header to the answer.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The body, as the router's outermost layer writes it once path and request id are known.
    pub(super) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.0).expect("a problem consists of strings and numbers")
    }
}

impl FieldError {
    /// A member of the body is wrong.
    pub(crate) fn member(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), parameter: None, header: None, detail: detail.into() }
    }
}

/// Gathers what is wrong with a body, so that its author hears of everything at once.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldError>);

impl Faults {
    /// Notes one more.
    pub(crate) fn refuse(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.0.push(FieldError::member(pointer, detail));
    }

    /// Notes one more unless the condition holds.
    pub(crate) fn require(&mut self, holds: bool, pointer: &str, detail: &str) {
        if !holds {
            self.refuse(pointer, detail);
        }
    }

    /// The problem, if anything was noted.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::invalid(self.0)) }
    }
}

/// Writes a member's name as one segment of a pointer (RFC 6901 section 3).
pub(crate) fn pointer_segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&sqlx::Error> for Problem {
    /// The only place where a failing database is logged.
    fn from(error: &sqlx::Error) -> Self {
        let unavailable = crate::store::is_transient(error) || matches!(error, sqlx::Error::PoolClosed);
        tracing::error!(error = %error, unavailable, "a request failed in the database");
        if unavailable {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Self::new(status, "database_unavailable", "The database cannot be reached. Try again shortly.")
                .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Self::internal()
    }
}

impl From<crate::vault::Unopenable> for Problem {
    fn from(error: crate::vault::Unopenable) -> Self {
        tracing::error!(error = %error, "a request failed on a sealed value");
        Self::internal()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(self.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}
