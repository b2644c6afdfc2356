//! Position of a message in its campaign (time zones and follow-up condition), for [`explain`](bellwire_rules::explain).

use super::super::ApiState;
use super::super::http::problem::Problem;
use super::{CampaignRef, find_any, open};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_rules::campaign::follow::FollowCondition;
use bellwire_rules::campaign::parts::group_at;
use bellwire_rules::explain::{ByZone, ExplainedPart, FollowedCampaign};
use bellwire_segment::{AudienceFilter, Expression};
use bellwire_store::campaigns::runs;
use bellwire_store::keys::apps::App;
use bellwire_store::outcomes::stories;

/// Returns the position of a message in its campaign, for a subscription in the given zone. `None`: the message belongs to no
/// campaign, or the campaign was deleted. `position`: the person's position in ten-thousandths, if it is outside the message's share.
pub(in crate::api) async fn part_of(
    state: &ApiState, app: &App, message: MessageId, (subscription, timezone): (SubscriptionId, Option<&str>),
    position: Option<u16>, now: Timestamp,
) -> Result<Option<ExplainedPart>, Problem> {
    let Some(part) = runs::part_of(&state.pool, message).await? else { return Ok(None) };
    let zone = match &part.narrow.0.zones {
        None => None,
        Some(zones) => {
            let beside = runs::parts_beside(&state.pool, &part).await?;
            let is_its = |narrow: &bellwire_rules::campaign::parts::Narrow| {
                narrow.zones.as_ref().is_some_and(|zones| zones.holds(timezone))
            };
            let due_at = beside.iter().find(|(_, narrow)| is_its(&narrow.0)).map(|(due_at, _)| *due_at);
            Some(ByZone { is_its: zones.holds(timezone), due_at })
        }
    };
    let Some(row) = find_any(state, app, &CampaignRef::Id(part.campaign)).await? else { return Ok(None) };
    let stored = open(state, &row)?;
    let group = position.map(|position| group_at(&stored.checked, position));
    let follows = match stored.checked.follows.zip(stored.given.follows) {
        None => None,
        Some((follow, given)) => {
            let (did_not, act) = match follow.did_not {
                FollowCondition::Click => ("click", "clicked"),
                FollowCondition::Display => ("display", "displayed"),
            };
            let has = async |act: &str| {
                let text = format!("{act}(\"{}\")", follow.campaign);
                let expression = serde_json::from_value::<Expression>(text.into()).map_err(|_| Problem::internal())?;
                let filter = AudienceFilter::from(expression);
                Ok::<_, Problem>(stories::is_taken(&state.pool, app.id, &filter, subscription, now).await?)
            };
            Some(FollowedCampaign {
                campaign: given.campaign,
                did_not,
                received: has("received").await?,
                did: has(act).await?,
            })
        }
    };
    Ok(Some(ExplainedPart { zone, follows, group }))
}
