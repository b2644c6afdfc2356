//! Parameters that service workers add to clicked links. They learn them from the response to a receipt, so that no push carries them.

use super::campaigns;
use super::http::problem::Problem;
use super::state::ApiState;
use super::state::known_link_tags::LinkParameters;
use bellwire_core::id::{AppId, MessageId};
use bellwire_store::measurement;

/// Returns the parameters for links of a message. `None`: the app has none, or the message was deleted.
pub(super) async fn of_message(
    state: &ApiState, app: AppId, message: MessageId,
) -> Result<Option<LinkParameters>, Problem> {
    if let Some(known) = state.known_link_tags.recall(app, message) {
        return Ok(known);
    }
    let tagged = measurement::of_message(&state.pool, app, message).await?;
    let parameters = match tagged {
        None => None,
        Some(tagged) => {
            let plan = match (&tagged.campaign, &tagged.plan) {
                (Some(campaign), Some(sealed)) => Some(campaigns::checked_plan(state, *campaign, sealed)?),
                _ => None,
            };
            let index = tagged.variant.and_then(|index| usize::try_from(index).ok());
            let variants = plan.as_ref().map(|plan| plan.variants.as_slice()).unwrap_or_default();
            let variant = index.filter(|_| variants.len() > 1).and_then(|index| variants.get(index));
            let own = plan.as_ref().map(|plan| plan.link_parameters.clone()).unwrap_or_default();
            let variant = variant.map(|variant| variant.name.as_str());
            let parameters = tagged.tags.filled(&own, tagged.slug.as_deref(), variant);
            Some(LinkParameters { hosts: tagged.tags.hosts.clone(), parameters })
        }
    };
    state.known_link_tags.remember(app, message, parameters.clone());
    Ok(parameters)
}
