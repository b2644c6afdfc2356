//! `/v1/gateways`: all lanes, for callers that may read their app. Operators can hold, release, open, close and probe a lane.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::http::app_ref::AppRef;
use super::http::auth::{Onlooker, Operator};
use super::http::extract::{Octets, PathId, PathParam, Query, is_plain_text, named_app, parse};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem};
use super::http::routes::{Access, Argument, routes};
use super::{ApiState, Work};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::request_time;
use bellwire_core::subscription::Endpoint;
use bellwire_rules::policy::lane_state::ALL_ORIGINS;
use bellwire_rules::policy::payload_limit::BELIEVED_FOR;
use bellwire_store::ChunkProgress;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keyset::key_of;
use bellwire_store::operations::reports::{self, LastError};
use bellwire_store::queue::lanes::{self, LaneOrder, LaneRow, OriginRow};
use bellwire_store::queue::recall;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(hold))
        .routes(routes!(release))
        .routes(routes!(open))
        .routes(routes!(close))
        .routes(routes!(probe))
}

/// Default duration of a hold or an opening.
const LENGTH_DEFAULT: Duration = Duration::from_secs(3_600);
/// Maximum duration of a hold or an opening: 30 days.
const LENGTH_MAX: Duration = Duration::from_secs(30 * 86_400);

/// A lane: the deliveries to one push service under one VAPID key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LaneResponse {
    /// Number of the lane.
    lane: i32,
    /// App that the lane belongs to.
    app: AppId,
    /// VAPID key that signs the lane's pushes.
    vapid_key_id: VapidKeyId,
    /// Push service of the lane.
    gateway: Gateway,
    /// Active subscriptions of the lane.
    subscriptions: i64,
    /// Number of times that its breaker opened by itself in the last hour.
    trips_last_hour: i64,
    /// Maximum POSTs in flight at present, summed over workers and origins. The limit adapts to the push service's responses.
    /// Null: no worker sent anything recently. A few seconds old.
    concurrency: Option<i64>,
    /// Last unexpected response. Null: none. A few seconds old.
    last_error: Option<LastError>,
    /// State of each origin that has a hold, an open breaker or a reduced payload limit.
    origins: Vec<GatewayOrigin>,
}

/// State of a lane at one origin of its push service.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GatewayOrigin {
    /// `https://host[:port]`. `*`: the last operator's order for all origins, including later ones.
    origin: String,
    /// End of the hold. No push starts before it. Null: not held.
    held_until: Option<DateTime<Utc>>,
    /// Reason of the hold: `throttled` (requested by the push service), `operator`, `key_refused`, `mass_gone` (the push
    /// service suddenly reports many subscriptions as gone).
    held_reason: Option<String>,
    /// Note of the operator. Null for callers that may not read data of the whole server.
    held_note: Option<String>,
    /// State of the breaker: `closed`, `open` or `half_open`.
    breaker: String,
    /// Replica that the breaker is limited to: it reaches no push service, because of its network or a wrong clock. Null: the
    /// breaker applies to all replicas.
    breaker_of: Option<String>,
    /// Time from which an open breaker lets probes through.
    open_until: Option<DateTime<Utc>>,
    /// Duration of the breaker's last opening in seconds. Null: it never opened.
    open_s: Option<f64>,
    /// Worker that is probing. Null: none.
    prober: Option<String>,
    /// Estimated maximum plaintext size that the push service accepts, in bytes with padding. Null: no limit was observed.
    payload_max: Option<i32>,
    /// Time of the last change.
    changed_at: DateTime<Utc>,
}

impl GatewayOrigin {
    fn new(row: OriginRow, now: Timestamp) -> Self {
        let held_until = row.held_until.filter(|until| now < *until);
        let held_reason = held_until.map(|_| row.reason.unwrap_or_else(|| "throttled".to_owned()));
        let probing = row.breaker == "half_open" && row.probe_until.is_some_and(|until| now < until);
        Self {
            origin: row.origin,
            held_until,
            held_reason,
            held_note: row.note.filter(|_| held_until.is_some()),
            open_until: row.open_until.filter(|_| row.breaker == "open"),
            breaker_of: row.breaker_of.filter(|_| row.breaker != "closed").map(|worker| worker.to_string()),
            breaker: row.breaker,
            open_s: row.open_ms.filter(|ms| *ms > 0).map(|ms| f64::from(ms) / 1_000.0),
            prober: row.prober.filter(|_| probing).map(|worker| worker.to_string()),
            payload_max: row.payload_max.filter(|_| row.payload_at.is_some_and(|at| now < at + BELIEVED_FOR)),
            changed_at: row.changed_at,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneNumber(pub LaneId);

impl FromStr for LaneNumber {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.map(|number| Self(LaneId(number))).ok_or("must be the number of a lane")
    }
}

impl PathParam for LaneNumber {
    const NAME: &'static str = "lane";
}

/// Order to a lane. The body may be omitted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneOrderRequest {
    /// `https://host[:port]`. By default `*`: all origins, including later ones.
    origin: Option<String>,
    /// Duration of a hold or an opening in seconds, 1 to 2,592,000 (30 days). By default 3,600.
    seconds: Option<u32>,
    /// End of a hold or an opening, instead of `seconds`.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
    /// Reason of a hold, 1 to 200 characters, for later readers.
    reason: Option<String>,
}

fn is_origin(text: &str) -> bool {
    text == ALL_ORIGINS
        || url::Url::parse(text).is_ok_and(|url| url.scheme() == "https" && url.origin().ascii_serialization() == text)
}

impl LaneOrderRequest {
    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.is_empty() { Ok(Self::default()) } else { parse(bytes) }
    }

    /// Checks the order. Returns its end, or the current time for an order without an end.
    fn check(&self, kind: OrderKind, now: Timestamp) -> Result<Timestamp, Problem> {
        let mut faults = Faults::default();
        let (lasts, reasoned) = (matches!(kind, OrderKind::Hold | OrderKind::Open), kind == OrderKind::Hold);
        let origin = self.origin.as_deref().unwrap_or(ALL_ORIGINS);
        faults.require(is_origin(origin), "/origin", "must be `*` or an origin such as `https://push.example`");
        if !lasts {
            faults.require(self.seconds.is_none(), "/seconds", "has no meaning for this order");
            faults.require(self.until.is_none(), "/until", "has no meaning for this order");
        }
        faults.require(reasoned || self.reason.is_none(), "/reason", "is allowed only with a hold");
        let plain = self.reason.as_deref().is_none_or(|reason| is_plain_text(reason, 200));
        faults.require(plain, "/reason", "must be 1 to 200 characters without control characters");
        let until = match (self.seconds, self.until) {
            (Some(_), Some(_)) => {
                faults.refuse("/until", "cannot be combined with `seconds`");
                now
            }
            (Some(seconds), None) => {
                let seconds = Duration::from_secs(seconds.into());
                let fits = !seconds.is_zero() && seconds <= LENGTH_MAX;
                faults.require(fits, "/seconds", "must be 1 to 2592000");
                now + seconds.min(LENGTH_MAX)
            }
            (None, Some(until)) => {
                let fits = now < until && until <= now + LENGTH_MAX;
                faults.require(fits, "/until", "must be in the future, at most 30 days ahead");
                until
            }
            (None, None) => now + LENGTH_DEFAULT,
        };
        faults.finish()?;
        Ok(until)
    }
}

/// Filter of the lanes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LaneQuery {
    /// Id or slug of an app: its lanes only.
    app: Option<String>,
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

/// Lists lanes, the newest first: of all apps that the caller may read, or of one app.
#[utoipa::path(get, path = "/v1/gateways", tag = "Operations", responses((status = 200, body = Page<LaneResponse>)))]
pub(crate) async fn list(
    onlooker: Onlooker, State(state): State<ApiState>, uri: Uri,
    Query(LaneQuery { app, limit, iterator }): Query<LaneQuery>,
) -> Result<Response, Problem> {
    let cut = Paging { limit, iterator }.cut()?;
    let sees_all = onlooker.apps.is_none();
    let apps = match app {
        Some(name) => Some(vec![visible(&state, &onlooker, &name).await?]),
        None => onlooker.apps,
    };
    let rows = lanes::list(&state.pool, apps.as_deref(), cut.ask()).await?;
    let mut views = views(&state, &rows, sees_all).await?.into_iter();
    let page = cut.page(rows, |row| key_of(row.id.0), |_| views.next().expect("there is a view of every row"));
    Ok(page.answer(&uri))
}

/// Returns the id of an app. An app that the caller may not read is reported as missing.
async fn visible(state: &ApiState, onlooker: &Onlooker, name: &str) -> Result<AppId, Problem> {
    let refused = || Problem::invalid_parameter("app", format!("there is no app `{name}`"));
    match named_app(state, AppRef::from(name)).await {
        Ok(app) if onlooker.sees(app.id) => Ok(app.id),
        Ok(_) => Err(refused()),
        Err(problem) if problem.status == 404 => Err(refused()),
        Err(problem) => Err(problem),
    }
}

/// Returns a lane. A lane of an app that the caller may not read is reported as missing.
pub(super) async fn visible_lane(state: &ApiState, onlooker: &Onlooker, lane: LaneId) -> Result<LaneRow, Problem> {
    let found = lanes::find(&state.pool, lane).await?.filter(|row| onlooker.sees(row.app));
    found.ok_or_else(|| Problem::not_found("lane"))
}

/// Returns a lane.
#[utoipa::path(get, path = "/v1/gateways/{lane}", tag = "Operations", responses((status = 200, body = LaneResponse)))]
pub(crate) async fn show(
    onlooker: Onlooker, State(state): State<ApiState>, PathId(lane): PathId<LaneNumber>,
) -> Result<axum::Json<LaneResponse>, Problem> {
    let row = visible_lane(&state, &onlooker, lane.0).await?;
    let view = views(&state, &[row], onlooker.apps.is_none()).await?.pop().expect("one row, one view");
    Ok(axum::Json(view))
}

async fn view(state: &ApiState, lane: LaneId) -> Result<axum::Json<LaneResponse>, Problem> {
    let row = lanes::find(&state.pool, lane).await?.ok_or_else(|| Problem::not_found("lane"))?;
    let view = views(state, &[row], true).await?.pop().expect("one row, one view");
    Ok(axum::Json(view))
}

/// Builds the responses. `with_notes` includes the operators' notes.
async fn views(state: &ApiState, rows: &[LaneRow], with_notes: bool) -> Result<Vec<LaneResponse>, Problem> {
    let now = state.clock.now();
    let numbers: Vec<LaneId> = rows.iter().map(|row| row.id).collect();
    let mut origins = lanes::states(&state.pool, &numbers).await?;
    if !with_notes {
        origins.iter_mut().for_each(|origin| origin.note = None);
    }
    let trips = lanes::trips_since(&state.pool, &numbers, now - Duration::from_secs(3_600)).await?;
    let limits = reports::limits(&state.pool, &numbers, now).await?;
    let mut words = reports::last_words(&state.pool, &numbers).await?;
    let view = |row: &LaneRow| LaneResponse {
        lane: row.id.0,
        app: row.app,
        vapid_key_id: row.vapid_key,
        gateway: row.gateway,
        subscriptions: row.subscriptions,
        trips_last_hour: trips.iter().find(|(lane, _)| *lane == row.id).map_or(0, |(_, n)| *n),
        concurrency: limits.iter().find(|(lane, _)| *lane == row.id).map(|(_, limit)| *limit),
        last_error: words.extract_if(.., |words| words.lane == row.id).next(),
        origins: origins
            .extract_if(.., |origin| origin.lane == row.id)
            .map(|row| GatewayOrigin::new(row, now))
            .collect(),
    };
    Ok(rows.iter().map(view).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderKind {
    Hold,
    Release,
    Open,
    Close,
    Probe,
}

/// An operator's order to a lane, before its checks.
pub(crate) struct GivenOrder {
    state: ApiState,
    operator: Operator,
    lane: LaneId,
    body: LaneOrderRequest,
}

impl Argument for GivenOrder {
    const ACCESS: &'static [Access] = Operator::ACCESS;
}

impl FromRequest<ApiState> for GivenOrder {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let operator = Operator::from_request_parts(&mut parts, state).await?;
        let PathId(LaneNumber(lane)) = PathId::from_request_parts(&mut parts, state).await?;
        let Octets(body) = Octets::from_request(Request::from_parts(parts, body), state).await?;
        Ok(Self { state: state.clone(), operator, lane, body: LaneOrderRequest::read(&body)? })
    }
}

impl GivenOrder {
    /// Checks the order, publishes it to all workers, and makes deliveries due that were deferred beyond its end.
    async fn carry_out(self, kind: OrderKind) -> Result<axum::Json<LaneResponse>, Problem> {
        let Self { state, operator, lane, body } = self;
        let until = body.check(kind, state.clock.now())?;
        let (order, action, until) = match kind {
            OrderKind::Hold => {
                (LaneOrder::Hold { until, note: body.reason.clone() }, AuditAction::LaneHeld, Some(until))
            }
            OrderKind::Release => (LaneOrder::Release, AuditAction::LaneReleased, None),
            OrderKind::Open => (LaneOrder::Open { until }, AuditAction::LaneOpened, Some(until)),
            OrderKind::Close => (LaneOrder::Close, AuditAction::LaneClosed, None),
            OrderKind::Probe => (LaneOrder::Probe, AuditAction::LaneProbed, None),
        };
        let origin = body.origin.as_deref().unwrap_or(ALL_ORIGINS);
        refuse_strange(&state, lane, origin).await?;
        let entry = operator.caller.did(None, action, format!("lane:{lane}"));
        let entry = entry.with(json!({"origin": origin, "until": until, "reason": body.reason}));
        let told = lanes::order(&state.pool, lane, origin, &order, entry, state.clock.now()).await?;
        let told = told.ok_or_else(|| Problem::not_found("lane"))?;
        tracing::info!(lane = lane.0, origin, ?order, "an operator steers a lane");
        let opens_at = until.unwrap_or_else(|| state.clock.now());
        let progress = recall::recall(&state.pool, lane, opens_at, state.clock.now()).await?;
        (state.engine.tell)(Work::Orders(told));
        tokio::spawn(recall_the_rest(state.clone(), lane, origin.to_owned(), opens_at, progress));
        view(&state, lane).await
    }
}

/// Refuses an origin that the lane's push service does not have. The order would otherwise succeed without an effect.
async fn refuse_strange(state: &ApiState, lane: LaneId, origin: &str) -> Result<(), Problem> {
    let row = lanes::find(&state.pool, lane).await?.ok_or_else(|| Problem::not_found("lane"))?;
    let endpoint = Endpoint::parse(&format!("{origin}/")).ok();
    let is_its = |endpoint| state.gateways.recognise(&endpoint).is_ok_and(|gateway| gateway == row.gateway);
    if origin == ALL_ORIGINS || endpoint.is_some_and(is_its) {
        return Ok(());
    }
    Err(Problem::invalid_member(
        "/origin",
        format!("is not an origin of this lane's push service, {}", row.gateway.name()),
    ))
}

/// Delays after an order at which deferred deliveries are made due again. A worker reads an order within a second, and may
/// store earlier deferrals a few seconds later. If this process ends first, the other deliveries become due within a minute.
const RECALLED_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];

async fn recall_the_rest(state: ApiState, lane: LaneId, origin: String, opens_at: Timestamp, progress: ChunkProgress) {
    let first = (progress == ChunkProgress::More).then_some(Duration::ZERO);
    for pause in first.into_iter().chain(RECALLED_AFTER) {
        tokio::time::sleep(pause).await;
        match recall_once_more(&state, lane, &origin, opens_at).await {
            Ok(true) => (state.engine.tell)(Work::Due),
            Ok(false) => return,
            Err(error) => {
                return tracing::warn!(%error, lane = lane.0, "the deferred deliveries were not recalled; they become due by their own time");
            }
        }
    }
}

/// Makes deferred deliveries due again. Returns `false` if the origin is shut again, so that later rounds are not needed.
/// Deliveries to another origin that is shut are deferred again.
async fn recall_once_more(state: &ApiState, lane: LaneId, origin: &str, opens_at: Timestamp) -> sqlx::Result<bool> {
    let origins = lanes::states(&state.pool, &[lane]).await?;
    let mut ordered = origins.iter().filter(|row| origin == ALL_ORIGINS || row.origin == origin);
    if ordered.any(|row| row.held_until.max(row.open_until) > Some(opens_at)) {
        return Ok(false);
    }
    while recall::recall(&state.pool, lane, opens_at, state.clock.now()).await? == ChunkProgress::More {}
    Ok(true)
}

/// Holds a lane: nothing is sent until the hold ends or is released. The hold replaces all others of the lane.
#[utoipa::path(post, path = "/v1/gateways/{lane}/hold", tag = "Operations", request_body = LaneOrderRequest,
    responses((status = 200, body = LaneResponse)))]
pub(crate) async fn hold(given: GivenOrder) -> Result<axum::Json<LaneResponse>, Problem> {
    given.carry_out(OrderKind::Hold).await
}

/// Ends all holds of a lane: by an operator, a refused key, or throttling. A later throttling response holds it again.
#[utoipa::path(post, path = "/v1/gateways/{lane}/release", tag = "Operations", request_body = LaneOrderRequest,
    responses((status = 200, body = LaneResponse)))]
pub(crate) async fn release(given: GivenOrder) -> Result<axum::Json<LaneResponse>, Problem> {
    given.carry_out(OrderKind::Release).await
}

/// Opens a lane's breakers: nothing is sent for the given time, then probes are sent.
#[utoipa::path(post, path = "/v1/gateways/{lane}/open", tag = "Operations", request_body = LaneOrderRequest,
    responses((status = 200, body = LaneResponse)))]
pub(crate) async fn open(given: GivenOrder) -> Result<axum::Json<LaneResponse>, Problem> {
    given.carry_out(OrderKind::Open).await
}

/// Closes a lane's open breakers: they send probes now, and close with the first success.
#[utoipa::path(post, path = "/v1/gateways/{lane}/close", tag = "Operations", request_body = LaneOrderRequest,
    responses((status = 200, body = LaneResponse)))]
pub(crate) async fn close(given: GivenOrder) -> Result<axum::Json<LaneResponse>, Problem> {
    given.carry_out(OrderKind::Close).await
}

/// Sets all breakers of a lane to half open, closed ones included: only probes are sent until one succeeds.
#[utoipa::path(post, path = "/v1/gateways/{lane}/probe", tag = "Operations", request_body = LaneOrderRequest,
    responses((status = 200, body = LaneResponse)))]
pub(crate) async fn probe(given: GivenOrder) -> Result<axum::Json<LaneResponse>, Problem> {
    given.carry_out(OrderKind::Probe).await
}
