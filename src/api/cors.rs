//! The door for browsers: rate limits, the app that the path names, and CORS by that app's origins.

use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::ApiState;
use super::auth::is_servers;
use super::extract::{AppRef, named_app};
use super::problem::Problem;
use crate::store::apps::App;

/// Stands before every route that lets browsers in, and leaves the [`App`] in the request's extensions. Servers'
/// requests pass untouched: their key is checked by [`super::auth`], and a browser gets no CORS headers for them.
pub async fn public(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if is_servers(request.headers(), request.extensions()) {
        return next.run(request).await;
    }
    let budget = match state.limits.client(request.headers(), request.extensions()) {
        Ok(budget) => budget,
        Err(problem) => return problem.into_response(),
    };
    let (mut parts, body) = request.into_parts();
    let app = match counted_app(&mut parts, &state).await {
        Ok(app) => app,
        Err(problem) => return problem.into_response(),
    };
    let origin = allowed_origin(&parts.headers, &app);
    let mut response = if parts.method == Method::OPTIONS {
        preflight()
    } else {
        parts.extensions.insert(app);
        next.run(Request::from_parts(parts, body)).await
    };
    let headers = response.headers_mut();
    budget.write(headers);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("X-Request-Id, Retry-After"));
    }
    response
}

/// The app that the path names, once the request is counted against it.
async fn counted_app(parts: &mut axum::http::request::Parts, state: &ApiState) -> Result<App, Problem> {
    let not_found = || Problem::not_found("app");
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| not_found())?;
    let name = params.iter().find(|(key, _)| *key == "app").map(|(_, value)| AppRef::from(value));
    let app = named_app(state, name.ok_or_else(not_found)?).await?;
    state.limits.app(app.id)?;
    Ok(app)
}

/// The request's `Origin`, if it is one of the app's.
pub fn allowed_origin(headers: &HeaderMap, app: &App) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    app.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PATCH, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Request-Id"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
