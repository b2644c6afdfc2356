//! One delivery in memory, with its message and lane.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::batch::OpenBatch;
use super::content::{PersonalContent, RenderedContent, Says};
use super::message::{LaneInfo, Message, UnusableRow, delivery};
use super::stops::StopTarget;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_core::person::Person;
use bellwire_core::subscription::{BrowserKeys, ENDPOINT_MAX, Endpoint};
use bellwire_rules::policy::Policy;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::payload_limit::PayloadRefusal;
use bellwire_store::outcomes::ledger::{Attempt, Fate, Settlement};
use bellwire_store::queue::caps::Wish;
use bellwire_telemetry::otlp::{DeliverySpan, Stage};
use bellwire_vault::Vault;
use bellwire_webpush::payload::PayloadTemplate;
use bellwire_webpush::shrink::Shrunk;

/// Maximum time between a claim and the start of a POST. Together with the attempt's deadline it is well within the lease.
pub(super) const START_WITHIN: Duration = Duration::from_secs(15);

/// One delivery between claim and settlement.
pub(super) struct Job {
    pub message: Arc<Message>,
    pub lane: Arc<LaneInfo>,
    pub subscription: SubscriptionId,
    pub life: i32,
    pub origin_id: SubscriptionId,
    /// User of the browser. `None`: no user, or no caps apply.
    pub user_id: Option<String>,
    pub endpoint: Endpoint,
    pub keys: BrowserKeys,
    pub policy: Arc<Policy>,
    /// Number of failed attempts before.
    pub retries: u32,
    /// Time of the previous failure, and planned time of this attempt. `None`: not a retry.
    pub planned: Option<(Timestamp, Timestamp)>,
    /// Earliest time at which the delivery could be sent. Latency is measured from here.
    pub free_at: Timestamp,
    /// Whether a push to its subscription was accepted before.
    pub proven: bool,
    /// Latest start of a POST, because others may take over the lease later.
    pub start_before: Instant,
    /// Attempts since the claim that were followed by another one at once.
    pub attempts: Vec<Attempt>,
    /// Content for its recipient. `None`: shared content.
    pub own: Option<PersonalContent>,
    /// Reduced payload, because the push service refused a larger one, or probably would. `None`: the full payload.
    pub shrunk: Option<Arc<Shrunk>>,
    /// Estimated maximum plaintext bytes that the push service accepts. `None`: no limit.
    pub limit: Option<usize>,
    /// Last refusal of its payload since the claim.
    pub refused: Option<PayloadRefusal>,
    /// Number of its POST in the lane.
    pub number: u64,
    /// Hold of its subscription that a response since the claim set or ended.
    pub hold: Option<HoldReason>,
    pub ticket: Ticket,
    /// Trace span. `None`: not traced.
    pub span: Option<Box<DeliverySpan>>,
}

/// Origin of a claimed delivery (batch or row), which determines its settlement.
pub(super) enum Ticket {
    Row(Uuid),
    Batch(Arc<OpenBatch>, usize),
}

impl Job {
    /// Returns the values that stops are matched with.
    pub(super) fn target(&self) -> StopTarget {
        let Self { subscription, life, .. } = *self;
        StopTarget { message: self.message.id, subscription, life, personal: self.message.personal }
    }

    pub(super) fn lease(&self) -> Uuid {
        match &self.ticket {
            Ticket::Row(lease) => *lease,
            Ticket::Batch(batch, _) => batch.lease,
        }
    }

    /// Whether frequency caps apply. A delivery that was attempted before has its reservation.
    pub(super) fn wants_place(&self) -> bool {
        self.retries == 0 && !self.message.caps.is_empty()
    }

    pub(super) fn wish(&self) -> Wish {
        let person = Person::of(self.message.app, self.user_id.as_deref(), self.origin_id);
        Wish { person, root: self.message.root }
    }

    /// Returns the rendered content for its recipient.
    pub(super) fn written(&self) -> &RenderedContent {
        match (&self.own, &self.message.says) {
            (Some(PersonalContent::Written(written)), _) => written,
            (_, Says::Same(written)) => written,
            (_, Says::Each(_)) => unreachable!("content is rendered before it is used"),
        }
    }

    pub(super) fn template(&self) -> &PayloadTemplate {
        self.shrunk.as_ref().map_or(&self.written().template, |shrunk| &shrunk.template)
    }

    /// Records in the trace that a stage begins and the previous one ends.
    pub(super) fn enter(&mut self, stage: Stage) {
        if let Some(span) = &mut self.span {
            span.enter(stage);
        }
    }

    pub(super) fn settle(&mut self, fate: Fate, now: Timestamp) -> Settlement {
        let mut delivery = delivery(&self.message, self.lane.id, (self.subscription, self.life), self.proven);
        delivery.origin.free_at = self.free_at;
        let settlement = Settlement::after(std::mem::take(&mut self.attempts), delivery, fate, now).holding(self.hold);
        let Some(mut span) = self.span.take() else { return settlement };
        span.enter(Stage::Settle);
        span.conclude(settlement.outcome());
        settlement.traced(span)
    }
}

/// Decrypts a subscription's address: `p256dh (65) | auth (16) | endpoint`.
pub(super) fn open_address(
    vault: &Vault, subscription: SubscriptionId, sealed: &[u8],
) -> Result<(BrowserKeys, Endpoint), UnusableRow> {
    let unusable = |why: String| UnusableRow { what: subscription.to_string(), why };
    let plain = vault.open(bellwire_vault::ADDRESS, subscription, sealed).map_err(|e| unusable(e.to_string()))?;
    let (p256dh, rest) = plain.split_first_chunk().ok_or_else(|| unusable("address too short".into()))?;
    let (auth, endpoint) = rest.split_first_chunk().ok_or_else(|| unusable("address too short".into()))?;
    debug_assert!(endpoint.len() <= ENDPOINT_MAX);
    let endpoint = std::str::from_utf8(endpoint).map_err(|e| unusable(e.to_string()))?;
    let endpoint = Endpoint::parse(endpoint).map_err(|e| unusable(e.to_string()))?;
    Ok((BrowserKeys { p256dh: *p256dh, auth: *auth }, endpoint))
}
