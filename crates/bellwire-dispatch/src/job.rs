//! One delivery on its way, and what it belongs to.

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

/// No POST starts so long after its claim: with the attempt's deadline it ends well within the lease.
pub(super) const START_WITHIN: Duration = Duration::from_secs(15);

/// One delivery between claim and settling.
pub(super) struct Job {
    pub message: Arc<Message>,
    pub lane: Arc<LaneInfo>,
    pub subscription: SubscriptionId,
    pub life: i32,
    pub origin_id: SubscriptionId,
    /// User of the browser, if caps need it.
    pub user_id: Option<String>,
    pub endpoint: Endpoint,
    pub keys: BrowserKeys,
    pub policy: Arc<Policy>,
    /// Attempts that a retry followed.
    pub retries: u32,
    /// Time of the previous failure, and planned time of this attempt.
    pub planned: Option<(Timestamp, Timestamp)>,
    /// Time at which the delivery became free to be sent.
    pub free_at: Timestamp,
    /// Whether a push service has accepted a push to its subscription before.
    pub proven: bool,
    /// No POST starts after this, since the lease may be taken over some time later.
    pub start_before: Instant,
    /// Attempts made in this turn that were followed at once by another.
    pub attempts: Vec<Attempt>,
    /// Content for its recipient, if it is personal.
    pub own: Option<PersonalContent>,
    /// Smaller payload, because the gateway refused a larger one, or is likely to.
    pub shrunk: Option<Arc<Shrunk>>,
    /// Maximum plaintext octets that the gateway seems to accept.
    pub limit: Option<usize>,
    /// Last refusal of its payload in this turn.
    pub refused: Option<PayloadRefusal>,
    /// Among the POSTs of its lane, from its turn on.
    pub number: u64,
    /// Hold of its subscription that a response of this turn set or ended.
    pub hold: Option<HoldReason>,
    pub ticket: Ticket,
    /// Span of its turn, if traced.
    pub span: Option<Box<DeliverySpan>>,
}

/// Origin of a claimed delivery, which determines its settlement.
pub(super) enum Ticket {
    Row(Uuid),
    Batch(Arc<OpenBatch>, usize),
}

impl Job {
    /// Returns the values by which a stop matches this delivery.
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

    /// Returns the content for its recipient, after rendering.
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

    /// Notes that a stage begins, and the one before it ends.
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

/// Opens a subscription's sealed address: `p256dh (65) | auth (16) | endpoint`.
pub(super) fn open_address(
    vault: &Vault,
    subscription: SubscriptionId,
    sealed: &[u8],
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
