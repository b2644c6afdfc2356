//! `/v1/apps/{app}/calendar`: when promotional and engagement deliveries may be sent.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, MaySetPolicies, Server};
use crate::api::http::draft::Draft;
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use bellwire_rules::policy::calendar::{Calendar, CalendarWindow, Hours, WINDOWS_MAX, Window, zone};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::calendars;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete))
}

/// Times at which promotional and engagement deliveries may be sent. At other times they wait, unless their time to live ends
/// before the next allowed time: then they expire. Transactional deliveries are sent at any time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CalendarSettings {
    /// IANA time zone of the app. It applies to `off_peak`, and to recipients whose own zone is unknown.
    #[schema(example = "Europe/Berlin")]
    timezone: String,
    /// Hours in the recipient's time zone during which promotional and engagement deliveries wait. Null: none.
    quiet_hours: Option<Hours>,
    /// Windows in the app's time zone during which engagement deliveries are sent, at most 50. Empty: at any time.
    #[serde(default)]
    #[schema(value_type = Vec<CalendarWindow>)]
    off_peak: Vec<Window>,
}

impl From<Calendar> for CalendarSettings {
    fn from(Calendar { zone, quiet_hours, off_peak }: Calendar) -> Self {
        Self { timezone: zone.name().to_owned(), quiet_hours, off_peak }
    }
}

/// Shows the app's calendar.
#[utoipa::path(get, path = "/v1/apps/{app}/calendar", tag = "Policies", responses((status = 200, body = CalendarSettings)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<CalendarSettings>, Problem> {
    Ok(axum::Json(calendars::read(&state.pool, server.app.id).await?.into()))
}

/// Replaces the app's calendar. It applies within a minute, also to deliveries in progress.
#[utoipa::path(put, path = "/v1/apps/{app}/calendar", tag = "Policies", request_body = CalendarSettings, responses((status = 200, body = CalendarSettings)))]
pub(crate) async fn change(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, Draft(body, mut faults, _): Draft<CalendarSettings>,
) -> Result<axum::Json<CalendarSettings>, Problem> {
    let zone = zone(&body.timezone);
    faults.require(zone.is_some(), "/timezone", "must be the IANA name of a time zone, such as Europe/Berlin");
    let is_short = body.off_peak.len() <= WINDOWS_MAX;
    faults.require(is_short, "/off_peak", &format!("must be at most {WINDOWS_MAX} windows"));
    faults.finish()?;
    let zone = zone.expect("an unknown zone was refused");
    let calendar = Calendar { zone, quiet_hours: body.quiet_hours, off_peak: body.off_peak };
    write(&server, &state, &calendar).await?;
    Ok(axum::Json(calendar.into()))
}

/// Resets the app's calendar: UTC, and deliveries at any time.
#[utoipa::path(delete, path = "/v1/apps/{app}/calendar", tag = "Policies", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySetPolicies>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, &Calendar::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MaySetPolicies>, state: &ApiState, calendar: &Calendar) -> Result<(), Problem> {
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    calendars::write(&mut *tx, app, calendar, now).await?;
    server.did(AuditAction::CalendarChanged, app).record(&mut tx, 1, now).await?;
    Ok(tx.commit().await?)
}
