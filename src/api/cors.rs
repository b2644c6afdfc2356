//! The doors for browsers: rate limits, the app that the path names, and CORS by that app's origins.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use uuid::Uuid;

use super::ApiState;
use super::auth::is_servers;
use super::extract::{AppRef, named_app};
use super::limits::Budget;
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
    let origin = allowed_origin(&parts.headers, &app.origins);
    if parts.method == Method::OPTIONS {
        return for_browsers(preflight(), origin, budget);
    }
    parts.extensions.insert(app);
    for_browsers(next.run(Request::from_parts(parts, body)).await, origin, budget)
}

/// The app that the path names, once the request is counted against it.
async fn counted_app(parts: &mut Parts, state: &ApiState) -> Result<App, Problem> {
    let name = app_name(parts, state).await?;
    let app = named_app(state, AppRef::from(name.as_str())).await?;
    state.limits.app(app.id)?;
    Ok(app)
}

async fn app_name(parts: &mut Parts, state: &ApiState) -> Result<String, Problem> {
    let not_found = || Problem::not_found("app");
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| not_found())?;
    params.iter().find(|(key, _)| *key == "app").map(|(_, value)| value.to_owned()).ok_or_else(not_found)
}

/// The app that receipts come under, in the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct AppId(pub Uuid);

/// Stands before the route of receipts, which come in bursts: with limits of its own, and without asking the database for
/// the app each time. Whoever reports is a browser, whatever else it shows.
pub async fn reports(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let (budget, app) = match reporter(&mut parts, &state).await {
        Ok(known) => known,
        Err(problem) => return problem.into_response(),
    };
    let origin = allowed_origin(&parts.headers, &app.origins);
    if parts.method == Method::OPTIONS {
        return for_browsers(preflight(), origin, budget);
    }
    parts.extensions.insert(AppId(app.id));
    for_browsers(next.run(Request::from_parts(parts, body)).await, origin, budget)
}

async fn reporter(parts: &mut Parts, state: &ApiState) -> Result<(Budget, Arc<App>), Problem> {
    let budget = state.limits.reporter(&parts.headers, &parts.extensions)?;
    let name = app_name(parts, state).await?;
    let app = state.known_apps.find(state, name).await?;
    state.limits.reports_of(app.id)?;
    Ok((budget, app))
}

/// Apps that receipts came under lately.
#[derive(Default)]
pub struct KnownApps(Mutex<HashMap<String, (Instant, Arc<App>)>>);

impl KnownApps {
    /// How long an app is believed to be as it was: its origins may change.
    const BELIEVED_FOR: Duration = Duration::from_secs(5);
    /// How many there may be.
    const MAX: usize = 1_000;

    /// Asks the database for an app again the next time: it is being deleted.
    pub fn forget(&self, app: Uuid) {
        self.0.lock().retain(|_, (_, known)| known.id != app);
    }

    async fn find(&self, state: &ApiState, name: String) -> Result<Arc<App>, Problem> {
        let now = Instant::now();
        let known = self.0.lock().get(&name).cloned();
        if let Some((_, app)) = known.filter(|(at, _)| now.duration_since(*at) < Self::BELIEVED_FOR) {
            return Ok(app);
        }
        let app = Arc::new(named_app(state, AppRef::from(name.as_str())).await?);
        let mut apps = self.0.lock();
        if apps.len() >= Self::MAX {
            apps.clear();
        }
        apps.insert(name, (now, app.clone()));
        Ok(app)
    }
}

/// The request's `Origin`, if it is one of these.
pub fn allowed_origin(headers: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

fn for_browsers(mut response: Response, origin: Option<HeaderValue>, budget: Budget) -> Response {
    let headers = response.headers_mut();
    budget.write(headers);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("X-Request-Id, Retry-After"));
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
