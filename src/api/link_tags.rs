//! Parameters that service workers add to clicked links. They learn them from the response to a receipt, so that no push carries them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::campaigns;
use super::http::problem::Problem;
use super::state::ApiState;
use bellwire_core::id::{AppId, MessageId};
use bellwire_store::measurement;

/// Time for which changed settings may not apply.
const KEPT_FOR: Duration = Duration::from_secs(60);
const MESSAGES_MAX: usize = 10_000;

/// Parameters for links of a message.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LinkParameters {
    /// Hosts whose links get them: exact names, or `*.` and a domain for its subdomains.
    hosts: Vec<String>,
    /// Values by name. A parameter that a link has already stays as it is.
    parameters: BTreeMap<String, String>,
}

/// Parameters of recent messages: many receipts are about few campaigns.
#[derive(Default)]
pub(super) struct KnownLinkTags(Mutex<HashMap<MessageId, (Instant, Option<LinkParameters>)>>);

impl KnownLinkTags {
    fn recall(&self, message: MessageId) -> Option<Option<LinkParameters>> {
        let known = self.0.lock();
        known.get(&message).filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, known)| known.clone())
    }

    fn remember(&self, message: MessageId, parameters: Option<LinkParameters>) {
        let mut known = self.0.lock();
        if known.len() >= MESSAGES_MAX {
            known.clear();
        }
        known.insert(message, (Instant::now(), parameters));
    }
}

/// Returns the parameters for links of a message. `None`: the app has none, or the message was deleted.
pub(super) async fn of_message(
    state: &ApiState,
    app: AppId,
    message: MessageId,
) -> Result<Option<LinkParameters>, Problem> {
    if let Some(known) = state.known_link_tags.recall(message) {
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
    state.known_link_tags.remember(message, parameters.clone());
    Ok(parameters)
}
