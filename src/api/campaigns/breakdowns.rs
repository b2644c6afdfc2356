//! Reports of a campaign by language and by push service.

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::super::http::paging::Page;
use super::super::http::problem::Problem;
use super::view::reports_from;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_core::lane::Gateway;
use bellwire_store::campaigns::progress::{self, OfGateway, OfLocale};

const LOCALES_MAX: usize = 200;

/// Results of deliveries to browsers of one language.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignLocaleReports {
    /// Locale of the browsers. Null: not reported.
    locale: Option<String>,
    /// Deliveries accepted by push services.
    accepted: i64,
    /// Number of displays.
    displayed: i64,
    /// Number of clicks.
    clicked: i64,
}

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
    let rows = progress::by_locale(pool, app, id, LOCALES_MAX).await?;
    let view = |OfLocale { locale, accepted, displayed, clicked }| CampaignLocaleReports {
        locale,
        accepted,
        displayed,
        clicked,
    };
    Ok(Page::complete(rows.into_iter().map(view).collect()))
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
