//! The REST API: routers with a file per resource, served at `/v1`, described at `/openapi.json`.
//!
//! Who calls is settled by extractors ([`auth`]), what is wrong with a request is told as a problem ([`problem`]), and
//! lists are paged by cursor ([`paging`]). Handlers read, check, call one transition of [`crate::store`], and show.

mod accept;
mod accepted;
pub(crate) mod alerts;
pub(crate) mod api_keys;
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod batch;
pub(crate) mod calendar;
pub(crate) mod compose;
pub(crate) mod config;
pub(crate) mod cors;
pub(crate) mod counts;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod details;
pub(crate) mod events;
pub(crate) mod example;
pub(crate) mod extract;
pub(crate) mod flows;
pub(crate) mod gateways;
pub(crate) mod health;
pub(crate) mod hygiene;
pub(crate) mod identity;
pub(crate) mod identity_keys;
pub(crate) mod intake;
pub(crate) mod known_keys;
pub(crate) mod limits;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod mismatch;
pub(crate) mod openapi;
pub(crate) mod paging;
pub(crate) mod policies;
pub(crate) mod preview;
pub(crate) mod problem;
pub(crate) mod receipts;
pub(crate) mod refused;
pub(crate) mod remembered;
pub(crate) mod retry_headers;
pub(crate) mod site;
pub(crate) mod slas;
pub(crate) mod subscriptions;
pub(crate) mod topics;
pub(crate) mod users;
pub(crate) mod vapid_keys;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use sqlx::PgPool;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tracing::Instrument as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::gateway::Gateways;
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::policy;
use crate::policy::lane_state::LaneState;
use crate::receipts::{self as receipts_engine, Receipts};
use crate::store::queue::flows::Flow;
use crate::store::queue::sending::Born;
use crate::store::queue::stops::Stop;
use crate::vault::Vault;
use intake::Intake;
use known_keys::KnownKeys;
use limits::{Account, Limits, Rate};
use problem::Problem;
use remembered::Remembered;

/// What the API asks of its surroundings.
#[derive(Clone)]
pub struct ApiState {
    /// The database.
    pub pool: PgPool,
    /// Seals, opens, and makes tokens.
    pub vault: Vault,
    /// The only clock.
    pub clock: Clock,
    /// Knows push services by their hosts.
    pub gateways: Gateways,
    /// This process's dispatch.
    pub engine: Engine,
    /// What this process counts.
    pub metrics: Arc<Metrics>,
    /// Limits.
    pub settings: Arc<Settings>,
    limits: Arc<Limits>,
    intake: Intake,
    receipts: Receipts,
    known_keys: Arc<KnownKeys>,
    known_apps: Arc<cors::KnownApps>,
    schema_checked: Arc<tokio::sync::OnceCell<()>>,
    readiness: Arc<Remembered<Result<(), Problem>>>,
}

/// What the API tells this process's dispatch.
#[derive(Debug)]
pub enum Work {
    /// Something became due: look.
    Due,
    /// Deliveries born leased to this process: send them.
    Born {
        /// The lease.
        lease: Uuid,
        /// When it began.
        since: Instant,
        /// What it covers.
        rows: Vec<Born>,
    },
    /// To be obeyed before the response goes out.
    Stop(Stop),
    /// What an operator ordered of lanes, to be obeyed likewise.
    Orders(Vec<LaneState>),
    /// What is let through from now on, likewise.
    Flow(Flow),
}

/// A handle on this process's dispatch; a process without one only tells the database.
#[derive(Clone)]
pub struct Engine {
    /// Takes work.
    pub tell: Arc<dyn Fn(Work) + Send + Sync>,
    /// A fresh lease for sends to single subscriptions, if dispatch has room to take them in memory. It is given back with
    /// [`Work::Born`], or runs out if the sends fail.
    pub lease: Arc<dyn Fn() -> Option<Uuid> + Send + Sync>,
}

impl Engine {
    /// For processes without dispatch.
    pub fn none() -> Self {
        Self { tell: Arc::new(|_| {}), lease: Arc::new(|| None) }
    }
}

/// Limits of the API.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most octets of the body of a server's request.
    pub body_max_bytes: usize,
    /// Most octets of the body of a browser's request. Lists of receipts have a limit of their own.
    pub public_body_max_bytes: usize,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// Public requests of one client: an IPv4 address or an IPv6 /64. An IPv6 /48 may do 16 times as much, here and
    /// wherever clients are limited.
    pub per_client: Rate,
    /// Public requests of one app.
    pub per_app: Rate,
    /// Requests of one API key; each message of a batch counts as one.
    pub per_key: Rate,
    /// API keys that one client may show before they have proved to be valid.
    pub guesses_per_client: Rate,
    /// Requests with receipts of one client; everybody behind one address counts as one.
    pub receipts_per_client: Rate,
    /// Requests with receipts of one app.
    pub receipts_per_app: Rate,
    /// Messages to named recipients that wait to be written, at most: more are refused.
    pub sends_waiting_max: usize,
    /// How receipts are gathered.
    pub receipts: receipts_engine::Settings,
    /// The example page; none: there is none.
    pub example: Option<example::Example>,
    /// Proxies between us and clients, each of which appends to `X-Forwarded-For`. 0: none, and the header is ignored.
    pub trusted_proxies: usize,
    /// The figures that dispatch takes where a tier sets none.
    pub policy: policy::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            body_max_bytes: 1024 * 1024, // a thousand of the longest user ids, and then some
            public_body_max_bytes: 16 * 1024,
            body_timeout: Duration::from_secs(30),
            per_client: Rate { burst: 60, per_minute: 120 },
            per_app: Rate { burst: 5_000, per_minute: 60_000 },
            per_key: Rate { burst: 40_000, per_minute: 1_200_000 },
            guesses_per_client: Rate { burst: 600, per_minute: 600 },
            receipts_per_client: Rate { burst: 2_000, per_minute: 12_000 },
            receipts_per_app: Rate { burst: 100_000, per_minute: 1_000_000 },
            sends_waiting_max: 8 * batch::MESSAGES_MAX,
            receipts: receipts_engine::Settings::default(),
            example: Some(example::Example::default()),
            trusted_proxies: 0,
            policy: policy::Settings::DEFAULT,
        }
    }
}

impl ApiState {
    /// Puts it together; rate limits and counts begin fresh. Sends go through `sending_pool`, whose connections plan by index
    /// only.
    pub fn new(
        pool: PgPool,
        sending_pool: PgPool,
        vault: Vault,
        clock: Clock,
        gateways: Gateways,
        engine: Engine,
        settings: Settings,
    ) -> Self {
        let limits = Arc::new(Limits::new(&settings));
        let intake =
            Intake::new(sending_pool, vault.clone(), clock.clone(), engine.clone(), settings.sends_waiting_max);
        let receipts = Receipts::new(pool.clone(), clock.clone(), settings.receipts);
        Self {
            pool,
            vault,
            clock,
            gateways,
            engine,
            metrics: Metrics::new(),
            settings: Arc::new(settings),
            limits,
            intake,
            receipts,
            known_keys: Arc::default(),
            known_apps: Arc::default(),
            schema_checked: Arc::default(),
            readiness: Arc::new(Remembered::new(health::READ_EVERY)),
        }
    }
}

/// Routes by who is let in.
struct Routes {
    /// Browsers, too.
    public: OpenApiRouter<ApiState>,
    /// Browsers that report.
    reports: OpenApiRouter<ApiState>,
    /// Servers.
    server: OpenApiRouter<ApiState>,
}

fn routes_by_caller() -> Routes {
    let public = OpenApiRouter::new()
        .routes(routes!(config::show))
        .routes(routes!(subscriptions::list, subscriptions::register))
        .routes(routes!(subscriptions::show, subscriptions::change, subscriptions::unsubscribe));
    let reports = OpenApiRouter::new().routes(routes!(receipts::take));
    let server = OpenApiRouter::new()
        .routes(routes!(apps::list, apps::create))
        .routes(routes!(apps::show, apps::change, apps::delete))
        .routes(routes!(audit::list))
        .routes(routes!(audit::list_of_app))
        .routes(routes!(api_keys::list, api_keys::create))
        .routes(routes!(api_keys::revoke))
        .routes(routes!(identity_keys::list, identity_keys::create))
        .routes(routes!(identity_keys::remove))
        .routes(routes!(vapid_keys::list, vapid_keys::create))
        .routes(routes!(vapid_keys::show, vapid_keys::change))
        .routes(routes!(vapid_keys::export))
        .routes(routes!(users::erase))
        .routes(routes!(users::show_erasure))
        .routes(routes!(topics::list, topics::create))
        .routes(routes!(topics::show, topics::change, topics::remove))
        .routes(routes!(topics::join, topics::leave))
        .routes(routes!(policies::list))
        .routes(routes!(policies::show_tier, policies::set_tier, policies::unset_tier))
        .routes(routes!(policies::show_topic, policies::set_topic, policies::unset_topic))
        .routes(routes!(policies::show_subscription, policies::set_subscription, policies::unset_subscription))
        .routes(routes!(preview::presets))
        .routes(routes!(preview::preview))
        .routes(routes!(messages::list, messages::send))
        .routes(routes!(batch::send))
        .routes(routes!(messages::show))
        .routes(routes!(messages::pause))
        .routes(routes!(messages::resume))
        .routes(routes!(messages::cancel))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::show))
        .routes(routes!(deliveries::retry))
        .routes(routes!(deliveries::cancel))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::groups))
        .routes(routes!(dead_letters::show))
        .routes(routes!(dead_letters::handling::replay))
        .routes(routes!(dead_letters::handling::discard))
        .routes(routes!(dead_letters::handling::replay_one))
        .routes(routes!(dead_letters::handling::discard_one))
        .routes(routes!(dead_letters::handling::trail))
        .routes(routes!(dead_letters::export::export))
        .routes(routes!(events::list))
        .routes(routes!(hygiene::report))
        .routes(routes!(gateways::list))
        .routes(routes!(calendar::show, calendar::change))
        .routes(routes!(slas::show, slas::change))
        .routes(routes!(metrics::show_all))
        .routes(routes!(metrics::show))
        .routes(routes!(gateways::show))
        .routes(routes!(gateways::hold))
        .routes(routes!(gateways::release))
        .routes(routes!(gateways::open))
        .routes(routes!(gateways::close))
        .routes(routes!(gateways::probe))
        .routes(routes!(flows::show_app, flows::set_app, flows::clear_app))
        .routes(routes!(flows::pause_app))
        .routes(routes!(flows::resume_app))
        .routes(routes!(flows::reset_app))
        .routes(routes!(flows::show_lane, flows::set_lane, flows::clear_lane))
        .routes(routes!(flows::pause_lane))
        .routes(routes!(flows::resume_lane))
        .routes(routes!(flows::reset_lane))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::resolve))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready));
    Routes { public, reports, server }
}

/// What the handlers say of themselves.
#[cfg(test)]
fn description() -> utoipa::openapi::OpenApi {
    let Routes { public, reports, server } = routes_by_caller();
    let mut description = public.into_openapi();
    description.merge(reports.into_openapi());
    description.merge(server.into_openapi());
    description
}

/// Everything under `/v1`, `/openapi.json`, `/healthz` and `/readyz`. Serve it by [`crate::http_server`]: the rate limits go
/// by the peer's address, which that notes in each request.
pub fn router(state: ApiState) -> Router {
    let Routes { public, reports, server } = routes_by_caller();
    let (public, mut description) = public.split_for_parts();
    let (reports, more) = reports.split_for_parts();
    description.merge(more);
    let (server, more) = server.split_for_parts();
    description.merge(more);
    // The fallback comes before the door: the door answers preflights, which would fall back otherwise.
    let public =
        public.method_not_allowed_fallback(method_not_allowed).layer(from_fn_with_state(state.clone(), cors::public));
    let reports =
        reports.method_not_allowed_fallback(method_not_allowed).layer(from_fn_with_state(state.clone(), cors::reports));
    public
        .merge(reports)
        .merge(server)
        .merge(site::routes(&state))
        .merge(openapi::route(description))
        .fallback(|| async { Problem::not_found("route") })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(|_| Problem::internal().into_response()))
        .layer(set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(set(header::REFERRER_POLICY, "no-referrer"))
        .layer(set(header::CACHE_CONTROL, "no-store"))
        .layer(set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"))
        .layer(from_fn_with_state(state.clone(), identify))
        .with_state(state)
}

/// The API for whoever has database and master key at hand: everything is allowed, and the server's own keys are made here.
/// To be called in this process; never serve it on a socket.
pub(crate) fn local_router(state: ApiState) -> Router {
    router(state.clone()).merge(api_keys::of_server().with_state(state)).layer(axum::Extension(auth::Local))
}

async fn method_not_allowed() -> Problem {
    let detail = "This route does not know that method.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Health only, for a process without the role `api`.
pub(crate) fn health_router(state: ApiState) -> Router {
    let (router, _) =
        OpenApiRouter::new().routes(routes!(health::alive)).routes(routes!(health::ready)).split_for_parts();
    router.fallback(|| async { Problem::not_found("route") }).with_state(state)
}

fn set(name: HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value))
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives the request its id, the one it came with if that can be logged, and writes both into log and problems. Tells a
/// server what is left of its key's limit.
async fn identify(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(&REQUEST_ID)
        .filter(|value| (1..=128).contains(&value.len()) && value.as_bytes().iter().all(|b| b.is_ascii_graphic()));
    let id = given
        .cloned()
        .unwrap_or_else(|| HeaderValue::try_from(state.clock.uuid().to_string()).expect("a UUID is a header value"));
    let id_text = id.to_str().expect("graphic ASCII").to_owned();
    let path = request.uri().path().to_owned();
    // The route, not the path: ids of subscriptions and users are not for logs.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let (method, route) = (request.method().clone(), route.to_owned());
    let span = tracing::info_span!("request", id = id_text, %method, route);
    // Whose it is, by the name that it was called by.
    let app = path.strip_prefix("/v1/apps/").and_then(|rest| rest.split('/').next()).map(str::to_owned);
    let client = state.limits.client_of(request.headers(), request.extensions());
    let began = Instant::now();
    let account = Account::default();
    request.extensions_mut().insert(account.clone());
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Some(budget) = account.budget() {
        budget.write(response.headers_mut());
    }
    let status = response.status().as_u16();
    state.metrics.request(method.as_str(), &route, status);
    let took_ms = began.elapsed().as_micros() as f64 / 1e3;
    span.in_scope(|| tracing::debug!(status, took_ms, %client, app, "answered"));
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance = Some(path);
        problem.request_id = Some(id_text);
        *response.body_mut() = Body::from(problem.body());
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}
