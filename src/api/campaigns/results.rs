//! `GET /v1/apps/{app}/campaigns/{campaign}/results`: what a campaign achieved.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{CampaignRef, find, open};
use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{PathId, Query};
use crate::api::http::paging::{Page, Paging};
use crate::api::http::problem::Problem;
use crate::results::{self, CampaignResult};
use bellwire_store::measurement::periods;

/// Lists what a campaign achieved, the latest period first: one for a campaign that runs once, consecutive ones of up to 30 days for
/// others. Empty before the first run, and if the app does not measure conversions when it begins.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/results", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignResult>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, PathId(campaign): PathId<CampaignRef>,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let row = find(&state, &server.app, &campaign).await?;
    let plan = open(&state, &row)?.checked;
    let periods = periods::of_campaign(&state.pool, row.id, cut.ask()).await?;
    let mut shown = Vec::with_capacity(periods.len());
    for period in periods {
        let result = results::read(&state.pool, &plan, &period, state.clock.now()).await?;
        shown.push((period.id, result));
    }
    Ok(cut.page(shown, |(id, _)| *id, |(_, result)| result).answer(&uri))
}
