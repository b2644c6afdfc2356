//! Reports of a campaign by language and by push service.

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::super::http::paging::Page;
use super::super::http::problem::Problem;
use super::view::reports_from;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_core::lane::Gateway;
use bellwire_store::campaigns::progress::{self, CampaignLocaleReports, OfGateway};

const LOCALES_MAX: usize = 200;

/// Receipts of deliveries by one push service.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignGatewayReports {
    /// Name of the push service.
    gateway: Gateway,
    /// Number of accepted deliveries.
    accepted: i64,
    /// Deliveries reported as displayed. Null: browsers of this push service send no receipts.
    displayed: Option<i64>,
    /// Deliveries reported as clicked. Null: browsers of this push service send no receipts.
    clicked: Option<i64>,
}

/// Returns the results of a campaign by language, at most 200 languages. Those with the most deliveries come first.
pub(super) async fn locales(pool: &PgPool, app: AppId, id: CampaignId) -> Result<Page<CampaignLocaleReports>, Problem> {
    Ok(Page::complete(progress::by_locale(pool, app, id, LOCALES_MAX).await?))
}

/// Returns the receipts of a campaign by push service.
pub(super) async fn gateways(
    pool: &PgPool, app: AppId, id: CampaignId,
) -> Result<Page<CampaignGatewayReports>, Problem> {
    let view = |OfGateway { gateway, accepted, displayed, clicked }| {
        let reported = |n| reports_from(gateway).then_some(n);
        CampaignGatewayReports { gateway, accepted, displayed: reported(displayed), clicked: reported(clicked) }
    };
    let rows = progress::by_gateway(pool, app, id).await?;
    Ok(Page::complete(rows.into_iter().map(view).collect()))
}
