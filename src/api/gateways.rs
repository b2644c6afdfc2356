//! `/v1/gateways`: every lane, for operators.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::Operator;
use super::extract::Query;
use super::paging::{Page, Paging, number_cursor};
use super::problem::Problem;
use crate::id::{AppId, VapidKeyId};
use crate::store::lanes::{self, LaneState};

/// A lane: the deliveries to one push service under one VAPID key.
#[derive(Debug, Serialize, ToSchema)]
pub struct LaneView {
    /// Its number.
    lane: i32,
    /// Whose it is.
    #[schema(value_type = String)]
    app: AppId,
    /// The key that signs in it.
    #[schema(value_type = String)]
    vapid_key_id: VapidKeyId,
    /// The push service: `fcm`, `mozilla`, `wns`, `apple`, `other`.
    gateway: String,
    /// Active subscriptions in it.
    subscriptions: i64,
    /// What is in force on its way to each origin, where anything is.
    origins: Vec<OriginView>,
}

/// What is in force on a lane's way to one origin.
#[derive(Debug, Serialize, ToSchema)]
pub struct OriginView {
    /// `https://host[:port]`
    origin: String,
    /// No push before: the gateway asked for it.
    held_until: Option<DateTime<Utc>>,
    /// `closed`, `open` or `half_open`.
    breaker: String,
    /// When an open breaker lets probes through.
    open_until: Option<DateTime<Utc>>,
    /// When any of this changed.
    changed_at: DateTime<Utc>,
}

impl From<LaneState> for OriginView {
    fn from(state: LaneState) -> Self {
        let LaneState { origin, held_until, breaker, open_until, changed_at, lane: _ } = state;
        Self { origin, held_until, breaker, open_until, changed_at }
    }
}

/// Lists all lanes, the newest first.
#[utoipa::path(get, path = "/v1/gateways", tag = "Operations", params(Paging),
    security(("api_key" = ["operator"])), responses((status = 200, body = Page<LaneView>)))]
pub async fn list(
    _: Operator,
    State(state): State<ApiState>,
    uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = lanes::list(&state.pool, cut.below(), cut.ask()).await?;
    let numbers: Vec<i32> = rows.iter().map(|row| row.id).collect();
    let mut states = lanes::states(&state.pool, &numbers).await?;
    let page = cut.page(
        rows,
        |row| number_cursor(row.id),
        |row| LaneView {
            lane: row.id,
            app: AppId(row.app),
            vapid_key_id: VapidKeyId(row.vapid_key),
            gateway: row.gateway,
            subscriptions: row.subscriptions,
            origins: states.extract_if(.., |state| state.lane == row.id).map(OriginView::from).collect(),
        },
    );
    Ok(page.answer(&uri))
}
