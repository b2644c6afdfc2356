//! `ETag`, `If-None-Match` and `If-Match` for resources that servers and teammates read and change, as one layer around the
//! routes.
//!
//! A tag is a hash of the response. A change with `If-Match` gets 412 unless the tag is current. To compare, the layer reads
//! the resource by the `GET` of the same path with the caller's permissions. Meanwhile other conditional changes to this kind
//! of resource of the app wait. A change without a condition is neither checked nor delayed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower::ServiceExt as _;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Header, ObjectBuilder, OpenApi, RefOr, ResponseBuilder, Type};

use super::auth;
use super::etag::{self, Comparison};
use super::extract::read_body;
use super::fair_semaphore::{Busy, Places};
use super::problem::{Problem, ProblemCode};
use crate::api::ApiState;
use bellwire_store::operations::if_match;

/// Maximum concurrent conditional changes, half of them of one app. Each uses two database connections.
const AT_ONCE: usize = 4;
/// Maximum wait for another change to the same kind of resource.
const PATIENCE: Duration = Duration::from_secs(5);
const BUSY: Busy =
    Busy { code: ProblemCode::EditsBusy, detail: "Too many conditional changes are in progress. Try again shortly." };

pub(crate) struct Edits {
    state: ApiState,
    routes: Router,
    editable: BTreeSet<String>,
    turns: Places,
}

impl Edits {
    pub(crate) fn new(state: ApiState, routes: Router, description: &OpenApi) -> Arc<Self> {
        let editable = description.paths.paths.iter().filter(|(_, item)| {
            let changes = [&item.put, &item.patch, &item.delete];
            item.get.is_some() && changes.iter().any(|change| change.is_some())
        });
        let editable = editable.map(|(path, _)| path.clone()).collect();
        Arc::new(Self { state, routes, editable, turns: Places::new(AT_ONCE) })
    }

    /// Reads the current tag of the resource with the caller's permissions. `None`: the resource does not exist. The error is
    /// the response if reading failed or is not allowed.
    async fn read(&self, parts: &Parts) -> Result<Option<HeaderValue>, Response> {
        let mut get = Request::new(Body::empty());
        *get.uri_mut() = parts.uri.path().parse().map_err(|_| Problem::internal().into_response())?;
        *get.headers_mut() = parts.headers.clone();
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING] {
            get.headers_mut().remove(name);
        }
        *get.extensions_mut() = parts.extensions.clone();
        let Ok(response) = self.routes.clone().oneshot(get).await;
        match response.status() {
            StatusCode::OK => Ok(tag(response).await?.0),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(response),
        }
    }

    /// Checks the condition of a change. 412 if it does not hold.
    async fn check(&self, parts: &Parts) -> Result<(), Response> {
        let now = self.read(parts).await?;
        let headers = &parts.headers;
        let seen = !headers.contains_key(header::IF_MATCH)
            || etag::is_named(headers, &header::IF_MATCH, now.as_ref(), Comparison::Strong);
        let unwanted = etag::is_named(headers, &header::IF_NONE_MATCH, now.as_ref(), Comparison::Weak);
        if seen && !unwanted {
            return Ok(());
        }
        let detail = match now {
            Some(_) if unwanted => "The resource already exists.",
            Some(_) => "The resource has changed since you read it: read it again, and then decide.",
            None => "The resource does not exist or was deleted.",
        };
        let mut problem = Problem::new(ProblemCode::PreconditionFailed, detail);
        if let Some(tag) = now {
            problem = problem.with_header(header::ETAG, tag);
        }
        Err(problem.into_response())
    }

    async fn change(&self, request: Request, next: Next) -> Result<Response, Response> {
        let refuse = |problem: Problem| problem.into_response();
        let (parts, body) = request.into_parts();
        // Before anything of the body is read: by this it is known, too, who asks.
        self.check(&parts).await?;
        let is_of_app = route(&parts).starts_with("/v1/apps/{app}");
        let app = if is_of_app { auth::app_of(&parts, &self.state).await } else { None };
        if is_of_app && app.is_none() {
            // It will be refused: other requests need not wait for it.
            return Ok(next.run(Request::from_parts(parts, body)).await);
        }
        let settings = &self.state.settings;
        let read = read_body(Request::new(body), settings.body_max_bytes, settings.body_timeout);
        let octets = read.await.map_err(refuse)?;
        let _turn = self.turns.take(app, settings.place_patience, &BUSY).await.map_err(refuse)?;
        let mut tx = self.state.begin().await.map_err(|error| refuse(error.into()))?;
        let held =
            if_match::take_turn(&mut tx, app, route(&parts), PATIENCE).await.map_err(|error| refuse(error.into()))?;
        if !held {
            let waiting = "Another request is changing this resource and has not finished in time.";
            return Err(refuse(Problem::new(BUSY.code, waiting)));
        }
        self.check(&parts).await?;
        let changed = next.run(Request::from_parts(parts.clone(), Body::from(octets))).await;
        if !changed.status().is_success() || parts.method == Method::DELETE {
            return Ok(changed);
        }
        // So that they can go on editing without reading it again.
        let mut changed = changed;
        if let Ok(Some(tag)) = self.read(&parts).await {
            changed.headers_mut().insert(header::ETAG, tag);
        }
        Ok(changed)
    }
}

fn route(parts: &Parts) -> &str {
    parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str)
}

/// Adds tags to reads, and refuses changes whose condition does not hold.
pub(crate) async fn guard(State(edits): State<Arc<Edits>>, request: Request, next: Next) -> Response {
    let (method, headers) = (request.method(), request.headers());
    if method == Method::GET {
        let known = headers.clone();
        return show(&known, next.run(request).await).await.unwrap_or_else(|refused| refused);
    }
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let is_change = [Method::PUT, Method::PATCH, Method::DELETE].contains(method) && edits.editable.contains(path);
    let has_condition = headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH);
    if is_change && has_condition {
        return edits.change(request, next).await.unwrap_or_else(|refused| refused);
    }
    next.run(request).await
}

/// Adds the tag to a response. Responds with 304 if the caller has the current version.
async fn show(request: &HeaderMap, response: Response) -> Result<Response, Response> {
    let (tag, response) = tag(response).await?;
    if !etag::is_named(request, &header::IF_NONE_MATCH, tag.as_ref(), Comparison::Weak) {
        return Ok(response);
    }
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    Ok(Response::from_parts(parts, Body::empty()))
}

/// Computes the tag of a complete JSON response.
async fn tag(response: Response) -> Result<(Option<HeaderValue>, Response), Response> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let (mut parts, body) = response.into_parts();
    let Some(length) = body.size_hint().exact().filter(|_| is_json && parts.status == StatusCode::OK) else {
        return Ok((None, Response::from_parts(parts, body)));
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let octets = axum::body::to_bytes(body, length).await.map_err(|_| Problem::internal().into_response())?;
    let tag = etag::of(&octets);
    parts.headers.insert(header::ETAG, tag.clone());
    Ok((Some(tag), Response::from_parts(parts, Body::from(octets))))
}

/// Adds the headers and responses to the OpenAPI description.
pub(crate) fn describe(description: &mut OpenApi) {
    for (path, item) in &mut description.paths.paths {
        // Exports are written as they are read, and have no tag.
        if !path.starts_with("/v1/") || path.ends_with("/export") {
            continue;
        }
        let is_tagged = item.get.as_mut().is_some_and(describe_reading);
        if is_tagged {
            for change in [&mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten() {
                let about = "Known `ETag`: 412 if the resource has changed since";
                change.parameters.get_or_insert_default().push(condition("If-Match", about));
            }
            if let Some(put) = &mut item.put {
                put.parameters
                    .get_or_insert_default()
                    .push(condition("If-None-Match", "`*`: 412 if the resource exists already"));
            }
        }
    }
}

/// Adds the tag to an operation that responds with JSON. Returns whether it does.
fn describe_reading(operation: &mut Operation) -> bool {
    let Some(RefOr::T(shown)) = operation.responses.responses.get_mut("200") else { return false };
    if !shown.content.contains_key("application/json") {
        return false;
    }
    let mut tag = Header::new(ObjectBuilder::new().schema_type(Type::String).max_length(Some(64)).build());
    tag.description = Some("Tag of this version of the resource (RFC 9110 section 8.8.3)".to_owned());
    shown.headers.insert("ETag".to_owned(), RefOr::T(tag));
    let known = ResponseBuilder::new().description("`If-None-Match` has the current tag").build();
    operation.responses.responses.insert("304".to_owned(), RefOr::T(known));
    let about = "Known `ETag`s: 304 if one of them is current";
    operation.parameters.get_or_insert_default().push(condition("If-None-Match", about));
    true
}

fn condition(name: &str, about: &str) -> RefOr<Parameter> {
    let text = ObjectBuilder::new().schema_type(Type::String).max_length(Some(4_096)).build();
    let header = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(utoipa::openapi::Required::False)
        .description(Some(about))
        .schema(Some(text));
    RefOr::T(header.build())
}
