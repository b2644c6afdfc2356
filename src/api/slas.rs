//! `/v1/apps/{app}/slas`: target times of an app's deliveries. A later acceptance by the push service is counted and becomes an
//! event.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayRead, MaySetPolicies, Server};
use super::http::draft::Draft;
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::delivery::Tier;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::slas;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete))
}

/// Maximum target in seconds: 30 days.
const SECONDS_MAX: u32 = 30 * 86_400;

/// Maximum seconds from a message's acceptance by the API to a delivery's acceptance by its push service, by tier. Null: no
/// target.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Slas {
    /// Target of the transactional tier, in seconds.
    #[serde(alias = "1")]
    transactional: Option<u32>,
    /// Target of the promotional tier, in seconds.
    #[serde(alias = "2")]
    promotional: Option<u32>,
    /// Target of the engagement tier, in seconds.
    #[serde(alias = "3")]
    engagement: Option<u32>,
}

impl Slas {
    fn of(&mut self, tier: Tier) -> &mut Option<u32> {
        match tier {
            Tier::Transactional => &mut self.transactional,
            Tier::Promotional => &mut self.promotional,
            Tier::Engagement => &mut self.engagement,
        }
    }
}

/// Returns the app's SLAs.
#[utoipa::path(get, path = "/v1/apps/{app}/slas", tag = "Policies", responses((status = 200, body = Slas)))]
pub(crate) async fn show(server: Server<MayRead>, State(state): State<ApiState>) -> Result<axum::Json<Slas>, Problem> {
    let mut shown = Slas::default();
    for (tier, seconds) in slas::read(&state.pool, server.app.id).await? {
        *shown.of(tier) = Some(seconds);
    }
    Ok(axum::Json(shown))
}

/// Replaces the app's SLAs.
#[utoipa::path(put, path = "/v1/apps/{app}/slas", tag = "Policies", request_body = Slas, responses((status = 200, body = Slas)))]
pub(crate) async fn change(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, Draft(mut body, mut faults, _): Draft<Slas>,
) -> Result<axum::Json<Slas>, Problem> {
    for tier in Tier::ALL {
        let within = body.of(tier).is_none_or(|seconds| (1..=SECONDS_MAX).contains(&seconds));
        faults.require(within, &format!("/{}", tier.name()), "must be from 1 to 2592000 seconds");
    }
    faults.finish()?;
    write(&server, &state, &mut body).await?;
    Ok(axum::Json(body))
}

/// Deletes the app's SLAs.
#[utoipa::path(delete, path = "/v1/apps/{app}/slas", tag = "Policies", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySetPolicies>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, &mut Slas::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MaySetPolicies>, state: &ApiState, body: &mut Slas) -> Result<(), Problem> {
    let wanted = Tier::ALL.map(|tier| (tier, *body.of(tier)));
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    slas::write(&mut *tx, app, &wanted, now).await?;
    server.did(AuditAction::SlasChanged, app).with(json!(body)).record(&mut tx, 1, now).await?;
    Ok(tx.commit().await?)
}
