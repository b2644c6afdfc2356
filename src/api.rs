//! The REST API, served at `/v1`, described at `/openapi.json`: a module per resource with its routes, and a folder of the same name
//! for what only that resource needs. [`http`] has what any resource uses.
//!
//! Extractors authenticate the caller ([`http::auth`]), faults of a request are problems ([`http::problem`]), and lists are paged by
//! cursor ([`http::paging`]). Handlers read, check, call one transition of [`bellwire_store`], and respond.

pub(crate) mod alerts;
pub(crate) mod api_keys;
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod campaigns;
pub(crate) mod caps;
pub(crate) mod checks;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
mod docs;
pub(crate) mod engagement;
pub(crate) mod events;
pub(crate) mod example;
pub(crate) mod exports;
pub(crate) mod flows;
pub(crate) mod gateways;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod identity;
pub(crate) mod imports;
pub(crate) mod link_check;
mod link_tags;
pub(crate) mod log_level;
pub(crate) mod mcp;
pub(crate) mod measurement;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod opt_in;
pub(crate) mod policies;
mod preferences;
#[cfg(test)]
#[path = "../tests/unit/api/properties.rs"]
mod properties;
pub(crate) mod receipts;
mod restores;
pub(crate) mod segments;
mod series;
pub(crate) mod session;
pub(crate) mod site;
pub(crate) mod slas;
mod state;
mod subscriptions;
pub(crate) mod team;
pub(crate) mod templates;
pub(crate) mod topics;
pub(crate) mod users;
pub(crate) mod vapid_keys;
pub(crate) mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tracing::Instrument as _;
use utoipa_axum::router::OpenApiRouter;

use http::limits::KeyUsage;
use http::problem::{Problem, ProblemCode};
use session::cookie::Renewal;
pub use state::ApiState;
pub use state::config::{ApiConfig, Example, OidcSignInConfig, RequestRate};
pub use state::engine_handle::{EngineHandle, Work};

struct Routes {
    public: OpenApiRouter<ApiState>,
    counted: OpenApiRouter<ApiState>,
    reports: OpenApiRouter<ApiState>,
    server: OpenApiRouter<ApiState>,
}

fn routes_by_caller() -> Routes {
    let mut routes = Routes {
        public: OpenApiRouter::new()
            .merge(apps::config::routes())
            .merge(subscriptions::routes())
            .merge(events::record::public_routes())
            .merge(events::conversions::public_routes())
            .merge(subscriptions::diagnoses::routes()),
        counted: OpenApiRouter::new().merge(opt_in::steps::public_routes()),
        reports: OpenApiRouter::new().merge(receipts::routes()),
        server: OpenApiRouter::new()
            .merge(apps::routes())
            .merge(opt_in::routes())
            .merge(measurement::routes())
            .merge(audit::routes())
            .merge(api_keys::routes())
            .merge(identity::keys::routes())
            .merge(vapid_keys::routes())
            .merge(users::routes())
            .merge(preferences::routes())
            .merge(topics::routes())
            .merge(imports::routes())
            .merge(restores::routes())
            .merge(exports::routes())
            .merge(segments::routes())
            .merge(policies::routes())
            .merge(policies::preview::routes())
            .merge(policies::simulation::routes())
            .merge(templates::routes())
            .merge(templates::trials::routes())
            .merge(messages::routes())
            .merge(messages::content::routes())
            .merge(link_check::routes())
            .merge(messages::batch::routes())
            .merge(campaigns::routes())
            .merge(deliveries::routes())
            .merge(dead_letters::routes())
            .merge(webhooks::routes())
            .merge(messages::explain::routes())
            .merge(events::routes())
            .merge(events::live_stream::routes())
            .merge(apps::hygiene::routes())
            .merge(gateways::routes())
            .merge(campaigns::calendar::routes())
            .merge(caps::routes())
            .merge(apps::guard::routes())
            .merge(engagement::routes())
            .merge(slas::routes())
            .merge(metrics::routes())
            .merge(series::routes())
            .merge(flows::routes())
            .merge(alerts::routes())
            .merge(checks::routes())
            .merge(log_level::routes())
            .merge(session::routes())
            .merge(team::routes())
            .merge(health::routes()),
    };
    http::if_match::describe(routes.server.get_openapi_mut());
    routes
}

/// Returns the OpenAPI document, without a server.
pub(crate) fn document() -> serde_json::Value {
    let Routes { public, counted, reports, server } = routes_by_caller();
    let mut description = public.into_openapi();
    description.merge(counted.into_openapi());
    description.merge(reports.into_openapi());
    description.merge(server.into_openapi());
    openapi::complete(description)
}

/// Router for everything under `/v1`, `/openapi.json`, `/healthz` and `/readyz`. Serve it with [`bellwire_net::http_server`],
/// which adds the peer's address to each request: rate limits need that.
pub fn router(state: ApiState) -> Router {
    let Routes { public, counted, reports, server } = routes_by_caller();
    let (public, _) = public.split_for_parts();
    let (counted, _) = counted.split_for_parts();
    let (reports, _) = reports.split_for_parts();
    let (server, paths) = server.split_for_parts();
    let edits = http::if_match::Edits::new(state.clone(), server.clone().with_state(state.clone()), &paths);
    let server = server.layer(from_fn(http::tabular::convert)).layer(from_fn_with_state(edits, http::if_match::guard));
    let description = Arc::new(document());
    let known = http::query_parameters::KnownParameters::of(&description);
    let known = from_fn_with_state(known, http::query_parameters::guard);
    let (public, counted) = (public.layer(known.clone()), counted.layer(known.clone()));
    let (reports, server) = (reports.layer(known.clone()), server.layer(known));
    // The fallback comes before the door: the door answers preflights, which would fall back otherwise.
    let public = public
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state.clone(), http::cors::public));
    let counted = counted
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state.clone(), http::cors::counted));
    let reports = reports
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state.clone(), http::cors::reports));
    // One layer: each layer of a router copies all those within it with every request.
    let around_all = ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), identify))
        .layer(from_fn_with_state(state.clone(), http::failover::wait))
        .layer(set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"))
        .layer(set(header::CACHE_CONTROL, "no-store"))
        .layer(set(header::REFERRER_POLICY, "no-referrer"))
        .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(CatchPanicLayer::custom(|_| Problem::internal().into_response()));
    let api = http::deprecation::announce(public.merge(counted).merge(reports).merge(server), &description)
        .merge(site::routes(&state))
        .merge(openapi::route(&description))
        .merge(docs::routes(description))
        .merge(preferences::pages())
        .fallback(|| async { Problem::not_found("route") })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(around_all.clone())
        .with_state(state.clone());
    let mcp = mcp::routes(&state, api.clone()).method_not_allowed_fallback(method_not_allowed);
    api.merge(mcp.layer(around_all).with_state(state))
}

/// Returns the API for callers with access to database and master key: all actions are allowed, and the server's own keys are
/// created here. Call it in this process, and never serve it on a socket.
pub fn local_router(state: ApiState) -> Router {
    router(state.clone()).merge(api_keys::of_server().with_state(state)).layer(axum::Extension(http::auth::Local))
}

async fn method_not_allowed() -> Problem {
    let detail = "This route does not support that method.";
    Problem::new(ProblemCode::MethodNotAllowed, detail)
}

/// Health only, for a process without the role `api`.
pub(crate) fn health_router(state: ApiState) -> Router {
    let (router, _) = health::routes().split_for_parts();
    router.fallback(|| async { Problem::not_found("route") }).with_state(state)
}

fn set(name: HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value))
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns each request its id: the client's `X-Request-Id` if it is safe to log. Writes the id into logs and problems. Adds
/// the remaining rate limit of an app's key to the response, and renews session cookies.
async fn identify(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(&REQUEST_ID)
        .filter(|value| (1..=128).contains(&value.len()) && value.as_bytes().iter().all(|b| b.is_ascii_graphic()));
    let id = given
        .cloned()
        .unwrap_or_else(|| HeaderValue::try_from(state.clock.uuid().to_string()).expect("a UUID is a header value"));
    if !request.method().is_safe() {
        (state.engine.tell)(Work::Asked);
    }
    let id_text = id.to_str().expect("graphic ASCII").to_owned();
    let path = request.uri().path().to_owned();
    // The route, not the path: ids of subscriptions and users are not for logs.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let (method, route) = (request.method().clone(), route.to_owned());
    let scheme = state.limits.scheme_of(request.headers(), request.extensions());
    let span = tracing::info_span!("request", id = id_text, %method, route);
    let traced = state.tracer.request(&method, &route, scheme, request.headers());
    // Whose it is, by the name that it was called by.
    let app = path.strip_prefix("/v1/apps/").and_then(|rest| rest.split('/').next()).map(str::to_owned);
    let client = state.limits.client_of(request.headers(), request.extensions());
    let began = Instant::now();
    let account = KeyUsage::default();
    request.extensions_mut().insert(account.clone());
    let renewal = Renewal::default();
    request.extensions_mut().insert(renewal.clone());
    let answering = next.run(request).instrument(span.clone());
    let mut response = match &traced {
        Some(traced) => traced.around(answering).await,
        None => answering.await,
    };
    if let Some(budget) = account.budget() {
        budget.write(response.headers_mut());
    }
    renewal.write(response.headers_mut());
    let status = response.status().as_u16();
    let took = began.elapsed();
    state.metrics.request(&method, route, scheme, status, took);
    if let Some(traced) = traced {
        traced.end(status);
    }
    let took_ms = took.as_micros() as f64 / 1e3;
    span.in_scope(|| tracing::debug!(status, took_ms, %client, app, "answered"));
    if let Some(problem) = response.extensions_mut().get_mut::<Problem>() {
        problem.instance = Some(path.clone());
        problem.request_id = Some(id_text);
        let body = Body::from(problem.body());
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    http::location::add(&method, &path, response).await
}
