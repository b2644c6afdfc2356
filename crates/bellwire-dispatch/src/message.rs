//! A message prepared for sending, and its lanes.

use std::sync::Arc;

use serde_json::Value;

use super::content::Says;
use super::policies::{Policies, StoredPolicies};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::template::MessageContent;
use bellwire_rules::policy::calendar::Calendar;
use bellwire_rules::policy::caps::CapSet;
use bellwire_rules::policy::{Policy, TierSettings};
use bellwire_store::outcomes::ledger::{Delivery, MessageOrigin, Sla};
use bellwire_store::queue::opening::{Conditions, MessageRow};
use bellwire_telemetry::otlp;
use bellwire_vault::Vault;
use bellwire_webpush::keys::SigningKey;

/// Message prepared for sending: decrypted, parsed and serialised, except for the parts that differ between recipients.
pub(super) struct Message {
    pub id: MessageId,
    /// Message that its deliveries' ids are derived from: the replayed message, or itself.
    pub root: MessageId,
    pub app: AppId,
    pub tier: Tier,
    pub says: Says,
    pub enveloped: bool,
    pub ttl_s: u32,
    pub urgency: Urgency,
    pub topic: Option<http::HeaderValue>,
    /// Policy for recipients without a policy of their own.
    pub policy: Arc<Policy>,
    pub policies: Policies,
    /// Whether it names users or subscriptions, and so is not for later users of a browser.
    pub personal: bool,
    pub calendar: Calendar,
    pub caps: Vec<CapSet>,
    /// SLA in seconds: time from acceptance by the API to acceptance by the push service. `None`: none.
    pub sla_s: Option<u32>,
    pub accepted_at: Timestamp,
    /// Earliest time at which it could be sent: acceptance, or a later resume.
    pub(super) free_at: Timestamp,
    /// Whether it has metrics of its own.
    pub charted: bool,
    pub heard: WebhookKinds,
    pub expires_at: Timestamp,
    /// Id that the delivery ids of the removed message derive from. `None`: it is an ordinary message.
    pub withdraws_root: Option<MessageId>,
    /// Whether it shows new content instead of removing that message.
    pub is_update: bool,
    /// Trace context of its request. `None`: its deliveries are not traced.
    pub traced: Option<otlp::TraceOrigin>,
}

/// Reason for which stored work cannot be sent, with its row. The cause is a wrong key or a row changed outside Bellwire.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub(super) struct UnusableRow {
    pub what: String,
    pub why: String,
}

impl Message {
    /// Prepares a stored message, with its app's delivery settings.
    pub(super) fn open(
        row: &MessageRow, conditions: &Conditions, vault: &Vault, server: &TierSettings, tracer: &otlp::Tracer,
    ) -> Result<Self, UnusableRow> {
        let unusable = |why: String| UnusableRow { what: row.id.to_string(), why };
        let sealed = row.content.as_deref().ok_or_else(|| unusable("its content was deleted".into()))?;
        let content = vault.open(bellwire_vault::CONTENT, row.id, sealed).map_err(|e| unusable(e.to_string()))?;
        let said = MessageContent::from_json(&content).map_err(|e| unusable(format!("content: {e}")))?;
        let stored = StoredPolicies {
            message: row.policy.as_ref(),
            topic: row.topic_policy.as_ref(),
            tier: conditions.policy.as_ref(),
            max_retries: conditions.max_retries,
        };
        let policies = Policies::new(row.id, row.tier, stored, server);
        // A removal neither waits for the calendar nor counts for caps, SLA and display rate: it shows nothing new.
        let shows = row.withdraws_root.is_none();
        let topic = row.topic_header.as_deref().map(http::HeaderValue::from_str).transpose();
        Ok(Self {
            id: row.id,
            root: row.root,
            app: row.app,
            tier: row.tier,
            enveloped: said.is_enveloped(),
            says: Says::new(said).map_err(unusable)?,
            ttl_s: row.ttl_s,
            urgency: row.urgency,
            topic: topic.map_err(|e| unusable(format!("topic header: {e}")))?,
            policy: policies.common().clone(),
            policies,
            personal: row.personal,
            calendar: if shows { conditions.calendar.clone() } else { Calendar::default() },
            caps: if shows { conditions.caps.clone() } else { Vec::new() },
            sla_s: conditions.sla_s.filter(|_| shows),
            accepted_at: row.accepted_at,
            free_at: row.resumed_at.map_or(row.accepted_at, |resumed_at| resumed_at.max(row.accepted_at)),
            charted: row.charted,
            heard: conditions.heard,
            expires_at: row.expires_at,
            withdraws_root: row.withdraws_root,
            is_update: row.is_update,
            traced: tracer.origin(row.traceparent.as_deref()),
        })
    }

    /// Returns its values for metrics.
    fn origin(&self) -> MessageOrigin {
        let enveloped = self.enveloped && self.withdraws_root.is_none();
        MessageOrigin { free_at: self.free_at, enveloped, charted: self.charted, heard: self.heard }
    }

    /// Returns the earliest time at which a delivery to a recipient in this time zone could be sent. Waiting that the sender
    /// requested does not count. `paced_at`: its time in the message's pace.
    pub(super) fn free_at(&self, timezone: Option<&str>, paced_at: Option<Timestamp>) -> Timestamp {
        let free_at = paced_at.map_or(self.free_at, |paced_at| paced_at.max(self.free_at));
        match self.calendar.is_always_open() {
            true => free_at,
            false => self.calendar.opens_at(self.tier, timezone, free_at),
        }
    }

    /// Returns the policy for a recipient whose own stored policy is `subscription`.
    pub(super) fn policy_for(&self, subscription: Option<&Value>) -> Arc<Policy> {
        self.policies.of(subscription)
    }
}

pub(super) struct LaneInfo {
    pub id: LaneId,
    pub app: AppId,
    pub weight: u32,
    pub gateway: Gateway,
    pub vapid_key: VapidKeyId,
    pub key: SigningKey,
    pub subject: String,
}

/// Returns the data of a delivery to a subscription, for a settlement.
pub(super) fn delivery(
    message: &Message, lane: LaneId, (subscription, life): (SubscriptionId, i32), proven: bool,
) -> Delivery {
    Delivery {
        subscription,
        message: message.id,
        app: message.app,
        lane,
        tier: message.tier,
        life,
        proven,
        origin: message.origin(),
        sla: message.sla_s.map(|seconds| Sla { seconds, since: message.accepted_at }),
    }
}
