//! Export of campaigns.

use super::plan::{CampaignPlan, StoredPlan};
use super::{CampaignRef, find_any};
use crate::api::ApiState;
use crate::api::http::problem::Problem;
use bellwire_core::id::CampaignId;
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::CampaignState;
use bellwire_store::campaigns::CampaignRow;
use bellwire_store::keys::apps::App;
use bellwire_vault::PLAN;

/// Returns the plan of a campaign as another server imports it. `None`: the campaign is not exported. Drafts, recurring
/// campaigns and those that events trigger are exported. A started one-time campaign is finished by this server, and a follow-up needs the campaign that it
/// follows.
pub(in crate::api) async fn plan_for_export(
    state: &ApiState, app: &App, row: &CampaignRow,
) -> Result<Option<CampaignPlan>, Problem> {
    if is_over(row.state) {
        return Ok(None);
    }
    let StoredPlan { mut given, checked } = open(state, row.id, &row.plan)?;
    if !goes_along(row.state, &checked.when) {
        return Ok(None);
    }
    let Some(follow) = &mut given.follows else { return Ok(Some(given)) };
    let Some(followed) = find_any(state, app, &CampaignRef::of(&follow.campaign)).await? else { return Ok(None) };
    let when = open(state, followed.id, &followed.plan)?.checked.when;
    // Ids are others elsewhere.
    follow.campaign = followed.slug;
    Ok(goes_along(followed.state, &when).then_some(given))
}

fn goes_along(stands: CampaignState, when: &When) -> bool {
    stands == CampaignState::Draft || matches!(when, When::Cron(_) | When::Trigger(_)) && !is_over(stands)
}

fn is_over(stands: CampaignState) -> bool {
    matches!(stands, CampaignState::Done | CampaignState::Cancelled)
}

/// Decrypts a stored plan.
pub(super) fn open(state: &ApiState, id: CampaignId, sealed: &[u8]) -> Result<StoredPlan, Problem> {
    let plain = zeroize::Zeroizing::new(state.vault.open(PLAN, id.0, sealed)?);
    serde_json::from_slice(&plain).map_err(|_| Problem::internal())
}
