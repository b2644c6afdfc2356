//! Plans of campaigns, and the messages that their scheduler and their triggers create.

use chrono::TimeDelta;
use zeroize::Zeroizing;

use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_rules::campaign::plan::{Plan, PlannedMessage};
use bellwire_store::queue::sending::NewMessage;
use bellwire_vault::{CONTENT, PLAN, Vault};

/// Minimum lifetime of a message before its campaign expires. A message with zero seconds to live is sent at any later
/// time.
pub(super) const LIFE_MIN: TimeDelta = TimeDelta::seconds(1);

/// Decrypts the plan of a campaign.
pub(super) fn open(vault: &Vault, id: CampaignId, plan: &[u8]) -> Option<Plan> {
    /// Encrypted plan without the text of its author.
    #[derive(serde::Deserialize)]
    struct SealedPlan {
        checked: Plan,
    }
    let plain = Zeroizing::new(vault.open(PLAN, id.0, plan).ok()?);
    serde_json::from_slice::<SealedPlan>(&plain).ok().map(|stored| stored.checked)
}

/// Composes a message of a plan to its whole audience. It lives no longer than the campaign.
pub(super) fn message(
    vault: &Vault, app: AppId, plan: &Plan, body: &PlannedMessage, content: &Zeroizing<Vec<u8>>, now: Timestamp,
) -> NewMessage {
    let id = MessageId(uuid_of(now));
    let left_s = plan.expires_at.and_then(|end| i32::try_from((end - now).num_seconds()).ok());
    NewMessage {
        id,
        app,
        tier: body.tier,
        audience: body.to.clone(),
        filter: None,
        content: vault.seal(CONTENT, id, content),
        ttl_s: left_s.map_or(body.ttl_s, |left| body.ttl_s.min(left)).max(0),
        urgency: body.urgency,
        topic_header: body.topic_header.clone(),
        policy: body.policy.clone(),
        enveloped: body.enveloped,
        clear_on_click: body.clear_on_click,
        accepted_at: now,
        received_at: None,
        by_cursors: false,
        key: None,
        traceparent: None,
        sent_by: None,
    }
}
