//! Entrance of requests from browsers: rate limits, the app in the path, and CORS with that app's origins.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app_ref::AppRef;
use super::auth::{bearer, is_servers, read_token};
use super::extract::{BodyLimit, named_app, path_param};
use super::limits::Budget;
use super::problem::{Problem, ProblemCode};
use crate::api::ApiState;
use bellwire_core::origin::is_origin;
use bellwire_store::audience::subscriptions::is_signed;
use bellwire_store::keys::apps::App;

/// Layer around every route that browsers may call. Stores the [`App`] in the request's extensions. Requests with an API key
/// pass unchanged, without CORS headers: [`super::auth`] checks the key.
pub(crate) async fn public(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    enter(state, request, next, false).await
}

/// Layer of routes for counts, with the rate limits of [`reports`]: a page must not keep its visitors from subscribing.
pub(crate) async fn counted(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    enter(state, request, next, true).await
}

async fn enter(state: ApiState, request: Request, next: Next, is_report: bool) -> Response {
    if is_servers(&state, request.headers(), request.extensions()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let name = match path_param(&mut parts, &state, "app").await {
        Ok(name) => name,
        Err(problem) => return problem.into_response(),
    };
    let known = match is_report && parts.method != Method::OPTIONS {
        true => reporter(&parts, &state, &name).await,
        false => visitor(&mut parts, &state, &name).await,
    };
    let (budget, app) = match known {
        Ok(known) => known,
        Err(problem) => return refused(&parts, &state, &name, problem),
    };
    let origin = allowed_origin(&parts.headers, &app.origins);
    if parts.method == Method::OPTIONS {
        return for_browsers(preflight(), origin, Some(budget));
    }
    if let (None, Some(stranger)) = (&origin, parts.headers.get(header::ORIGIN)) {
        return for_browsers(not_allowed(&name, stranger).into_response(), Some(stranger.clone()), Some(budget));
    }
    parts.extensions.insert(App::clone(&app));
    parts.extensions.insert(BodyLimit(state.settings.public_body_max_bytes));
    for_browsers(next.run(Request::from_parts(parts, body)).await, origin, Some(budget))
}

/// Counts a request against the app, and against its token or its client. Returns the remaining budget and the app.
async fn visitor(parts: &mut Parts, state: &ApiState, name: &str) -> Result<(Budget, Arc<App>), Problem> {
    let client = state.limits.client_of(&parts.headers, &parts.extensions);
    if parts.method == Method::OPTIONS {
        let budget = state.limits.preflight(client)?;
        return Ok((budget, find_now(state, name).await?));
    }
    let budget = match of_token(parts, state).await {
        Some(budget) => budget?,
        None => state.limits.client(client)?,
    };
    let app = find_now(state, name).await?;
    state.limits.app(app.id)?;
    Ok((budget, app))
}

/// Returns the budget of the subscription token in a request, if this server signed the token. `None`: it did not, or that is
/// unknown.
async fn of_token(parts: &mut Parts, state: &ApiState) -> Option<Result<Budget, Problem>> {
    let token = bearer(&parts.headers).and_then(read_token)?;
    let params = RawPathParams::from_request_parts(parts, state).await.ok()?;
    let named = params.iter().find(|(key, _)| *key == "subscription").and_then(|(_, id)| id.parse().ok());
    state.limits.tokens.take(&token, || named.is_some_and(|id| is_signed(&state.vault, id, &token)))
}

/// Layer of receipt routes, with rate limits of their own because receipts come in bursts. Uses the cached app. Receipts come
/// from browsers, with or without other credentials.
pub(crate) async fn reports(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let name = match path_param(&mut parts, &state, "app").await {
        Ok(name) => name,
        Err(problem) => return problem.into_response(),
    };
    let (budget, app) = match reporter(&parts, &state, &name).await {
        Ok(known) => known,
        Err(problem) => return refused(&parts, &state, &name, problem),
    };
    // The token in a push is all the right it takes, and the site's backend may have registered the subscription. A worker
    // that may not read that its report was taken would report again and again.
    let origin = parts.headers.get(header::ORIGIN).cloned();
    if parts.method == Method::OPTIONS {
        return for_browsers(preflight(), origin, Some(budget));
    }
    parts.extensions.insert(app);
    for_browsers(next.run(Request::from_parts(parts, body)).await, origin, Some(budget))
}

async fn reporter(parts: &Parts, state: &ApiState, name: &str) -> Result<(Budget, Arc<App>), Problem> {
    let client = state.limits.client_of(&parts.headers, &parts.extensions);
    let budget = state.limits.reporter(client)?;
    let app = find_lately(state, name).await?;
    state.limits.reports_of(app.id)?;
    Ok((budget, app))
}

/// Returns a refusal that the app's own pages can read (CORS). Uses cached origins, because a rate-limited request must not
/// cost a query. Any page can read that the app does not exist, since its author may have mistyped the name.
fn refused(parts: &Parts, state: &ApiState, name: &str, mut problem: Problem) -> Response {
    let origin = if problem.status == StatusCode::NOT_FOUND {
        let name: String = name.escape_default().take(100).collect();
        problem.detail = format!("There is no app `{name}` on this server.");
        parts.headers.get(header::ORIGIN).cloned()
    } else {
        state.known_apps.recall(name).and_then(|app| allowed_origin(&parts.headers, &app.origins))
    };
    for_browsers(problem.into_response(), origin, None)
}

/// Returns a 403 problem that the foreign page can read, so that its developers see the cause.
fn not_allowed(app: &str, stranger: &HeaderValue) -> Problem {
    let origin = stranger.to_str().unwrap_or("null");
    let remedy = match origin {
        "null" => "Pages without an origin, from files and sandboxed frames, cannot be let in.".to_owned(),
        _ if is_origin(origin) => format!("If its pages are yours: `bellwire app change {app} --add-origin {origin}`"),
        _ => "If its pages are yours, serve it over HTTPS: an app lets in no http: origin but those of localhost."
            .to_owned(),
    };
    let detail = format!("The app {app} does not let in the origin {origin}. {remedy}");
    Problem::new(ProblemCode::OriginNotAllowed, detail)
}

async fn find_now(state: &ApiState, name: &str) -> Result<Arc<App>, Problem> {
    let app = Arc::new(named_app(state, AppRef::from(name)).await?);
    state.known_apps.remember(name, &app);
    Ok(app)
}

/// Returns the app from a cache that is a few seconds old.
async fn find_lately(state: &ApiState, name: &str) -> Result<Arc<App>, Problem> {
    match state.known_apps.lately(name) {
        Some(app) => Ok(app),
        None => find_now(state, name).await,
    }
}

/// Returns the request's `Origin` if it is in the list.
pub(crate) fn allowed_origin(headers: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// Response headers that pages can read (CORS).
const EXPOSED: HeaderValue = HeaderValue::from_static("X-Request-Id, Retry-After, RateLimit, RateLimit-Policy");

fn for_browsers(mut response: Response, origin: Option<HeaderValue>, budget: Option<Budget>) -> Response {
    let headers = response.headers_mut();
    if let Some(budget) = budget {
        budget.write(headers);
    }
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PATCH, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Request-Id"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
