//! `/v1/apps/{app}/lost-subscriptions`: lost subscriptions by day.

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::Query;
use crate::api::http::paging::Page;
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use bellwire_store::audience::hygiene::{self, SubscriptionLoss};
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(report))
}

/// Default number of days.
const DAYS_DEFAULT: u16 = 30;
const DAYS_MAX: u16 = 366;

/// Period of the report.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HygieneQuery {
    /// Length of the period in days, which ends today: 1 to 366, by default 30. Subscriptions deleted by retention are not
    /// counted.
    days: Option<u16>,
}

/// Report on lost subscriptions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LostSubscriptions {
    /// Start of the report: a midnight in UTC.
    since: DateTime<Utc>,
    /// Losses, the latest day first. Days without losses are omitted.
    #[serde(flatten)]
    page: Page<SubscriptionLoss>,
}

/// Reports lost subscriptions by day, push service and VAPID key.
#[utoipa::path(get, path = "/v1/apps/{app}/lost-subscriptions", tag = "Subscriptions", responses((status = 200, body = LostSubscriptions)))]
pub(crate) async fn report(
    server: Server<MayRead>, State(state): State<ApiState>, Query(query): Query<HygieneQuery>,
) -> Result<axum::Json<LostSubscriptions>, Problem> {
    let days = query.days.unwrap_or(DAYS_DEFAULT);
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(Problem::invalid_parameter("days", format!("must be 1 to {DAYS_MAX}")));
    }
    let first = state.clock.now().date_naive() - TimeDelta::days(i64::from(days) - 1);
    let since = first.and_time(chrono::NaiveTime::MIN).and_utc();
    let losses = hygiene::losses(state.reads.pool(), server.app.id, since).await?;
    Ok(axum::Json(LostSubscriptions { since, page: Page::complete(losses) }))
}
